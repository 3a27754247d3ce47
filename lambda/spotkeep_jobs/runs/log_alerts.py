"""Decides when the log of a live job must be read before a decision, and which alerts follow from it. Pure.

A log alerts a run's users for three reasons. It has no fresh checkpoint, the training stands still, or a part of the
log could not be read.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from spotkeep_jobs.backends.job_phases import has_trained, training_since
from spotkeep_jobs.backends.job_view import JobView
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.on_the_way import (
    log_refused_notification,
    stale_checkpoint_notification,
    stuck_notification,
)
from spotkeep_jobs.notifications.texts.wording import spoken_duration
from spotkeep_jobs.progress.checkpoint_alert import Freshness, freshness_of
from spotkeep_jobs.progress.job_log import Extent, Hang, JobLog
from spotkeep_jobs.record.record import Attempt, Hangs, StaleCheckpointNotice, TimelineEntry, in_utc_milliseconds
from spotkeep_jobs.record.states import NotificationKind, TimelineKind
from spotkeep_jobs.runs.facts import Held, JobFacts, RunFacts
from spotkeep_jobs.with_changes import with_changes

METRICS_READ_EVERY: Final = timedelta(minutes=10)
"""The time between two readings of a log for the metrics that a job file names. Each reading costs seven calls."""
HANGS_READ_EVERY: Final = timedelta(minutes=4)
"""The same for a training that may hang. A pass of the controller every five minutes is then always due."""
CHECKPOINTS_READ_EVERY: Final = timedelta(minutes=15)
"""The time between two readings of a log that has no fresh checkpoint."""


_NOT_ALL_READ: Final = {
    Extent.CUT: "the log of {job} is longer than what is read of one: 60 pages of event lines, for 20 seconds",
    Extent.PASSED_OVER: "the log of {job} is not read any more: function after function ended while it read it",
}


def asks_for_its_log(facts: RunFacts, job: JobView) -> bool:
    """Return whether the log of a live job has to be read before anything is decided about its run.

    A run with a deadline needs its progress. A checkpoint that seems stale may only be one with an unread log line.
    Metrics that the job file names are shown while it trains.

    Args:
        facts: The facts that are known without the log.
        job: The run's job, not ended.
    """
    if facts.run.deadline_at is not None:
        return has_trained(job)
    read_at = _read_at(facts, job)
    if read_at is not None and read_at <= facts.now:
        return True
    freshness = _checkpoint_freshness(facts, job)
    return freshness is not None and freshness.read_at <= facts.now


def hold_to_log(facts: JobFacts) -> Held:
    """Notify once of each checkpoint that is too old, and set the time of the next reading of the log.

    Args:
        facts: The known facts.
    """
    attempt, now = facts.attempt, facts.now
    freshness, read_at = _checkpoint_freshness(facts, facts.job), _read_at(facts, facts.job)
    notifications, due = [], []
    if freshness is not None:
        # What was read may be a part of the log, which proves nothing.
        if facts.log.complete and now >= freshness.stale_at and not _is_notified(attempt, freshness):
            nth = 1 if attempt.notified.stale_checkpoint is None else attempt.notified.stale_checkpoint.nth + 1
            notice = StaleCheckpointNotice(nth=nth, newest_at=_newest_at(attempt, freshness))
            attempt = with_changes(attempt, notified=with_changes(attempt.notified, stale_checkpoint=notice))
            moment = Moment(
                run=facts.run,
                attempt=attempt.attempt,
                deployment=facts.deployment.name,
                nth=nth,
                happened_at=now,
                created_at=now,
            )
            notifications.append(stale_checkpoint_notification(moment, freshness=freshness))
        # Read a moment ago, or notified: then the log is read for a new checkpoint now and then.
        now_and_then = _is_notified(attempt, freshness) or freshness.read_at <= now
        due.append(now + CHECKPOINTS_READ_EVERY if now_and_then else freshness.read_at)
    if read_at is not None and read_at <= now:
        attempt = with_changes(attempt, log_read_at=in_utc_milliseconds(now))
        read_at = _read_at(replace(facts, attempt=attempt), facts.job)
    if read_at is not None:
        due.append(read_at)
    return Held(run=facts.run, attempt=attempt, notifications=notifications, due_again_at=min(due, default=None))


def _read_at(facts: RunFacts, job: JobView) -> datetime | None:
    """Return the next time to read a live job's log for metrics, or for a training that hangs.

    None if the job file asks for neither, or the job does not train.
    """
    request, since = facts.request, training_since(job)
    # The metrics of a job without a command are in CloudWatch alone: no runner prints events.
    if request is None or request.command is None or since is None:
        return None
    last, due = max(since, facts.attempt.log_read_at or since), []
    if request.metrics:
        due.append(last + METRICS_READ_EVERY)
    if request.stuck is not None:
        due.append(max(last + HANGS_READ_EVERY, since + timedelta(seconds=request.stuck.after)))
    return min(due, default=None)


def _checkpoint_freshness(facts: RunFacts, job: JobView) -> Freshness | None:
    """Return the freshness of the newest checkpoint. None if that was not asked for, or no checkpoint is due."""
    run, request, since = facts.run, facts.request, training_since(job)
    if NotificationKind.CHECKPOINT_STALE not in run.notify or run.asked_to_end is not None:
        return None
    if request is None or not request.checkpoints or since is None:
        return None
    return freshness_of(run.progress, training_since=since, longest_age_seconds=request.checkpoint_stale)


def _is_notified(attempt: Attempt, freshness: Freshness) -> bool:
    notice = attempt.notified.stale_checkpoint
    return notice is not None and notice.newest_at == _newest_at(attempt, freshness)


def _newest_at(attempt: Attempt, freshness: Freshness) -> datetime:
    return in_utc_milliseconds(freshness.newest_at or attempt.created_at)


def hold_to_hangs(facts: JobFacts) -> Held:
    """Count each time that the training stood still, and notify once for each.

    Args:
        facts: The known facts.
    """
    run, attempt, log = facts.run, facts.attempt, facts.log
    if facts.request is None or facts.request.stuck is None:
        return Held(run=run, attempt=attempt)
    hangs, timeline, notifications = run.hangs, [], []
    for hang in log.hangs:
        at = _time_of(hang.at)
        if hangs.newest_at is not None and at <= hangs.newest_at:
            continue
        still_since = _time_of(max(0.0, hang.at - hang.silent_seconds))
        restarts = hangs.restarts + hang.starts_again
        hangs = Hangs(count=hangs.count + 1, restarts=restarts, newest_at=at, still_since=still_since)
        text = f"Stood still: no step and no line of output for {spoken_duration(hang.silent_seconds)}{_then(hang)}"
        timeline.append(TimelineEntry(run=run.run, attempt=attempt.attempt, at=at, kind=TimelineKind.STUCK, text=text))
        if NotificationKind.STUCK in run.notify:
            moment = Moment(
                run=run,
                attempt=attempt.attempt,
                deployment=facts.deployment.name,
                nth=hangs.count,
                happened_at=at,
                created_at=facts.now,
            )
            notifications.append(stuck_notification(moment, hang=hang))
    moved = log.moved_at is not None and hangs.newest_at is not None and _time_of(log.moved_at) >= hangs.newest_at
    if moved or facts.job.ended:
        hangs = with_changes(hangs, still_since=None)
    return Held(run=with_changes(run, hangs=hangs), attempt=attempt, timeline=timeline, notifications=notifications)


def _then(hang: Hang) -> str:
    if hang.restarts is None:
        return ""
    if hang.starts_again:
        return f"; its command starts again from its checkpoint, {hang.restarts + 1} of at most {hang.at_most} times"
    return f"; its command has started again {hang.restarts} times for that, so its job fails"


def _time_of(epoch_seconds: float) -> datetime:
    return in_utc_milliseconds(datetime.fromtimestamp(epoch_seconds, tz=UTC))


def hold_to_whole_log(facts: JobFacts) -> Held:
    """Notify once for each run that a part of its log was not read. The cause persists at later readings.

    Args:
        facts: The known facts.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    warning = None if run.log_warning is not None else _log_warning(facts.log, job_name=attempt.job_name)
    if warning is None:
        return Held(run=run, attempt=attempt)
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.LOG_REFUSED, text=warning)
    notifications = []
    if NotificationKind.LOG_REFUSED in run.notify:
        moment = Moment(
            run=run, attempt=attempt.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now
        )
        notifications.append(log_refused_notification(moment, warning=warning))
    run = with_changes(run, log_warning=warning)
    return Held(run=run, attempt=attempt, timeline=[entry], notifications=notifications)


def _log_warning(log: JobLog, *, job_name: str) -> str | None:
    """Return a sentence about the part of a job's log that was not read.

    None if all of it was read, or AWS gave no answer.

    Args:
        log: The result of reading the log.
        job_name: The job.
    """
    refused = ", ".join(f"{count:,} {what.value}" for what, count in log.refused.items())
    said = [
        *([f"event lines in the log of {job_name} were refused: {refused}"] if refused else []),
        *([_NOT_ALL_READ[log.extent].format(job=job_name)] if log.extent in _NOT_ALL_READ else []),
    ]
    return "; ".join(said) or None
