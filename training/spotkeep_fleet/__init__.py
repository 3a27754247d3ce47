"""The agreement between the jobs of a run and the functions. Standard library alone, pure but for the fetch.

    record.py         the fleet record, with lease, volume, moves of the volume and reports of the training
    training_spec.py  one job as `spotkeep.pyz run` does it, on every backend
    instance_job.py   the spec with the volume, the data and the results of an instance
    tags.py           the tags that name the owner of volumes, snapshots and instances
    orphans.py        the volumes and snapshots of a run that are not needed any more
    user_data.py      the text with which an instance boots
    service_roles.py  the roles that EC2 and FIS need in an account before any of it works
    printable_text.py text of unknown origin, made harmless for its reader
    signed_fetch.py   fetches the agent from S3 at boot, and signs requests for the agent too

The agent (`spotkeep_agent`), the runner (`spotkeep.runner`) and the functions (`spotkeep_jobs`) import it. No function
imports the agent or the runner, and neither imports a function.
"""
