"""A training job and its way from one status to the next, as values and pure functions.

    Starting -> Downloading -> Training -> Uploading -> Completed | Failed
        ^          |              |
        |          v              v
        +------ Interrupted <-----+            spot: capacity lost, then waiting
    any of them -> Stopping -> Uploading -> Stopped | MaxRuntimeExceeded | MaxWaitTimeExceeded

Times are epoch seconds.
Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spotkeep_local.capacity import CapacityScript, JsonDocument
from spotkeep_local.training.request_rules import is_spot


@dataclass(frozen=True, kw_only=True)
class HostLifetime:
    """The part of one host in the life of a job's processes.

    Attributes:
        name: Its name, such as `algo-1`.
        exit_code: The exit code of its process as a shell sees it.
        uploads: Checkpoint files that it copied to S3.
        unsent_files: Checkpoint files on its disk that S3 lacked, or had in another version, when it ended.
    """

    name: str
    exit_code: int | None = None
    uploads: int = 0
    unsent_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessLifetime:
    """The processes of a job, one on each host, from start to end. Times are epoch seconds.

    Files and copies are those of all hosts. The reports are those of the first host.

    Attributes:
        pid: The id of the first host's process, which is also its process group.
        ended_at: The time of the end of all, or None while one runs, and when the server died before it saw the end.
        exit_code: The first exit code other than 0 as a shell sees it, which is 128 and the signal's number when a
            signal ended the process. 0 where all ended with it.
        signal: The last signal this service sent it, `SIGTERM` or `SIGKILL`. None when it ended by itself.
        interrupted: True when its capacity was taken away.
        notice: True when it got SIGTERM before its capacity was gone, or None when nothing was taken away.
        restored_files: Checkpoint files copied from S3 before it started.
        resumed_step: The step of its `resume` event, or None when it reported none.
        last_step_seen: The highest step it reported complete.
        steps_of_trainings: The last report of each training in a script with several, by the training's name.
        total_steps: The total number of steps that it last reported.
        uploads: Checkpoint files copied to S3 while it lived.
        deletions: Objects deleted in S3 because it deleted the file.
        stored_files: Checkpoint files that were in S3 when it ended, also where its disk had them newer.
        unsent_files: Checkpoint files on its disk that S3 lacked, or had in another version, when it ended.
        read_files: Restored checkpoint files that its script has read. None where this disk keeps no access times.
        unsaved_files: Files that it wrote beside its source, which go with the machine. At most 20.
        hosts: The part of each host, once all have ended.
    """

    pid: int
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    interrupted: bool = False
    notice: bool | None = None
    restored_files: int = 0
    resumed_step: int | None = None
    last_step_seen: int | None = None
    steps_of_trainings: dict[str, int] = field(default_factory=dict)
    total_steps: int | None = None
    uploads: int = 0
    deletions: int = 0
    stored_files: tuple[str, ...] = ()
    unsent_files: tuple[str, ...] = ()
    read_files: tuple[str, ...] | None = None
    unsaved_files: tuple[str, ...] = ()
    hosts: tuple[HostLifetime, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LocalJobFacts(JsonDocument):
    """The real course of a local training job.

    Attributes:
        status: TrainingJobStatus.
        secondary_status: SecondaryStatus.
        isolation: The way its process got /opt/ml, `namespace` or `relocated`.
        took_over: The job whose kept host it began on. None when it began on a new one.
        shared_network: The reason why its hosts share this machine's network. None where each has its own, and for one.
    """

    job_name: str
    status: str
    secondary_status: str
    isolation: str
    took_over: str | None = None
    shared_network: str | None = None
    lifetimes: tuple[ProcessLifetime, ...]


FAILURE_REASON_CHARACTERS = 1024


class Status(StrEnum):
    """TrainingJobStatus."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


class SecondaryStatus(StrEnum):
    """SecondaryStatus, the values this service sets."""

    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    UPLOADING = "Uploading"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_EXCEEDED = "MaxWaitTimeExceeded"


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.STOPPED})

_STATUS_OF_ENDING = {
    SecondaryStatus.COMPLETED: Status.COMPLETED,
    SecondaryStatus.FAILED: Status.FAILED,
    SecondaryStatus.STOPPED: Status.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: Status.STOPPED,
    SecondaryStatus.MAX_WAIT_EXCEEDED: Status.STOPPED,
}

