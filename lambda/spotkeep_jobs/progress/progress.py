"""The progress of a run by the events of its jobs. Pure.

It counts the trained steps, the steps trained twice, and the work that is left. Jobs report completed steps every few
seconds. They report checkpoints that are on the disk, and their arrival in S3 where the script uploads them itself.
SageMaker's own upload reports nothing. A checkpoint counts as arrived when the job has lived for ten minutes after it.
Unknown work counts as not done.

Jobs do not report every step, so the steps after the last report before an interruption stay uncounted. Of a script
with several trainings (`training` in its events) the steps of all are added up. A training that begins or goes on after
another one goes on from the sum. The script takes them up in the same order at each start.

The newest checkpoint of a running training may be older than it should be. The time between checkpoints is the script's
own schedule, or the time between its last two checkpoints. Three such intervals without a new one are too many. A run
with an unknown interval gets an hour. The job file's `checkpoint_stale` overrides both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from spotkeep_jobs.progress.job_events import MOST, JobEvent, JobEventKind
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Attempt, Progress

UPLOAD_SETTLES_SECONDS: Final = 600.0
_TIMED_LONG_ENOUGH_SECONDS: Final = 60.0
"""Seconds of timed steps before their mean counts.

The first steps are slower, so the declared work gives the time of a step until then.
"""


@dataclass(frozen=True, kw_only=True)
class WorkLeft:
    """The work that is left, in seconds of training.

    Attributes:
        seconds: The work left if the present process goes on.
        if_lost_seconds: The work left if the capacity in use vanished now.
        known: True when the job has reported its progress. Else all of the work counts as left.
    """

    seconds: float
    if_lost_seconds: float
    known: bool


class ProgressFollower:
    """Follows a run through some more of a log, event by event.

    Attributes:
        progress: The progress that is known so far.
    """

    def __init__(self, progress: Progress | None) -> None:
        """Begin with the progress that was known before.

        Args:
            progress: That progress. Events up to its time are passed over.
        """
        self.progress = progress
        self._read_to = -math.inf if progress is None else progress.read_to

    def add(self, event: JobEvent) -> None:
        """Take the next event, in order of time, by the job's clock."""
        if event.at > self._read_to:
            self.progress = _after(self.progress, event)


def work_left(progress: Progress | None, *, work_seconds: float) -> WorkLeft:
    """Return the work that is left.

    Args:
        progress: The progress that the run's jobs have reported.
        work_seconds: All of the work, from the request.
    """
    if progress is None or not progress.total_steps:
        return WorkLeft(seconds=work_seconds, if_lost_seconds=work_seconds, known=False)
    pace = work_seconds / progress.total_steps
    if progress.timed_steps and progress.timed_seconds >= _TIMED_LONG_ENOUGH_SECONDS:
        pace = progress.timed_seconds / progress.timed_steps
    if_lost = max(0, progress.total_steps - progress.durable_step) * pace
    left = max(0, progress.total_steps - progress.step) * pace if progress.at_work else if_lost
    return WorkLeft(seconds=min(left, if_lost), if_lost_seconds=if_lost, known=True)


def _after(before: Progress | None, event: JobEvent) -> Progress:
    at = datetime.fromtimestamp(event.at, tz=UTC)
    if before is None:
        before = Progress(step=0, reported_at=at, read_to=event.at, at_work=False)
    progress = with_changes(_settled(before, event), read_to=event.at)
    match event.kind:
        case JobEventKind.START:
            progress = with_changes(progress, at_work=False, unsettled_step=None, unsettled_at=None)
        case JobEventKind.SCHEDULE:
            progress = _scheduled(progress, event)
        case JobEventKind.RESUME if event.step is not None:
            # The script went on from what had been durable. What waits to be settled is another training's.
            progress = with_changes(
                progress,
                step=event.step,
                durable_step=event.step,
                at_work=True,
                reported_at=at,
                unsettled_step=None,
                unsettled_at=None,
            )
        case JobEventKind.UPLOADED if event.step is not None:
            progress = with_changes(
                progress,
                durable_step=max(before.durable_step, event.step),
                reports_uploads=True,
                unsettled_step=None,
                unsettled_at=None,
                uploaded_at=event.at,
            )
        case kind if kind in REPORTS_A_STEP and event.step is not None:
            if kind is JobEventKind.SAVED:
                progress = _saved(progress, event, step=event.step)
            progress = _reported(progress, event, step=event.step)
        case _:
            pass
    return progress


def _reported(progress: Progress, event: JobEvent, *, step: int) -> Progress:
    total = event.fields.get("total_steps")
    if isinstance(total, int) and not isinstance(total, bool) and total > 0:
        progress = with_changes(progress, total_steps=total)
    elif isinstance(total, float) and math.isfinite(total) and total >= 1:
        progress = with_changes(progress, total_steps=math.ceil(total))
    if progress.at_work and step <= progress.step:
        return progress  # A save that took a while names a step before the last one reported.
    if progress.at_work:
        seconds = max(0.0, event.at - progress.reported_at.timestamp())
        progress = with_changes(
            progress,
            timed_steps=progress.timed_steps + step - progress.step,
            timed_seconds=progress.timed_seconds + seconds,
        )
    return with_changes(progress, at_work=True, step=step, reported_at=datetime.fromtimestamp(event.at, tz=UTC))


