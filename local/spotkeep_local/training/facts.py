"""The real course of a job's processes. The rehearsal judges by these facts, not by the job's own reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotkeep_local.capacity import JsonDocument


@dataclass(frozen=True, kw_only=True)
class ProcessLifetime:
    """One process of a job, from start to end. Times are epoch seconds.

    Attributes:
        pid: Its process id, which is also its process group.
        ended_at: The time of its end. None while it runs, and when the server died before it saw the end.
        exit_code: Its exit code as a shell sees it, which is 128 and the signal's number when a signal ended it.
        signal: The last signal this service sent it, `SIGTERM` or `SIGKILL`. None when it ended by itself.
        interrupted: True when its capacity was taken away.
        notice: True when it got SIGTERM before its capacity was gone. None when nothing was taken away.
        restored_files: Checkpoint files copied from S3 before it started.
        resumed_step: The step of its `resume` event. None when it reported none.
        last_step_seen: The highest step it reported complete.
        steps_of_trainings: The last report of each training in a script with several, by the training's name.
        total_steps: The total number of steps that it last reported.
        uploads: Checkpoint files copied to S3 while it lived.
        deletions: Objects deleted in S3 because it deleted the file.
        stored_files: Checkpoint files that were in S3 when it ended, also where its disk had them newer.
        unsent_files: Checkpoint files on its disk that S3 lacked, or had in another version, when it ended.
        read_files: Restored checkpoint files that its script has read. None where this disk keeps no access times.
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


@dataclass(frozen=True, kw_only=True)
class LocalJobFacts(JsonDocument):
    """The real course of a local training job.

    Attributes:
        status: TrainingJobStatus.
        secondary_status: SecondaryStatus.
        isolation: The way its process got /opt/ml, `namespace` or `relocated`.
        took_over: The job whose kept host it began on. None when it began on a new one.
    """

    job_name: str
    status: str
    secondary_status: str
    isolation: str
    took_over: str | None = None
    lifetimes: tuple[ProcessLifetime, ...]
