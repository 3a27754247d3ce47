"""What there is in an account, beside what the run table says of it. Pure types, filled by the sources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Pool, Run


@dataclass(frozen=True, kw_only=True)
class LiveJob:
    """A training job with the deployment's tag that is in progress.

    Attributes:
        name: Its name.
        created_at: When it was created.
        launched: Whether the launcher made it: its environment names the run.
        of_tuning_job: Whether a tuning job made it, which hands its tags on.
        instance_type: On what it runs; None where it was not asked.
        instance_count: On how many.
        run: The head of the run its name belongs to, read after it was listed; None when there is none.
    """

    name: str
    created_at: datetime
    launched: bool
    of_tuning_job: bool = False
    instance_type: str | None = None
    instance_count: int = 1
    run: Run | None = None


@dataclass(frozen=True, kw_only=True)
class KeptPool:
    """A warm pool that SageMaker lists as Available, of a job with the deployment's tag.

    Attributes:
        job_name: The ended job that left it.
        kept_since: When that ended.
        instance_type: What waits.
        instance_count: How many of it.
        recorded: What the table says of it, read after it was listed.
        run: The head of the run its job's name belongs to, read after it was listed; None when there is none.
    """

    job_name: str
    kept_since: datetime
    instance_type: str | None = None
    instance_count: int = 1
    recorded: Pool | None = None
    run: Run | None = None


@dataclass(frozen=True, kw_only=True)
class MadeSchedule:
    """A one-time schedule of the deployment's group that no waiting pool needs.

    Attributes:
        name: Its name.
        made_at: When it was made.
        pool: The pool it is to look at, read after it was listed; None when there is none.
    """

    name: str
    made_at: datetime
    pool: Pool | None


@dataclass(frozen=True, kw_only=True)
class EndedJob:
    """The job of a run in flight that is not in progress.

    Attributes:
        run: The head of the run, read after the jobs were listed.
        ended_at: When the job ended; None when SageMaker does not know it any more.
    """

    run: Run
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class StoredPrefix:
    """What is stored below `runs/<run>/` of a run that is not in the table.

    Attributes:
        uri: `s3://bucket/runs/<run>/`, or below the prefix of an isolated team.
        stored_bytes: Of the objects that are there.
        objects: How many there are.
        newest_at: When the newest was written.
        used_by: A run in the table whose checkpoints, source or data lie in it; None when there is none.
    """

    uri: str
    stored_bytes: int
    objects: int
    newest_at: datetime
    used_by: str | None = None