_MESSAGES = {
    SecondaryStatus.STARTING: "Preparing the instances for training",
    SecondaryStatus.DOWNLOADING: "Downloading input data",
    SecondaryStatus.TRAINING: "Training image download completed. Training in progress.",
    SecondaryStatus.INTERRUPTED: "Training job interrupted: the spot capacity was reclaimed",
    SecondaryStatus.RESTARTING: "InternalServerError: the host was lost; restarting the training job",
    SecondaryStatus.STOPPING: "Stopping the training job",
    SecondaryStatus.UPLOADING: "Uploading generated training model",
    SecondaryStatus.COMPLETED: "Training job completed",
    SecondaryStatus.FAILED: "Training job failed",
    SecondaryStatus.STOPPED: "Training job stopped",
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: "Training job runtime exceeded MaxRuntimeInSeconds provided",
    SecondaryStatus.MAX_WAIT_EXCEEDED: "Training job wait time exceeded MaxWaitTimeInSeconds provided",
}
CAPACITY_ERROR = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
"""SageMaker's FailureReason when it gives up waiting for capacity.
Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html (FailureReason)"""
INTERNAL_SERVER_ERROR = "InternalServerError: We encountered an internal error. Please try again."
"""SageMaker's FailureReason after an error of its own.
Source: sagemaker.train.aws_batch.constants, of the SageMaker SDK"""
NO_CAPACITY_MESSAGE = "Insufficient capacity error from EC2 while launching instances, retrying!"

_BILLED = frozenset(
    {
        SecondaryStatus.DOWNLOADING,
        SecondaryStatus.TRAINING,
        SecondaryStatus.STOPPING,
        SecondaryStatus.UPLOADING,
    }
)
_RUNNING = frozenset({SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING})

SPOT_PRICE = 0.3
"""The part of the on-demand price that spot costs here.

AWS scales BillableTimeInSeconds of a spot job by its price, which is how a job that was never interrupted shows
savings. The true figure moves with the market.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html (up to 90%)"""


