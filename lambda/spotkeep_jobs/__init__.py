"""What Spotkeep's functions share: one folder a feature, which docs/architecture.md lists.

A folder imports those below it alone:

    functions                how a Lambda function is put together stack_deletion, orphans  what a deployment ends at
    its own end. What belongs to no live run schedules                documents that are launched again and again sweeps
    many trials of one job runs                     a run from its launch to its end pools                    warm pools
    notifications            what is sent to people cost                     prices, and the bill of a run backends
    SageMaker, AWS Batch and EC2, behind one seam document                 the job file progress                 what a
    job says of itself in its log record                   the run table

Inside a folder, modules that decide are pure, and modules that act are thin. The import contracts in pyproject.toml
hold both.
"""
