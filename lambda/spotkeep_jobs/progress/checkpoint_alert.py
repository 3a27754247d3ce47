"""Decides that the newest checkpoint of a running training is older than it should be. Pure.

The time between checkpoints is the script's own schedule, or the time between its last two checkpoints. Three such
intervals without a new one are too many. A run with an unknown interval gets an hour. The job file's `checkpoint_stale`
overrides both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Progress

MISSED_INTERVALS: Final = 3
SHORTEST: Final = timedelta(minutes=15)
"""The shortest time until an alert.

A run that saves every few seconds may pause as long for an evaluation, or an upload.
"""
LONGEST: Final = timedelta(days=28)
"""The longest time between checkpoints, as long as a job may run. A log that states more is not believed."""
UNKNOWN_INTERVAL: Final = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """The age and the due time of a run's newest checkpoint.

    Attributes:
        newest_at: The time when it was saved (or had reached S3, where the script reports that), or None where none is
            known.
        counted_from: The time from which the next one is awaited, which is `newest_at` or the beginning of training on
            this capacity.
        stale_at: The time from which it is too old.
        interval_s: Seconds between checkpoints, or None where that is not known.
        stuck_on_its_way: True when newer ones are on the job's disk and do not reach S3.
        read_at: The time for the next reading of the job's log, early where no log of this training was read yet.
    """

    newest_at: datetime | None
    counted_from: datetime
    stale_at: datetime
    interval_s: float | None
    stuck_on_its_way: bool
    read_at: datetime


def freshness_of(
    progress: Progress | None, *, training_since: datetime, longest_age_seconds: int | None = None
) -> Freshness:
    """Return the age of a run's newest checkpoint, and the time until which that is fresh enough.

    Args:
        progress: The progress that the run's jobs have reported.
        training_since: The time since when it has its capacity.
        longest_age_seconds: The job file's `checkpoint_stale`.
    """
    newest = interval = None
    stuck = False
    if progress is not None:
        newest = progress.uploaded_at if progress.reports_uploads else progress.saved_at
        interval = progress.scheduled_seconds or progress.saves_every_seconds
        stuck = progress.reports_uploads and (progress.saved_at or 0.0) > (progress.uploaded_at or 0.0)
    newest_at = None if newest is None else datetime.fromtimestamp(newest, tz=UTC)
    counted_from = training_since if newest_at is None else max(training_since, newest_at)
    if longest_age_seconds is not None:
        allowed = timedelta(seconds=longest_age_seconds)
    elif interval is None:
        allowed = UNKNOWN_INTERVAL
    else:
        allowed = max(SHORTEST, timedelta(seconds=min(MISSED_INTERVALS * interval, LONGEST.total_seconds())))
    stale_at = counted_from + allowed
    unread = progress is None or progress.read_to < training_since.timestamp()
    return Freshness(
        newest_at=newest_at,
        counted_from=counted_from,
        stale_at=stale_at,
        interval_s=interval,
        stuck_on_its_way=stuck,
        read_at=min(stale_at, training_since + SHORTEST) if unread else stale_at,
    )
