"""The agreement between the jobs of a run and the functions. Standard library alone, pure but for the fetch.

    record.py         the fleet record: lease, volume, moves of the volume, reports of the training
    training_spec.py  one job as `spotkeep.pyz run` does it, on every backend instance_job.py   the spec with the
    volume, the data and the results of an instance tags.py           how volumes, snapshots and instances say whose
    they are orphans.py        which volumes and snapshots of a run are not needed any more user_data.py      the text
    that an instance boots with service_roles.py  the roles that EC2 and FIS need in an account before any of it works
    signed_fetch.py   fetches the agent from S3, before there is anything. Signs requests for the agent too

The agent (`spotkeep_agent`), the runner (`spotkeep.runner`) and the functions (`spotkeep_jobs`) import it. No function
imports the agent or the runner, and neither imports a function.
"""
