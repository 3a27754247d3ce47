"""The environment of a job's process, with SageMaker's variables, the job's own and the way to the local AWS."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.principals import AccessKey
    from spotkeep_local.training.job import TrainingJob

SESSION_NAME = "SageMaker"
"""The name of the session of its role that a training job acts in."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def job_path() -> str:
    """Return the PATH of a job, with the local AWS's own environment before the system's directories."""
    return path_with(Path(sys.prefix) / "bin")


def path_with(programs: Path) -> str:
    """Return a PATH with one directory before the system's directories."""
    return f"{programs}:{_SYSTEM_PATH}"


def job_environment(
    job: TrainingJob, *, endpoint_url: str, access_key: AccessKey, options: ServerOptions
) -> dict[str, str]:
    """Return all variables that do not depend on the host. The host sets HOME, TMPDIR and the place for byte code.

    `python3` is the local AWS's own interpreter, which stands for the one in the training image. Its output is
    unbuffered, as in AWS's images. Every AWS client in the job reaches the local AWS and nothing else.

    Args:
        job: The job. Its request's Environment wins over everything else here.
        endpoint_url: The address of the local AWS.
        access_key: The access key of the job's role.
        options: The options, for the region.
    """
    environment = {
        "PATH": job_path(),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": job.arn,
        "AWS_REGION": options.region,
        "AWS_DEFAULT_REGION": options.region,
        "AWS_ENDPOINT_URL": endpoint_url,
        **access_key.environment(),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    if job.capacity_script and any(item.needs_steps for item in job.capacity_script.interruptions):
        # An interruption at a step can only be on time when every step is reported.
        environment["SPOTKEEP_PROGRESS_SECONDS"] = "0"
    environment.update(job.request.get("Environment", {}))
    return environment
