"""The longest waits of a job for capacity. After one the users are notified, and after another the fallback changes.

Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from spotkeep_jobs.backends.job_phases import time_in, waiting_since
from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, JobPhase
from spotkeep_jobs.document.capacity import Fallback, fallbacks_of
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.on_the_way import (
    long_quota_wait_notification,
    long_wait_notification,
    queue_blocked_notification,
)
from spotkeep_jobs.record.record import TimelineEntry
from spotkeep_jobs.record.states import EndReason, NotificationKind, TimelineKind
from spotkeep_jobs.runs.facts import Held, JobFacts, RunFacts
from spotkeep_jobs.with_changes import with_changes


def hold_to_waits(facts: JobFacts) -> Held:
    """Compare a live job's wait with its limits. Leave its fallback, or notify the users once for each wait.

    No limit applies to a run that a user stops.

    Args:
        facts: The known facts. The deployment's limit applies if the request has none.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    since = waiting_since(facts.job)
    if since is None:
        return Held(run=run, attempt=attempt)
    fallback = _fallback(facts)
    longest = None if fallback is None or attempt.asked_to_end is not None else fallback.longest_wait_seconds
    leaves_at = None if longest is None else since + timedelta(seconds=longest)
    notifies_at = since + _long_wait(facts) if _notifies(facts) else None
    stops = run.asked_to_end is not None
    if leaves_at is not None and now >= leaves_at and not stops:
        text = f"Has waited long enough for {fallback}: its job is asked to end"
        entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
        left = attempt.to_end(EndReason.MAX_WAIT_EXCEEDED, text=text, at=now)
        return Held(run=run, attempt=left, timeline=[entry], due_again_at=notifies_at)
    if notifies_at is not None and now >= notifies_at and not stops:
        return _notified(facts, since=since, because=facts.job.waits_because, due_again_at=leaves_at)
    due = [at for at in (notifies_at, leaves_at) if at is not None]
    return Held(run=run, attempt=attempt, due_again_at=min(due, default=None))


def hold_to_waits_without_a_job(facts: RunFacts) -> Held:
    """Notify the users once that a run waits long for quota or capacity, before its job can be created.

    Args:
        facts: The known facts.
    """
    run = facts.run
    retry = facts.attempt.retry
    since = None if retry is None else retry.no_capacity_since
    if run.quota_wait is not None:
        since = run.quota_wait.since
    waits = since is not None and run.asked_to_end is None and _notifies(facts)
    if since is None or not waits or facts.now - since < _long_wait(facts):
        return Held(run=run, attempt=facts.attempt)
    return _notified(facts, since=since, because=None)


def hold_to_queue(facts: JobFacts) -> Held:
    """Notify the users, once an attempt, that AWS Batch can never give its job a turn, and that others wait behind it.

    Args:
        facts: The known facts.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    stops = run.asked_to_end is not None
    if not facts.job.never_fits or attempt.place.queue is None or attempt.notified.queue_blocked or stops:
        return Held(run=run, attempt=attempt)
    because = facts.job.waits_because or ""
    text = f"Can never have its turn: {because}"
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.QUEUE_BLOCKED, text=text)
    moment = Moment(run=run, attempt=attempt.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now)
    asked = NotificationKind.QUEUE_BLOCKED in run.notify
    return Held(
        run=run,
        attempt=with_changes(attempt, notified=with_changes(attempt.notified, queue_blocked=True)),
        timeline=[entry],
        notifications=[queue_blocked_notification(moment, because=because)] if asked else [],
    )


def _notified(facts: RunFacts, *, since: datetime, because: str | None, due_again_at: datetime | None = None) -> Held:
    attempt = facts.attempt
    moment = Moment(
        run=facts.run,
        attempt=attempt.attempt,
        deployment=facts.deployment.name,
        nth=attempt.interruptions,
        happened_at=facts.now,
        created_at=facts.now,
    )
    waited_seconds = (facts.now - since).total_seconds()
    if facts.run.quota_wait is None:
        notification = long_wait_notification(moment, waited_seconds=waited_seconds, because=because)
    else:
        reason = facts.run.quota_wait.reason
        notification = long_quota_wait_notification(moment, waited_seconds=waited_seconds, reason=reason)
    return Held(
        run=facts.run,
        attempt=with_changes(attempt, notified=with_changes(attempt.notified, long_wait=attempt.interruptions)),
        notifications=[notification],
        due_again_at=due_again_at,
    )


def _fallback(facts: RunFacts) -> Fallback | None:
    fallbacks = () if facts.request is None else fallbacks_of(facts.request)
    return fallbacks[facts.attempt.fallback] if facts.attempt.fallback < len(fallbacks) else None


def _notifies(facts: RunFacts) -> bool:
    """Return True if the users asked for a notification of a long wait, and have not got one for this wait."""
    asked = NotificationKind.WAITING_TOO_LONG in facts.run.notify
    return asked and facts.attempt.notified.long_wait != facts.attempt.interruptions


def _long_wait(facts: RunFacts) -> timedelta:
    """Return a wait that is worth a notification."""
    if facts.request is None or facts.request.waiting_too_long is None:
        return facts.deployment.long_wait
    return timedelta(seconds=facts.request.waiting_too_long)


def hold_to_max_run(facts: JobFacts) -> Held:
    """End a live job that has trained for as long as it may, over all its training jobs.

    Args:
        facts: The known facts.
    """
    run, attempt, job, now = facts.run, facts.attempt, facts.job, facts.now
    if len(job.training_jobs.listed) <= 1 or attempt.job_request is None or attempt.asked_to_end is not None:
        return Held(run=run, attempt=attempt)
    max_run = int(attempt.job_request["StoppingCondition"]["MaxRuntimeInSeconds"])
    left = timedelta(seconds=max_run) - time_in(job, ON_INSTANCES_PHASES, until=now)
    ends = run.asked_to_end or job.phase in {JobPhase.STOPPING, JobPhase.UPLOADING}
    if left <= timedelta(0) and not ends:
        text = f"Has trained the {format_duration(max_run)} that it may: its job is asked to end"
        entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
        attempt = attempt.to_end(EndReason.MAX_RUNTIME_EXCEEDED, text=text, at=now)
        return Held(run=run, attempt=attempt, timeline=[entry])
    due_again_at = now + max(left, timedelta(0)) if job.phase in ON_INSTANCES_PHASES else None
    return Held(run=run, attempt=attempt, due_again_at=due_again_at)