def _scheduled(progress: Progress, event: JobEvent) -> Progress:
    seconds = event.fields.get("seconds")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds) or seconds <= 0:
        return progress
    return with_changes(progress, scheduled_seconds=float(seconds))


def _saved(progress: Progress, event: JobEvent, *, step: int) -> Progress:
    """Record a saved checkpoint. Only two of one process give the time between checkpoints."""
    if progress.at_work and progress.saved_at is not None:
        progress = with_changes(progress, saves_every_seconds=event.at - progress.saved_at)
    if not progress.reports_uploads and progress.unsettled_at is None:
        progress = with_changes(progress, unsettled_step=step, unsettled_at=event.at)
    return with_changes(progress, saved_at=event.at)


def _settled(progress: Progress, event: JobEvent) -> Progress:
    """Count a checkpoint that the job has outlived long enough as arrived."""
    if event.kind is JobEventKind.START or progress.unsettled_at is None or progress.unsettled_step is None:
        return progress
    if event.at < progress.unsettled_at + UPLOAD_SETTLES_SECONDS:
        return progress
    return with_changes(
        progress,
        durable_step=max(progress.durable_step, progress.unsettled_step),
        unsettled_step=None,
        unsettled_at=None,
    )


REPORTS_A_STEP: Final = frozenset({JobEventKind.PROGRESS, JobEventKind.SAVED, JobEventKind.FINISH})
MOST_TRAININGS: Final = 1000
"""So many trainings of a script are counted apart. The steps of further ones count as those of one more."""


@dataclass(frozen=True, kw_only=True)
class StepsTrained:
    """The steps of a job, by its own events.

    Attributes:
        last_step: The highest count of completed steps, or None when the job reported none.
        redone_steps: Steps trained more than once.
        seconds_per_step: The mean over all steps with a known time, or None when there are none.
        loading_again_seconds: Seconds from the start of a process to its resumed step, for every start that repeats
            one.
    """

    last_step: int | None = None
    redone_steps: int = 0
    seconds_per_step: float | None = None
    loading_again_seconds: float = 0.0


def trained_before(earlier: Sequence[Attempt]) -> bool:
    """Return whether earlier attempts of a run had instances.

    The first start of the next attempt is then a repeated start.
    """
    return any(attempt.usage is not None and attempt.usage.training_seconds for attempt in earlier)


class StepCount:
    """Follows a job's steps through its events, which come in order of time."""

    def __init__(self, *, earlier: Sequence[Attempt] = ()) -> None:
        """Begin where the attempts before ended.

        Args:
            earlier: The run's earlier attempts.
        """
        reached = [attempt.usage.last_step for attempt in earlier if attempt.usage is not None]
        self._highest = max((step for step in reached if step is not None), default=None)
        self._starts = 1 if trained_before(earlier) else 0
        self._reported = False
        self._position: int | None = None
        self._position_at = 0.0
        self._started_at: float | None = None
        self._of_trainings: dict[str | None, int] = {}
        self._of_all = 0
        self._redone = 0
        self._timed_steps = 0
        self._timed_seconds = 0.0
        self._loading_again = 0.0

    def add(self, event: JobEvent) -> None:
        """Take the next event."""
        if event.kind is JobEventKind.START:
            self._starts += 1
            self._position, self._started_at = None, event.at
            self._of_trainings, self._of_all = {}, 0
        elif event.step is None:
            return
        elif event.kind is JobEventKind.RESUME:
            if self._starts > 1 and self._started_at is not None:
                self._loading_again += max(0.0, event.at - self._started_at)
            self._started_at = None
            self._reach(self._with_the_others(event, event.step), event.at)
        elif event.kind in REPORTS_A_STEP:
            self._report(self._with_the_others(event, event.step), event.at)

    def trained(self) -> StepsTrained:
        """Return the steps by the events so far."""
        return StepsTrained(
            last_step=self._highest if self._reported else None,
            redone_steps=min(self._redone, MOST - 1),
            seconds_per_step=self._timed_seconds / self._timed_steps if self._timed_steps else None,
            loading_again_seconds=self._loading_again,
        )

    def _with_the_others(self, event: JobEvent, step: int) -> int:
        """Return the sum of the steps of all trainings of this process."""
        training = event.fields.get("training")
        if training not in self._of_trainings and len(self._of_trainings) >= MOST_TRAININGS:
            training = None
        known = self._of_trainings.get(training, 0)
        # A save that took a while names a step before the last one reported.
        now = step if event.kind is JobEventKind.RESUME else max(step, known)
        self._of_trainings[training] = now
        self._of_all += now - known
        return min(self._of_all - now + step, MOST - 1)

    def _report(self, step: int, at: float) -> None:
        self._reported = True
        untimed = self._position is None
        # No word of where it resumed: it was just before the first step it reports.
        position = max(0, step - 1) if self._position is None else self._position
        if step <= position and not untimed:
            return
        if self._highest is not None:
            self._redone += max(0, min(step, self._highest) - position)
        if not untimed and at >= self._position_at:
            self._timed_steps += step - position
            self._timed_seconds += at - self._position_at
        self._reach(step, at)

    def _reach(self, step: int, at: float) -> None:
        self._reported = True
        self._position, self._position_at = step, at
        self._highest = step if self._highest is None else max(self._highest, step)


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
        training_since: The time since when it has had its present capacity.
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
