"""What the instances of a run and the functions that reconcile it agree on. Standard library, pure but for the fetch.

    record.py         the fleet record: lease, volume, what is being moved, what the training reports
    instance_job.py   what an instance is asked to do
    runner_options.py what `spotkeep.pyz run` is asked to do before the command
    tags.py           how volumes, snapshots and instances say whose they are
    orphans.py        which volumes and snapshots of a run are not needed any more
    user_data.py      the text that an instance boots with
    service_roles.py  the roles that EC2 and FIS need in an account before any of it works
    signed_fetch.py   fetches the agent from S3, before there is anything; signs requests for the agent too

The agent (`spotkeep_agent`) and the functions (`spotkeep_jobs`) both import it, and neither imports the other.
"""
