"""The choice for a run with a deadline to stay on spot, wait for spot capacity, or go on demand. Pure.

If the run has a solved policy (`Plan.table`), the policy decides. The guard checks that the decision is safe, and
decides alone if there is no policy. Both are in `spotkeep_planner.steering`. This module gives them the run's present
state. Managed spot training finds capacity by itself and in every zone at once, and so does a fleet. So the policy sees
only one source, which is available or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.backends.backend import JobPhase, on_instances_since, waiting_since
from spotkeep_jobs.document.capacity import BETWEEN_PASSES_SECONDS, fallbacks_of, on_demand_below
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.progress.progress import WorkLeft, work_left
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Plan, Progress, Steered, TimelineEntry
from spotkeep_jobs.record.states import EndReason, TimelineKind
from spotkeep_jobs.runs.rules import JobFacts, RuleResult
from spotkeep_planner.errors import DecisionTableError
from spotkeep_planner.steering import (
    Choice,
    DeadlineClock,
    DecisionTable,
    ZoneView,
    is_safe,
    last_safe_wait_s,
    spoken_time,
)

DECISION_INTERVAL_SECONDS: Final = 2 * BETWEEN_PASSES_SECONDS
"""One pass of the controller may be late, or lost."""
HANDOVER_SECONDS: Final = 300
"""The time between two jobs of a run, because the first one must be over before the next begins (I1).

SageMaker gives the first job 120 s to stop, and time for its uploads. A lost event costs one pass of the controller.
"""
FLEET_HANDOVER_SECONDS: Final = 3 * BETWEEN_PASSES_SECONDS
"""The same between two fleets.

An instance has five minutes to save and leave. The pass after that terminates it. The next one begins the next fleet.
"""

_STEERED_TEXT: Final = {
    Choice.WAIT: "Waits for spot",
    Choice.SPOT: "Stays on spot",
    Choice.ON_DEMAND: "Stays on demand",
}


@dataclass(frozen=True, kw_only=True)
class CapacityUse:
    """The present state of a run with a deadline.

    Attributes:
        using: The capacity that the run uses, or its wait for capacity.
        since: The time since when the run has had capacity, or has waited for it.
        now: The time.
    """

    using: Choice
    since: datetime
    now: datetime


def steer(facts: JobFacts) -> RuleResult:
    """Apply the present decision of the run's policy and its guard. Only a new decision gets an entry of the timeline.

    Args:
        facts: The known facts, with a live job that is asked to end if the run leaves spot.
    """
    run, request, attempt, now = facts.run, facts.request, facts.attempt, facts.now
    as_it_is = RuleResult(run=run, attempt=attempt)
    if run.deadline_at is None or request is None:
        return as_it_is
    use = _use(facts)
    if attempt.asked_to_end or run.asked_to_end or use is None:
        return as_it_is
    decided = choose(request, deadline_at=run.deadline_at, plan=facts.plan, progress=run.progress, use=use)
    text = f"{_STEERED_TEXT[Choice(decided.choice)]}: {decided.reason}"
    if decided.choice == Choice.ON_DEMAND.value and attempt.place.capacity == "spot":
        if on_demand_below(fallbacks_of(request), attempt.fallback) is None:
            return as_it_is
        attempt = attempt.to_end(EndReason.DEADLINE, text=decided.reason, at=now)
        text = f"Leaves spot for on-demand: {decided.reason}"
    elif run.steered is not None and run.steered.choice == decided.choice:
        return as_it_is
    entry = steered_entry(run=run.run, attempt=attempt.attempt, text=text, at=now)
    return RuleResult(run=with_changes(run, steered=decided), attempt=attempt, timeline=[entry])


def steered_entry(*, run: str, attempt: int, text: str, at: datetime) -> TimelineEntry:
    """Return an entry of the timeline about the policy's decision."""
    return TimelineEntry(run=run, attempt=attempt, at=at, kind=TimelineKind.STEERED, text=text)


def _use(facts: JobFacts) -> CapacityUse | None:
    """Return the present state of the run. None if its job stops, or if its backend does not say if it has capacity."""
    job, now = facts.job, facts.now
    if job.phase is JobPhase.STOPPING:
        return None
    if facts.attempt.place.capacity == "on-demand":
        return CapacityUse(using=Choice.ON_DEMAND, since=job.created_at, now=now)
    waiting = waiting_since(job)
    if waiting is not None:
        return CapacityUse(using=Choice.WAIT, since=waiting, now=now)
    since = on_instances_since(job, now=now)
    return None if since is None else CapacityUse(using=Choice.SPOT, since=since, now=now)


