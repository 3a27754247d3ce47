"""The page of the AWS console that shows the training job or the instances of a run. Pure.

AWS documents no form of these addresses. They are the addresses that a browser shows on the pages.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from spotkeep_jobs.record.record import Run

_LOCAL_ACCOUNT: Final = "000000000000"
"""The local AWS's. AWS gives it to no customer."""
_HOSTS: Final = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}


def training_job_page(run: Run) -> str | None:
    """Return the address of the page of a run's training job. None where it has none, or has it on the local AWS."""
    if run.place.backend != "sagemaker" or run.job_id is None:
        return None
    _, partition, service, region, account, *_ = [*run.job_id.split(":"), *[""] * 4]
    job_name = run.job_name if run.place.queue is None else run.training_job
    if (
        service not in {"sagemaker", "batch"}
        or job_name is None
        or partition not in _HOSTS
        or account == _LOCAL_ACCOUNT
    ):
        return None
    return f"https://{region}.{_HOSTS[partition]}/sagemaker/home?region={region}#/jobs/{quote(job_name)}"


def console_page(run: Run, *, region: str) -> str | None:
    """Return the address of the page of a run's training job, or of the list of instances, filtered by the run.

    Args:
        run: The run item.
        region: The deployment's region. The record of a run on EC2 does not name it.
    """
    if run.place.backend != "ec2":
        return training_job_page(run)
    if run.job_id is None:
        return None
    partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
    return f"https://{region}.{_HOSTS[partition]}/ec2/home?region={region}#Instances:search={quote(run.run)}"
