"""A local AWS: ministack plus what it lacks, as one daemon that lives in one directory.

`lifecycle` starts, finds and stops it; `cdk` deploys to it with the real CDK command line; `control`, `fleet_control`
and `permission_control` do what AWS lets no client do. What they start is the `daemon`, which puts together ministack
and the services that it lacks: `training` (SageMaker), `batch`, `ec2`, `fis` and what an `account` has besides, each
built on `service_base`; their jobs and instances run on `hosts`. `access` decides who is answered, and
`ministack` alone touches ministack's internals.
"""