def choose(
    request: JobRequest,
    *,
    deadline_at: datetime,
    plan: Plan | None,
    progress: Progress | None,
    use: CapacityUse,
) -> Steered:
    """Choose the capacity of a run with a deadline until the next decision, and give the reason.

    Args:
        request: Its validated request.
        deadline_at: The time of its deadline.
        plan: The policy it was launched with, or None if it was launched without one.
        progress: The progress that its jobs have logged.
        use: Its present state.
    """
    left = work_left(progress, work_seconds=request.work_seconds)
    clock = _clock(deadline_at, request, left=left, use=use)
    choice, reason = _chosen(plan, clock, use)
    unknown = f"how far it is is not known: all {format_duration(request.work_seconds)} of work count as left"
    if not left.known and choice is not Choice.SPOT:
        reason = f"{reason}; {unknown}"
    return Steered(choice=choice.value, reason=reason, decided_at=use.now)


def no_time_for_spot(request: JobRequest, *, deadline_at: datetime | None, now: datetime) -> str | None:
    """Return the reason why a launch (or a resume) goes on demand at once. None if spot can be tried.

    Args:
        request: The validated request.
        deadline_at: The time of its deadline, if it has one.
        now: The time of the launch.
    """
    if deadline_at is None or request.capacity == "on-demand":
        return None
    left = WorkLeft(seconds=request.work_seconds, if_lost_seconds=request.work_seconds, known=False)
    clock = _clock(deadline_at, request, left=left, use=CapacityUse(using=Choice.WAIT, since=now, now=now))
    if is_safe(Choice.WAIT, using=Choice.WAIT, clock=clock):
        return None
    return f"the deadline leaves no time to try spot: {_spare(clock)} to spare"


def on_demand_at_the_latest(
    request: JobRequest, *, deadline_at: datetime, now: datetime, progress: Progress | None = None
) -> datetime:
    """Return the time when the guard would send a run on demand if it made no progress until then. Never before now.

    Args:
        request: Its validated request.
        deadline_at: The time of its deadline.
        now: The time.
        progress: The progress that its jobs have logged.
    """
    left = work_left(progress, work_seconds=request.work_seconds)
    clock = _clock(deadline_at, request, left=left, use=CapacityUse(using=Choice.WAIT, since=now, now=now))
    return now + timedelta(seconds=max(0.0, last_safe_wait_s(clock) - clock.decision_interval_s))


def _clock(deadline_at: datetime, request: JobRequest, *, left: WorkLeft, use: CapacityUse) -> DeadlineClock:
    restart_s = float(request.restart_seconds)
    lasted_s = (use.now - use.since).total_seconds()
    # Without capacity what was not durable is lost.
    left_seconds = left.if_lost_seconds if use.using is Choice.WAIT else left.seconds
    # On demand a job that reaches max_run is followed by another, which starts anew.
    cuts = max(0, -(-int(left.if_lost_seconds) // request.max_run) - 1)
    return DeadlineClock(
        time_left_s=(deadline_at - use.now).total_seconds(),
        work_left_s=left_seconds + cuts * restart_s,
        work_left_if_lost_s=left.if_lost_seconds + cuts * restart_s,
        restart_s=restart_s + (FLEET_HANDOVER_SECONDS if request.backend == "ec2" else HANDOVER_SECONDS),
        restart_left_s=0.0 if use.using is Choice.WAIT or left.known else max(0.0, restart_s - lasted_s),
        decision_interval_s=float(DECISION_INTERVAL_SECONDS),
    )


def _chosen(plan: Plan | None, clock: DeadlineClock, use: CapacityUse) -> tuple[Choice, str]:
    using = use.using
    if using is Choice.ON_DEMAND:
        # Managed spot cannot be asked whether it has capacity without giving up what there is.
        return using, f"on demand until the work is done, {_spare(clock)} to spare"
    if using is Choice.SPOT and clock.time_left_s < clock.restart_s + clock.work_left_s:
        return using, "too late for on-demand to be done in time: what works on spot is done sooner"
    table = None if plan is None else _table_of(plan)
    if table is None:
        if is_safe(using, using=using, clock=clock):
            return using, f"{_spare(clock)} to spare; launched without a plan: on-demand at the last safe moment"
        return Choice.ON_DEMAND, f"the last safe moment for on-demand: {_spare(clock)} to spare"
    age_s = max(0.0, (use.now - use.since).total_seconds())
    there = using is Choice.SPOT
    decision = table.decide(
        clock,
        using=using,
        using_zone=0 if there else None,
        zones=[ZoneView(available=there, age_s=age_s, spot_price=0.0)],
        any_age_s=age_s,
    )
    return decision.choice, decision.reason


def _table_of(plan: Plan) -> DecisionTable | None:
    try:
        table = DecisionTable.from_document(plan.table)
    except DecisionTableError:
        return None  # Of another version: the guard needs none.
    return table if len(table.zones) == 1 else None


def _spare(clock: DeadlineClock) -> str:
    return spoken_time(max(0.0, clock.time_left_s - clock.work_left_s))
