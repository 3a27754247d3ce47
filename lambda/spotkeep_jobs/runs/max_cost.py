"""The limit on the cost of a run (max_cost). Notifies when most of it is spent, and ends the job when all is. Pure.

The limit holds even without this module. SageMaker ends a job after its max_run, which is cut to the rest of the money.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.cost.run_cost import live_cost
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.on_the_way import max_cost_near_notification
from spotkeep_jobs.record.record import TimelineEntry
from spotkeep_jobs.record.states import EndReason, NotificationKind, TimelineKind
from spotkeep_jobs.runs.facts import Held, JobFacts, RunFacts
from spotkeep_jobs.with_changes import with_changes

NEAR: Final = 0.8
"""The part of max_cost that, once spent, causes a notification."""


def max_cost_near(facts: RunFacts, *, spent_usd: float | None, about: bool = False) -> Held:
    """Record that most of a run's max_cost is spent while it goes on, once for each max_cost.

    Args:
        facts: The known facts.
        spent_usd: The cost of the run so far, in US dollars, or None if it is not known.
        about: True if the cost includes an estimate for a live job without a known bill.

    Returns:
        The run, the new entry of its timeline, and a notification if the run asked for it.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    limit = None if facts.request is None else facts.request.max_cost
    if limit is None or spent_usd is None or run.max_cost_is_near or spent_usd < NEAR * limit:
        return Held(run=run, attempt=attempt)
    usd = f"{'About ' if about else ''}{spent_usd:.2f} USD"
    text = f"{usd} are spent, {spent_usd / limit:.0%} of max_cost ({limit:.2f} USD)"
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.MAX_COST, text=text)
    notifications = []
    if NotificationKind.MAX_COST_NEAR in run.notify:
        moment = Moment(
            run=run, attempt=attempt.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now
        )
        notifications.append(max_cost_near_notification(moment, spent_usd=spent_usd, about=about, max_cost_usd=limit))
    run = with_changes(run, max_cost_is_near=True)
    return Held(run=run, attempt=attempt, timeline=[entry], notifications=notifications)


def stays_near(limit: float | None, *, before: float | None, spent_usd: float) -> bool:
    """Return True if most of a max_cost is still spent after a resume, so that it is not notified again.

    Args:
        limit: The max_cost from now on, in US dollars, or None for no bound.
        before: The max_cost until now, in US dollars.
        spent_usd: The cost of the run so far, in US dollars.
    """
    return limit == before or (limit is not None and spent_usd >= NEAR * limit)


def hold_to_max_cost(facts: JobFacts) -> Held:
    """Compare a run's cost so far with its max_cost. Notify when it is near, and end the live job when it is spent.

    Args:
        facts: The known facts.
    """
    request, attempt, job, now = facts.request, facts.attempt, facts.job, facts.now
    if request is None or request.max_cost is None:
        return Held(run=facts.run, attempt=attempt)
    cost = live_cost(
        earlier=facts.earlier,
        attempt=attempt,
        job=job,
        prices=facts.deployment.prices,
        spot_usd_per_hour=None if facts.plan is None else facts.plan.spot_usd_per_hour,
        now=now,
    )
    if cost is None:
        return Held(run=facts.run, attempt=attempt)
    near = max_cost_near(facts, spent_usd=cost.usd, about=True)
    # So much may be spent before the job has to end: the warm pool that it may leave is paid, too. The last bit of a
    # product is not to cost five more minutes.
    last_usd = request.max_cost - request.keep_alive * cost.usd_per_second - 1e-6
    ends = attempt.asked_to_end or near.run.asked_to_end or job.phase is JobPhase.STOPPING
    # A job that uploads its model is over in a moment, and completes.
    if not ends and job.phase is not JobPhase.UPLOADING and cost.usd >= last_usd:
        text = f"max_cost ({request.max_cost:.2f} USD) is spent: its job is asked to end, and saves first"
        entry = TimelineEntry(run=near.run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.MAX_COST, text=text)
        ended = attempt.to_end(EndReason.MAX_COST, text=text, at=now)
        return replace(near, attempt=ended, timeline=[*near.timeline, entry])
    if attempt.asked_to_end is not None or not cost.bills or not cost.usd_per_second:
        return near  # Time does not spend it.
    marks = [last_usd, *([] if near.run.max_cost_is_near else [NEAR * request.max_cost])]
    seconds = [(mark - cost.usd) / cost.usd_per_second for mark in marks]
    due = [now + timedelta(seconds=each) for each in seconds if each > 0]
    return replace(near, due_again_at=min(due, default=None))
