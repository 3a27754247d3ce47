"""How long a job may wait for capacity: until its users are notified, and until its fallback is left. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotkeep_jobs.backends.job_phases import waiting_since
from spotkeep_jobs.document.deployment_policy import DeploymentPolicy
from spotkeep_jobs.document.fallbacks import Fallback, fallbacks_of
from spotkeep_jobs.notifications.texts.on_the_way import long_quota_wait_notification, long_wait_notification
from spotkeep_jobs.record.record import Attempt, Notification, Run, TimelineEntry
from spotkeep_jobs.record.states import NotificationKind, TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.document.request import JobRequest


def hold_to_waits(
    run: Run,
    *,
    request: JobRequest | None,
    attempt: Attempt,
    job: JobView,
    deployment: DeploymentPolicy,
    now: datetime,
) -> tuple[Attempt, list[TimelineEntry], list[Notification]]:
    """Hold a live job's wait against how long it may be: leave its fallback, or notify the users, once for each wait.

    No wait is too long for a run that a user stops.

    Args:
        run: The run item.
        request: Its request.
        attempt: Its attempt.
        job: What its backend says of its job.
        deployment: Which wait is long, where the request does not say.
        now: The time.
    """
    since = waiting_since(job)
    if since is None or run.stop_requested_at is not None:
        return attempt, [], []
    fallback = _fallback(request, attempt)
    longest = _longest_wait(fallback, attempt)
    if longest is not None and now - since >= longest:
        text = f"Has waited long enough for {fallback}: its job is asked to end"
        entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
        return attempt.model_copy(update={"fallback_left_at": now}), [entry], []
    if not _notifies(run, attempt) or now - since < _long_wait(request, deployment):
        return attempt, [], []
    notification = long_wait_notification(
        run=run,
        attempt=attempt,
        deployment=deployment.name,
        nth=attempt.interruptions,
        waited_seconds=(now - since).total_seconds(),
        because=job.waits_because,
        happened_at=now,
    )
    return attempt.model_copy(update={"long_wait_notified": attempt.interruptions}), [], [notification]


def long_wait_without_a_job(
    run: Run, *, request: JobRequest | None, attempt: Attempt, deployment: DeploymentPolicy, now: datetime
) -> tuple[Attempt, list[Notification]]:
    """Notify the users, once, that a run waits long before its job can be created: for quota, or for capacity.

    Args:
        run: The run item.
        request: Its request.
        attempt: Its attempt.
        deployment: Which wait is long, where the request does not say.
        now: The time.
    """
    since = attempt.no_capacity_since if run.quota_wait is None else run.quota_wait.since
    if since is None or run.stop_requested_at is not None or not _notifies(run, attempt):
        return attempt, []
    if now - since < _long_wait(request, deployment):
        return attempt, []
    if run.quota_wait is None:
        notification = long_wait_notification(
            run=run,
            attempt=attempt,
            deployment=deployment.name,
            nth=attempt.interruptions,
            waited_seconds=(now - since).total_seconds(),
            because=None,
            happened_at=now,
        )
    else:
        notification = long_quota_wait_notification(
            run=run, attempt=attempt, deployment=deployment.name, happened_at=now
        )
    return attempt.model_copy(update={"long_wait_notified": attempt.interruptions}), [notification]


def wait_due_again_at(
    run: Run, *, request: JobRequest | None, attempt: Attempt, job: JobView, deployment: DeploymentPolicy
) -> datetime | None:
    """Return when a live job's wait gets too long for its users or for its fallback; None where it has no such end.

    Args:
        run: The run item.
        request: Its request.
        attempt: Its attempt.
        job: What its backend says of its job.
        deployment: Which wait is long, where the request does not say.
    """
    since = waiting_since(job)
    if since is None:
        return None
    longest = _longest_wait(_fallback(request, attempt), attempt)
    waits = [
        *([_long_wait(request, deployment)] if _notifies(run, attempt) else []),
        *([] if longest is None else [longest]),
    ]
    return min((since + wait for wait in waits), default=None)


def _fallback(request: JobRequest | None, attempt: Attempt) -> Fallback | None:
    fallbacks = () if request is None else fallbacks_of(request)
    return fallbacks[attempt.fallback] if attempt.fallback < len(fallbacks) else None


def _longest_wait(fallback: Fallback | None, attempt: Attempt) -> timedelta | None:
    """Return how long the fallback may be waited for; None where it has no limit, or is left already."""
    if fallback is None or fallback.longest_wait_seconds is None or attempt.fallback_left_at is not None:
        return None
    return timedelta(seconds=fallback.longest_wait_seconds)


def _notifies(run: Run, attempt: Attempt) -> bool:
    """Return whether the users asked to be notified of a long wait, and were not of this one."""
    return NotificationKind.WAITING_TOO_LONG in run.notify and attempt.long_wait_notified != attempt.interruptions


def _long_wait(request: JobRequest | None, deployment: DeploymentPolicy) -> timedelta:
    """Return a wait that is worth a notification."""
    if request is None or request.waiting_too_long is None:
        return deployment.long_wait
    return timedelta(seconds=request.waiting_too_long)
