"""What SageMaker says of a training job, in the types that decisions are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from spotkeep_jobs.record.record import Charges, PoolTraits

ENDED_STATUSES = frozenset({"Completed", "Failed", "Stopped"})
"""Statuses after which a job never runs again. `Deleting` follows one of them."""


@dataclass(frozen=True, kw_only=True)
class StatusTransition:
    """One entry of a job's `SecondaryStatusTransitions`."""

    status: str
    started_at: datetime
    ended_at: datetime | None
    message: str


@dataclass(frozen=True, kw_only=True)
class WarmPool:
    """What DescribeTrainingJob says of a job's warm pool.

    Attributes:
        status: Available, InUse, Reused or Terminated.
        idle_seconds: ResourceRetainedBillableTimeInSeconds; None while SageMaker says none.
        reused_by: The training job that took it over.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_WarmPoolStatus.html
    """

    status: str
    idle_seconds: int | None = None
    reused_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What DescribeTrainingJob says, as far as Spotkeep needs it. Times are aware, in UTC; durations in seconds.

    `training_seconds` and `billable_seconds` are None for a job that never got capacity.
    """

    name: str
    arn: str
    status: str
    secondary_status: str
    created_at: datetime
    last_modified_at: datetime | None = None
    training_started_at: datetime | None = None
    training_ended_at: datetime | None = None
    training_seconds: int | None = None
    billable_seconds: float | None = None
    failure_reason: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    model_uri: str | None = None
    transitions: tuple[StatusTransition, ...] = ()
    environment: Mapping[str, str]
    keep_alive_seconds: int = 0
    """How long its instances stay for the next job, as it was last changed."""
    warm_pool: WarmPool | None = None
    """None for a job without a pool: it asked for none, or none is kept."""
    pool_traits: PoolTraits | None = None
    """What another job must match to take its pool; None for a job that cannot leave one."""
    tuning_job_arn: str | None = None
    """The tuning job that made it, and handed its own tags on to it."""

    charges: Charges | None = None
    """Of an attempt on a fleet that is over: what its instances cost."""
    volume_id: str | None = None
    """Of an attempt on a fleet: the volume that follows the run."""
    volume_is_for_a_person: bool = False
    """Of an attempt on a fleet: only a person deletes that volume."""
    waits_because: str | None = None
    """Of an attempt on a fleet: what EC2 says of why there is no instance; None where there is one."""

    @property
    def ended(self) -> bool:
        """Whether the job is over for good."""
        return self.status in ENDED_STATUSES or self.status == "Deleting"


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """A line of ListTrainingJobs: a hundred come in one call, but say little."""

    name: str
    arn: str
    ended_at: datetime | None
    last_modified_at: datetime | None = None
