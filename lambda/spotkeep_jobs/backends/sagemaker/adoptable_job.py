"""What SageMaker says of a training job that another client created, as far as a run is made of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.record.record import Capacity


@dataclass(frozen=True, kw_only=True)
class AdoptableJob:
    """A training job that another client created.

    Attributes:
        view: What SageMaker says of it now.
        capacity: Whether it is a managed spot job.
        checkpoint_uri: Where SageMaker copies its checkpoints to; None for a job without CheckpointConfig.
        output_prefix: S3OutputPath, with a closing slash; empty for a job that has none.
        tuning_job: The name of the tuning job that made it; None where none did.
    """

    view: JobView
    capacity: Capacity
    checkpoint_uri: str | None
    output_prefix: str
    tuning_job: str | None


def adoptable_job_of(answer: Mapping[str, Any], *, view: JobView) -> AdoptableJob:
    """Read an answer of DescribeTrainingJob.

    Args:
        answer: The answer as boto3 gives it.
        view: What was read of the same answer for any job.
    """
    output = answer.get("OutputDataConfig", {}).get("S3OutputPath", "")
    return AdoptableJob(
        view=view,
        capacity="spot" if answer.get("EnableManagedSpotTraining") else "on-demand",
        checkpoint_uri=answer.get("CheckpointConfig", {}).get("S3Uri"),
        output_prefix=f"{output.rstrip('/')}/" if output else "",
        tuning_job=None if view.tuning_job_arn is None else view.tuning_job_arn.rpartition("/")[2],
    )
