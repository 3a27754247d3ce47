"""What a run may cost (max_cost): a notification when most of it is spent, and when its live job has to end. Pure.

The limit holds without this, too: SageMaker ends a job whose max_run was cut to what is left of the money.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.cost.run_cost import LiveCost
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.notifications.texts.spending import max_cost_near_notification
from spotkeep_jobs.record.record import Attempt, Notification, Run, TimelineEntry
from spotkeep_jobs.record.states import NotificationKind, TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView

NEAR: Final = 0.8
"""The part of max_cost whose spending is worth a notification."""


def max_cost_near(
    run: Run,
    *,
    request: JobRequest,
    attempt: int,
    spent_usd: float | None,
    deployment: str,
    now: datetime,
    about: bool = False,
) -> tuple[Run, list[TimelineEntry], list[Notification]]:
    """Record that most of a run's max_cost is spent while it goes on, once for each max_cost.

    Args:
        run: The run item.
        request: Its validated request.
        attempt: The attempt that spent it.
        spent_usd: What the run has cost; None where that is not known.
        deployment: The deployment's name.
        now: The time.
        about: Whether a live job is counted, whose bill is not known.

    Returns:
        The run, what to add to its timeline, and a notification if the run asked for it.
    """
    limit = request.max_cost
    if limit is None or spent_usd is None or run.max_cost_is_near or spent_usd < NEAR * limit:
        return run, [], []
    usd = f"{'About ' if about else ''}{spent_usd:.2f} USD"
    text = f"{usd} are spent, {spent_usd / limit:.0%} of max_cost ({limit:.2f} USD)"
    entry = TimelineEntry(run=run.run, attempt=attempt, at=now, kind=TimelineKind.MAX_COST, text=text)
    notifications = []
    if NotificationKind.MAX_COST_NEAR in run.notify:
        notifications.append(
            max_cost_near_notification(
                run=run,
                attempt=attempt,
                spent_usd=spent_usd,
                about=about,
                max_cost_usd=limit,
                deployment=deployment,
                now=now,
            )
        )
    return run.model_copy(update={"max_cost_is_near": True}), [entry], notifications


def stays_near(limit: float | None, *, before: float | None, spent_usd: float) -> bool:
    """Return whether most of a max_cost is still spent, and was notified, when a resume may have changed it.

    Args:
        limit: The max_cost from now on, in US dollars; None for no bound.
        before: The one until now.
        spent_usd: What is spent.
    """
    return limit == before or (limit is not None and spent_usd >= NEAR * limit)


def hold_to_max_cost(
    run: Run,
    *,
    request: JobRequest | None,
    attempt: Attempt,
    job: JobView,
    cost: LiveCost | None,
    deployment: str,
    now: datetime,
) -> tuple[Run, Attempt, list[TimelineEntry], list[Notification]]:
    """Hold what a run has cost so far against its max_cost: notify when it is near, end the live job when it is spent.

    Args:
        run: The run item.
        request: Its request.
        attempt: Its attempt.
        job: What its backend says of its job.
        cost: What the run has cost, its live job included; None where that is not known.
        deployment: The deployment's name.
        now: The time.
    """
    if request is None or request.max_cost is None or cost is None:
        return run, attempt, [], []
    run, entries, notifications = max_cost_near(
        run,
        request=request,
        attempt=attempt.attempt,
        spent_usd=cost.usd,
        deployment=deployment,
        now=now,
        about=True,
    )
    ends = attempt.fallback_left_at or run.stop_requested_at or job.phase is JobPhase.STOPPING
    # A job that uploads its model is over in a moment, and completes.
    if ends or job.phase is JobPhase.UPLOADING or cost.usd < _last_usd(request.max_cost, request, cost):
        return run, attempt, entries, notifications
    text = f"max_cost ({request.max_cost:.2f} USD) is spent: its job is asked to end, and saves first"
    entries.append(TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.MAX_COST, text=text))
    attempt = attempt.model_copy(update={"fallback_left_at": now, "max_cost_is_spent": True})
    return run, attempt, entries, notifications


def cost_due_again_at(
    run: Run, *, request: JobRequest | None, attempt: Attempt, cost: LiveCost | None, now: datetime
) -> datetime | None:
    """Compute when most of max_cost will be spent, or all of it; None where time does not spend it.

    Args:
        run: The run item.
        request: Its request.
        attempt: Its attempt: one whose job is asked to end has no time left to spend it.
        cost: What the run has cost; None where that is not known.
        now: The time.
    """
    if request is None or cost is None or attempt.fallback_left_at is not None:
        return None
    if request.max_cost is None or not cost.bills or not cost.usd_per_second:
        return None
    marks = [_last_usd(request.max_cost, request, cost), *([] if run.max_cost_is_near else [NEAR * request.max_cost])]
    seconds = [(mark - cost.usd) / cost.usd_per_second for mark in marks]
    return min((now + timedelta(seconds=each) for each in seconds if each > 0), default=None)


def _last_usd(max_cost: float, request: JobRequest, cost: LiveCost) -> float:
    """Return what may be spent before the job has to end, so that the warm pool that it may leave is paid, too."""
    # The last bit of a product is not to cost five more minutes.
    return max_cost - request.keep_alive * cost.usd_per_second - 1e-6
