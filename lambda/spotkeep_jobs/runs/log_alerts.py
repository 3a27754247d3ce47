"""What a live job's log is read for before a decision, and which alerts follow from it. Pure.

Two things in a log alert a run's users: that no fresh checkpoint is in it, and that not all of it could be taken.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_phases import training_since
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.notifications.texts.on_the_way import log_refused_notification, stale_checkpoint_notification
from spotkeep_jobs.progress.checkpoint_alert import Freshness, freshness_of
from spotkeep_jobs.progress.job_log import Extent, JobLog
from spotkeep_jobs.record.record import Attempt, Notification, Run, TimelineEntry, in_utc_milliseconds
from spotkeep_jobs.record.states import NotificationKind, TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.document.request import JobRequest

METRICS_READ_EVERY: Final = timedelta(minutes=10)
"""How often the log of a run is read that names metrics: seven calls each time."""
CHECKPOINTS_READ_EVERY: Final = timedelta(minutes=15)
"""How often a log is read that says of no checkpoint, or of none that is fresh."""


_NOT_ALL_READ: Final = {
    Extent.CUT: "the log of {job} is longer than what is read of one: 60 pages of event lines, for 20 seconds",
    Extent.PASSED_OVER: "the log of {job} is not read any more: function after function ended while it read it",
}


def asks_for_its_log(run: Run, *, request: JobRequest | None, attempt: Attempt, job: JobView, now: datetime) -> bool:
    """Return whether the log of a live job has to be read before anything is decided about its run.

    A deadline asks how far it is; a checkpoint that seems stale may only be one whose line was not read yet; metrics
    that the job file names are shown while it trains.

    Args:
        run: The run item.
        request: Its request.
        attempt: Its attempt.
        job: Its job, not ended.
        now: The time of the decision.
    """
    if run.deadline_at is not None:
        return any(entry.phase is JobPhase.TRAINING for entry in job.transitions)
    metrics_due_at = metrics_read_at(attempt, request=request, job=job)
    if metrics_due_at is not None and metrics_due_at <= now:
        return True
    freshness = checkpoint_freshness(run, request=request, job=job)
    return freshness is not None and freshness.read_at <= now


def metrics_read_at(attempt: Attempt, *, request: JobRequest | None, job: JobView) -> datetime | None:
    """Return when a live job's log is to be read for its metrics; None where the job file names none, or none trains.

    Args:
        attempt: The attempt.
        request: The run's request.
        job: Its job, not ended.
    """
    since = training_since(job)
    # The metrics of a job without a command are in CloudWatch alone: no runner prints events.
    if request is None or request.command is None or not request.metrics or since is None:
        return None
    return max(since, attempt.log_read_at or since) + METRICS_READ_EVERY


def checkpoint_freshness(run: Run, *, request: JobRequest | None, job: JobView) -> Freshness | None:
    """Return how fresh the newest checkpoint is; None where that was not asked for, or none is due."""
    if NotificationKind.CHECKPOINT_STALE not in run.notify or run.stop_requested_at is not None:
        return None
    if request is None or not request.checkpoints:
        return None
    since = training_since(job)
    if since is None:
        return None
    return freshness_of(run.progress, training_since=since, longest_age_seconds=request.checkpoint_stale)


def stale_checkpoint(
    run: Run, *, attempt: Attempt, freshness: Freshness | None, log: JobLog, deployment: str, now: datetime
) -> tuple[Attempt, list[Notification]]:
    """Notify of a checkpoint that is too old, once for each checkpoint.

    Args:
        run: The run item.
        attempt: Its attempt.
        freshness: How old its newest checkpoint is; None where that was not asked for.
        log: What was read of its job's log: a part of it proves nothing.
        deployment: The deployment's name.
        now: The time.
    """
    if freshness is None or not log.complete or now < freshness.stale_at:
        return attempt, []
    if _is_notified(attempt, freshness):
        return attempt, []
    attempt = attempt.model_copy(
        update={"stale_notified": attempt.stale_notified + 1, "stale_notified_of": _newest_at(attempt, freshness)}
    )
    notification = stale_checkpoint_notification(
        run=run,
        attempt=attempt,
        freshness=freshness,
        nth=attempt.stale_notified,
        deployment=deployment,
        now=now,
    )
    return attempt, [notification]


def log_due_again_at(attempt: Attempt, *, freshness: Freshness | None, now: datetime) -> datetime | None:
    """Return when the log has to be read for a new checkpoint; None where it was not asked how fresh that is."""
    if freshness is None:
        return None
    # Read a moment ago, or notified: then the log is read for a new checkpoint now and then.
    now_and_then = _is_notified(attempt, freshness) or freshness.read_at <= now
    return now + CHECKPOINTS_READ_EVERY if now_and_then else freshness.read_at


def _is_notified(attempt: Attempt, freshness: Freshness) -> bool:
    return attempt.stale_notified_of == _newest_at(attempt, freshness)


def _newest_at(attempt: Attempt, freshness: Freshness) -> datetime:
    return in_utc_milliseconds(freshness.newest_at or attempt.created_at)


def log_not_taken(
    run: Run, *, attempt: Attempt, log: JobLog, deployment: str, now: datetime
) -> tuple[Run, list[TimelineEntry], list[Notification]]:
    """Notify, once for each run, of what of the log was not taken: what makes it so goes on doing it.

    Args:
        run: The run item.
        attempt: Its attempt.
        log: What was read of its job's log.
        deployment: The deployment's name.
        now: The time.
    """
    warning = None if run.log_warning is not None else _log_warning(log, job_name=attempt.job_name)
    if warning is None:
        return run, [], []
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.LOG_REFUSED, text=warning)
    notifications = []
    if NotificationKind.LOG_REFUSED in run.notify:
        notifications.append(
            log_refused_notification(run=run, attempt=attempt, warning=warning, deployment=deployment, now=now)
        )
    return run.model_copy(update={"log_warning": warning}), [entry], notifications


def _log_warning(log: JobLog, *, job_name: str) -> str | None:
    """Return what of a job's log was not taken, in a person's words; None where everything was, or AWS did not answer.

    Args:
        log: What was read of it.
        job_name: The job.
    """
    refused = ", ".join(f"{count:,} {what.value}" for what, count in log.refused.items())
    said = [
        *([f"event lines in the log of {job_name} were refused: {refused}"] if refused else []),
        *([_NOT_ALL_READ[log.extent].format(job=job_name)] if log.extent in _NOT_ALL_READ else []),
    ]
    return "; ".join(said) or None
