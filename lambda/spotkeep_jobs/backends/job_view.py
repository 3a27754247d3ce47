"""A backend's description of a job, in the types on which decisions rest. The backend's own terms stay in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.record.record import EarlierPhases, TrainingJobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from spotkeep_jobs.record.record import Charges, PoolTraits, Volume
    from spotkeep_jobs.record.states import EndReason


class JobPhase(StrEnum):
    """The present phase of a job, in the same terms for every backend."""

    WAITING = "WAITING"
    """It waits for capacity, or has it and no instance is ready yet."""
    INTERRUPTED = "INTERRUPTED"
    """It lost its capacity and waits for new."""
    LOADING = "LOADING"
    """It has capacity and loads its image or its data."""
    TRAINING = "TRAINING"
    UPLOADING = "UPLOADING"
    STOPPING = "STOPPING"
    """It was asked to end, and may still be saving."""
    ENDED = "ENDED"
    """It never runs again."""
    UNKNOWN = "UNKNOWN"
    """The backend uses a term that this version does not know. It gives no hint of the job's phase."""


WAITING_PHASES: Final = frozenset({JobPhase.WAITING, JobPhase.INTERRUPTED})
"""The phases in which a job waits for capacity."""
ON_INSTANCES_PHASES: Final = frozenset({JobPhase.LOADING, JobPhase.TRAINING, JobPhase.UPLOADING})
"""The phases in which a job has capacity, which is billed."""


@dataclass(frozen=True, kw_only=True)
class PhaseChange:
    """A phase that a job was in, or is in.

    Attributes:
        phase: The phase.
        started_at: The time of its start.
        ended_at: The time of its end. None where that is not known.
        text: Its line in the timeline.
        detail: More of it, such as the instance that it is about. Empty where the backend says no more.
        error_of_aws: True for an interruption by an error of AWS's own. False where the capacity went to others.
    """

    phase: JobPhase
    started_at: datetime
    ended_at: datetime | None
    text: str = ""
    detail: str = ""
    error_of_aws: bool = False


@dataclass(frozen=True, kw_only=True)
class WarmPoolStatus:
    """DescribeTrainingJob's description of a job's warm pool.

    Attributes:
        status: Available, InUse, Reused or Terminated.
        idle_seconds: ResourceRetainedBillableTimeInSeconds. None while SageMaker gives none.
        reused_by: The training job that took it over.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_WarmPoolStatus.html
    """

    status: str
    idle_seconds: int | None = None
    reused_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A backend's description of a job, as far as Spotkeep needs it. Times are aware, in UTC. Durations are in seconds.

    `training_seconds` and `billable_seconds` are None for a job that never got capacity.
    """

    name: str
    job_id: str
    """The id of the job at its backend, as `Attempt.job_id` has it. Empty before EC2 has given the fleet one."""
    phase: JobPhase
    end_reason: EndReason | None = None
    """The reason for its end. None while it goes on."""
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
    transitions: tuple[PhaseChange, ...] = ()
    """Its phases in order of time, either all of them or the last ones."""
    earlier_phases: EarlierPhases = field(default_factory=EarlierPhases)
    """The sums over the phases before those."""
    environment: Mapping[str, str]
    keep_alive_seconds: int = 0
    """The time in seconds for which its instances stay for the next job, as last changed."""
    warm_pool: WarmPoolStatus | None = None
    """The status of its warm pool. None for a job that asked for none, or for which SageMaker keeps none."""
    pool_traits: PoolTraits | None = None
    """The traits that another job must match to take its pool. None for a job that cannot leave one."""
    tuning_job_arn: str | None = None
    """The tuning job that created it, and handed its own tags on to it."""

    session_targets: tuple[str, ...] = ()
    """The targets for sessions of Systems Manager, in the order of its instances, as `Backend.observe` sees them.

    They are containers of a training job while it trains, or the instance of a fleet."""
    remote_debugging_off_in: str | None = None
    """The training job in which remote debugging has to be switched on before its containers take sessions."""

    charges: Charges | None = None
    """The cost of a fleet's instances, once the attempt is over. None for another backend."""
    volume: Volume | None = None
    """The volume of a run on a fleet."""
    waits_because: str | None = None
    """The reason of EC2 or AWS Batch for an attempt without an instance, on a fleet or in a queue.

    None where it has one.
    """

    never_fits: bool = False
    """True where AWS Batch says that it asks for more than its queue or share may ever have. It blocks later ones."""

    training_jobs: TrainingJobs = field(default_factory=TrainingJobs)
    """The training jobs with instances that AWS Batch created for an attempt in a queue."""

    has_more_to_do: bool = False
    """True while `Backend.settle` has a step to take, or a fact to record, for the job's resources."""

    @property
    def phase_count(self) -> int:
        """The number of phases that it has had, listed or not."""
        return self.earlier_phases.count + len(self.transitions)

    @property
    def ended(self) -> bool:
        """True once the job is over for good."""
        return self.phase is JobPhase.ENDED


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """A line of ListTrainingJobs. A hundred come in one call, but hold little."""

    name: str
    arn: str
    ended_at: datetime | None
    last_modified_at: datetime | None = None
