"""Code that Spotkeep's functions share, in one folder a feature. docs/architecture.md lists the folders.

A folder imports those below it alone:

    functions                the construction of a Lambda function
    stack_deletion, orphans  the end of a deployment, and resources that belong to no live run
    schedules                documents that are launched again and again
    sweeps                   many trials of one job
    runs                     a run from its launch to its end
    pools                    warm pools
    notifications            the messages to people
    cost                     prices, and the bill of a run
    backends                 SageMaker, AWS Batch and EC2, behind one seam
    document                 the job file
    progress                 the events that a job writes into its log
    record                   the run table

Inside a folder, modules that decide say in their docstring that they are pure, and modules that act are thin. The
import contracts in pyproject.toml hold the folders. A test of the architecture holds what is pure.
"""