@dataclass(frozen=True, kw_only=True)
class SecondaryStatusTransition:
    """One secondary status, from when until when."""

    status: SecondaryStatus
    start: float
    message: str
    end: float | None = None

    def seconds(self, now: float) -> float:
        """Return the seconds that it lasted, or has lasted by `now`."""
        return max(0.0, (now if self.end is None else self.end) - self.start)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end that a job will have once its output is in S3."""

    secondary: SecondaryStatus
    failure_reason: str | None = None


class PoolStatus(StrEnum):
    """WarmPoolStatus.Status."""

    IN_USE = "InUse"
    AVAILABLE = "Available"
    REUSED = "Reused"
    TERMINATED = "Terminated"


@dataclass(frozen=True, kw_only=True)
class WarmPool:
    """The pool of one job. Times are epoch seconds.

    Attributes:
        chain_since: The creation time of the first of the jobs that handed these instances on.
        kept_since: The end time of its job. None while that runs.
        over_at: The time when the pool was reused or ended.
        reused_by: The job that took it over.
    """

    status: PoolStatus = PoolStatus.IN_USE
    chain_since: float
    kept_since: float | None = None
    over_at: float | None = None
    reused_by: str | None = None

    def idle_seconds(self, now: float) -> int:
        """ResourceRetainedBillableTimeInSeconds: how long it waited, or has waited by now."""
        if self.kept_since is None:
            return 0
        return math.ceil(round(max(0.0, (self.over_at or now) - self.kept_since), 6))

    def over(self, status: PoolStatus, *, now: float, reused_by: str | None = None) -> WarmPool:
        """Return the pool when it is gone."""
        return replace(self, status=status, over_at=now, reused_by=reused_by)


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """All data that the service has about one job.

    Attributes:
        request: The CreateTrainingJob request, checked.
        command: The command on its host, which is its container's command line or the program that stands for its
            image.
        tags: Key to value.
        stop_requested: True once StopTrainingJob was called.
        ending: Set once the process is over for good, before the output is uploaded.
        capacity_script: The remaining part of the script that governs this job.
        lifetimes: Every process the job has had, oldest first.
        log_stream: Its stream in /aws/sagemaker/TrainingJobs, once something ran.
        warm_pool: Its warm pool, or None when it asked for none, or the quota had no room for one.
        takes_over: The job whose kept host it began on, or None when it began on a new one.
        restarts: The number of its restarts after an error of SageMaker's own.
        queued_as: The name of the Batch service job that it was created for. None for all others.
    """

    name: str
    arn: str
    request: dict[str, Any]
    created_at: float
    updated_at: float
    command: tuple[str, ...] = ()
    status: Status = Status.IN_PROGRESS
    tags: dict[str, str] = field(default_factory=dict)
    transitions: tuple[SecondaryStatusTransition, ...] = ()
    stop_requested: bool = False
    ending: Ending | None = None
    failure_reason: str | None = None
    model_artifacts: str | None = None
    capacity_script: CapacityScript | None = None
    lifetimes: tuple[ProcessLifetime, ...] = ()
    log_stream: str | None = None
    warm_pool: WarmPool | None = None
    takes_over: str | None = None
    queued_as: str | None = None
    restarts: int = 0

    @property
    def scripted_as(self) -> str:
        """The name by which a script of capacity finds it, because Batch's own names do not contain a run."""
        return self.queued_as or self.name

    @property
    def secondary(self) -> SecondaryStatus:
        """The present secondary status."""
        return self.transitions[-1].status if self.transitions else SecondaryStatus.STARTING

    @property
    def ended(self) -> bool:
        """True once it has ended and will not change any more."""
        return self.status in ENDED

    @property
    def spot(self) -> bool:
        """True where it runs on managed spot capacity."""
        return is_spot(self.request)

    @property
    def training_started_at(self) -> float | None:
        """The time when it first had an instance."""
        return next((t.start for t in self.transitions if t.status in _RUNNING), None)

    @property
    def ended_at(self) -> float | None:
        """The time when it reached its last status."""
        return self.transitions[-1].start if self.ended else None

    def training_time_seconds(self, now: float) -> int | None:
        """TrainingTimeInSecond: from the first instance to the end, interruptions included."""
        if self.training_started_at is None:
            return None
        return math.ceil((self.ended_at or now) - self.training_started_at)

    def billable_time_seconds(self, now: float) -> int | None:
        """BillableTimeInSecond: while there was an instance. On spot at the spot price's part of the price."""
        if self.training_started_at is None:
            return None
        seconds = self.seconds_in(_BILLED, now)
        # Rounded first: 30.000000000000004 s must not become 31.
        return math.ceil(round(seconds * SPOT_PRICE if self.spot else seconds, 6))

    def running_seconds(self, now: float) -> float:
        """Return the time that counts against MaxRuntimeInSeconds, which is time with an instance over all restarts."""
        return self.seconds_in(_RUNNING, now)

    def training_seconds(self, now: float) -> float:
        """Time in secondary status Training, over all its restarts."""
        return self.seconds_in(frozenset({SecondaryStatus.TRAINING}), now)

    def seconds_in(self, statuses: frozenset[SecondaryStatus], now: float) -> float:
        """Time in any of these secondary statuses until now."""
        return sum(t.seconds(now) for t in self.transitions if t.status in statuses)


def advance(job: TrainingJob, secondary: SecondaryStatus, *, now: float, message: str | None = None) -> TrainingJob:
    """Return the job in its next secondary status. The status follows from it."""
    status = _STATUS_OF_ENDING.get(secondary, job.status)
    if secondary is SecondaryStatus.STOPPING:
        status = Status.STOPPING
    closed = tuple(replace(t, end=now) if t.end is None else t for t in job.transitions)
    opened = SecondaryStatusTransition(
        status=secondary,
        start=now,
        message=message or _MESSAGES[secondary],
        end=now if status in ENDED else None,
    )
    return replace(job, status=status, transitions=(*closed, opened), updated_at=now)


def exit_ending(*, exit_code: int, failure_text: str) -> Ending:
    """Return the ending of a job after its process exited by itself.

    Args:
        exit_code: The exit code as a shell sees it, which is 128 and the signal's number when a signal ended the
            process.
        failure_text: The text in /opt/ml/output/failure. Only its beginning is kept.
    """
    if exit_code == 0:
        return Ending(secondary=SecondaryStatus.COMPLETED)
    reason = f"AlgorithmError: {failure_text[:FAILURE_REASON_CHARACTERS]}, exit code: {exit_code}"
    return Ending(secondary=SecondaryStatus.FAILED, failure_reason=reason)
