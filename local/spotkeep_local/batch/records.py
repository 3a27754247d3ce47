"""The values that Batch keeps. Times are epoch seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SERVICE_JOBS: Final = "SAGEMAKER_TRAINING"
"""The type of queues, environments and jobs, AWS Batch's only one for service jobs."""
NUM_INSTANCES: Final = "NUM_INSTANCES"
"""The unit of a limit on instances of any type. The other units are instance types."""
UNLIMITED: Final = -1
"""A borrow limit."""


class JobStatus(StrEnum):
    """The status of a service job.

    Source: "Mapping AWS Batch service job status to SageMaker AI status" in the AWS Batch user guide.
    """

    SUBMITTED = "SUBMITTED"
    RUNNABLE = "RUNNABLE"
    SCHEDULED = "SCHEDULED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


ENDED: Final = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED})


class SharingStrategy(StrEnum):
    """The way in which a quota share shares idle capacity."""

    RESERVE = "RESERVE"
    LEND = "LEND"
    LEND_AND_BORROW = "LEND_AND_BORROW"


class StopCause(StrEnum):
    """The reason why Batch stops a job's training job where no user terminated the job."""

    PREEMPTION = "preemption"
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True)
class ServiceEnvironment:
    """A service environment. `limits` are instances by unit."""

    name: str
    arn: str
    enabled: bool
    limits: dict[str, int]
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """A scheduling policy of quota shares, as its request has it."""

    name: str
    arn: str
    quota_share: dict[str, Any]
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobQueue:
    """A job queue of type SAGEMAKER_TRAINING.

    Attributes:
        environment: The ARN of its service environment.
        policy: The ARN of its scheduling policy. None for first in, first out.
        time_limit_actions: The actions as the request has them.
    """

    name: str
    arn: str
    enabled: bool
    priority: int
    environment: str
    policy: str | None = None
    time_limit_actions: list[dict[str, Any]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QuotaShare:
    """A quota share of a job queue.

    Attributes:
        queue: The ARN of the queue.
        limits: Instances by type that it has without borrowing.
        borrow_limit: The most that it may borrow, in percent of its limits, or `UNLIMITED`.
        preempts_within: Its jobs give way to its jobs of higher priority.
    """

    name: str
    arn: str
    queue: str
    enabled: bool
    limits: dict[str, int]
    strategy: SharingStrategy
    borrow_limit: int
    preempts_within: bool
    tags: dict[str, str] = field(default_factory=dict)

    def most(self, unit: str) -> float:
        """Return the amount of a unit that it may use, borrowed capacity included."""
        own = self.limits.get(unit, 0)
        if self.strategy is not SharingStrategy.LEND_AND_BORROW:
            return own
        return math.inf if self.borrow_limit == UNLIMITED else own + own * self.borrow_limit // 100


@dataclass(frozen=True, kw_only=True)
class ServiceJobAttempt:
    """One ended attempt of a service job.

    Attributes:
        training_job: The ARN of its training job. None when SageMaker refused it.
        started_at: The time when its training job first had an instance. None when it never had one.
    """

    training_job: str | None
    started_at: float | None
    stopped_at: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class LocalServiceJob:
    """A service job.

    Attributes:
        number: The number of its submission, over all queues. A smaller one is older.
        request: The SubmitServiceJob request, without tags and token.
        needs: The instances that its payload asks for, by type. Empty where the payload does not say.
        training_job: The name of the present attempt's training job, from its handover to SageMaker on, with status
            SCHEDULED once SageMaker has taken it.
        latest_training_job: The ARN of the last training job that SageMaker took.
        started_at: The time when the last attempt first had an instance.
        attempts: The ended attempts that count, oldest first.
        preempted: The last preempted attempts, oldest first.
        preempted_count: The number of preempted attempts.
        stop_cause: The reason why Batch stops the present attempt's training job, or None when it does not, or a user
            terminated it.
        terminate_reason: The reason in a call of TerminateServiceJob.
        not_before: The earliest time of its next attempt, after SageMaker had no capacity.
        front_reason: The reason why it cannot leave the front of its queue, as the queue's time limits name it. None if
            it can.
        front_since: The time since when it cannot.
        promised: Other jobs were preempted for it, so it comes before others that borrow.
    """

    job_id: str
    arn: str
    name: str
    queue: str
    number: int
    request: dict[str, Any]
    needs: dict[str, int]
    created_at: float
    client_token: str
    priority: int = 0
    status: JobStatus = JobStatus.SUBMITTED
    status_reason: str | None = None
    training_job: str | None = None
    latest_training_job: str | None = None
    scheduled_at: float | None = None
    started_at: float | None = None
    stopped_at: float | None = None
    attempts: tuple[ServiceJobAttempt, ...] = ()
    preempted: tuple[ServiceJobAttempt, ...] = ()
    preempted_count: int = 0
    stop_cause: StopCause | None = None
    terminate_reason: str | None = None
    not_before: float = 0.0
    front_reason: str | None = None
    front_since: float = 0.0
    promised: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> str | None:
        """The quota share of its submission. None where its queue has none."""
        share = self.request.get("quotaShareName")
        return None if share is None else str(share)

    @property
    def ended(self) -> bool:
        """True once it has ended and will not change any more."""
        return self.status in ENDED

    @property
    def waits(self) -> bool:
        """True while it waits to be handed to SageMaker."""
        return self.training_job is None and not self.ended

    @property
    def leaves(self) -> bool:
        """True while its training job is being stopped, so that its capacity comes free soon."""
        return self.stop_cause is not None or self.terminate_reason is not None
