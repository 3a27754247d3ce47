"""A local AWS, made of ministack and the services that it lacks, as one daemon that lives in one directory.

`lifecycle` starts, finds and stops the daemon. `cdk` deploys to it with the real CDK command line. `control` does the
things that AWS lets no client do. The `daemon` puts ministack and the other services together. They are `training`
(SageMaker), `batch`, `ec2`, `fis` and the rest of an `account`, each built on `service_base`. Their jobs and instances
run on `hosts`. `principals` names the callers, `iam` judges them, and `access` decides about each request. `ministack`
alone touches ministack's internals.
"""
