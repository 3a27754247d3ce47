"""What really happened to a job's processes: the rehearsal judges by these, not by what the job says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotkeep_local.capacity import JsonDocument


@dataclass(frozen=True, kw_only=True)
class ProcessLifetime:
    """One process of a job, from start to end. Times are epoch seconds.

    Attributes:
        pid: Its process id, which is also its process group.
        ended_at: None while it runs, and when the server died before it saw the end.
        exit_code: As a shell sees it: 128 and the signal's number when a signal ended it.
        signal: The last signal this service sent it, `SIGTERM` or `SIGKILL`. None when it ended by itself.
        interrupted: Its capacity was taken away.
        notice: It got SIGTERM before its capacity was gone. None when nothing was taken away.
        restored_files: Checkpoint files copied from S3 before it started.
        resumed_step: The `resume` event's step. None when it reported none.
        last_step_seen: The highest step it reported complete.
        steps_of_trainings: What each training of a script with several has last reported, by its name.
        total_steps: As it last reported.
        uploads: Checkpoint files copied to S3 while it lived.
        deletions: Objects deleted in S3 because it deleted the file.
        stored_files: Checkpoint files that were in S3 when it ended, also where its disk had them newer.
        unsent_files: Checkpoint files that were on its disk and not, or not so, in S3 when it ended.
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
    """What a local training job went through.

    Attributes:
        status: TrainingJobStatus.
        secondary_status: SecondaryStatus.
        isolation: How its process got /opt/ml: `namespace` or `relocated`.
        took_over: The job whose kept host it began on. None when it began on a new one.
    """

    job_name: str
    status: str
    secondary_status: str
    isolation: str
    took_over: str | None = None
    lifetimes: tuple[ProcessLifetime, ...]
