"""A person's shell in a run, through Systems Manager, with the target of a session and its command on an instance.

Session Manager opens sessions on instances as `ssm-user`, who may become root. A shell in a run belongs to the user of
the training. It can do as much as the script, and no more. Its processes end with the training.

Sources: https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
    https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-getting-started-ssm-user-permissions.html
"""

from __future__ import annotations

import shlex

COMMAND_DOCUMENT = "AWS-StartInteractiveCommand"
"""AWS's document of sessions that run a command. Without a document a session is a shell."""
TRAINING_JOB_TARGET = "sagemaker-training-job"
"""The beginning of targets that are containers of training jobs."""
TRAINING_USER = "spotkeep"
"""The user of the training on an instance."""
FRAMEWORKS = ("opt/pytorch", "opt/tensorflow")
"""The virtual environments of AWS's Deep Learning AMIs. Source: `python_location` in their release notes, for example
https://docs.aws.amazon.com/dlami/latest/devguide/aws-deep-learning-x86-gpu-pytorch-2.11-amazon-linux-2023.html"""
_JOB_DIRECTORY = "/opt/ml"


def training_job_target(job_name: str, host: int) -> str:
    """Return the name of a container of a training job as the target of a session.

    Args:
        job_name: The job's name.
        host: The number of its instance, from 1.
    """
    return f"{TRAINING_JOB_TARGET}:{job_name}_algo-{host}"


def shell_on_an_instance(command: str | None = None) -> str:
    """Return the command line of a session on an instance, in the job's folder, with its Python and as its user.

    Args:
        command: The command to run instead of an interactive shell, as a shell reads it.
    """
    path = ":".join(f"/{framework}/bin" for framework in FRAMEWORKS)
    shell = "exec bash --login" if command is None else f"exec bash -c {shlex.quote(command)}"
    # Inside, because sudo sets a PATH of its own.
    inside = f'export PATH="{path}:$PATH"; cd {_JOB_DIRECTORY}; {shell}'
    return f"exec sudo --set-home --user={TRAINING_USER} bash -c {shlex.quote(inside)}"
