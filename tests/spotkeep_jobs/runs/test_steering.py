"""A run with a deadline is never late while on-demand exists, whatever capacity, the policy and the passes do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy
from spotkeep_jobs.document.request import JobRequest, validate
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.record import Plan, Progress
from spotkeep_jobs.runs.rules import JobFacts, RuleResult
from spotkeep_jobs.runs.steering import (
    DECISION_INTERVAL_SECONDS,
    HANDOVER_SECONDS,
    CapacityUse,
    choose,
    no_time_for_spot,
    on_demand_at_the_latest,
    steer,
)
from spotkeep_planner.steering import Choice

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DEFAULTS = DeploymentDefaults(image="image", instance_type="ml.g5.xlarge", checkpoint_bucket="b")
HOUR = 3_600


def asked(**fields: Any) -> JobRequest:
    document = {"name": "first", "command": "train", "max_run": "10h", "restart": "30m", "deadline": "20h"} | fields
    return validate(document, defaults=DEFAULTS).accepted()


def a_table(*, droughts_s: float, runs_s: float = -(10**9)) -> dict[str, Any]:
    rows = [[droughts_s]] * 2 + [[runs_s]] * 2
    return {
        "version": 1, "age_edges_s": [HOUR], "work_step_s": HOUR, "from_nothing_s": rows, "from_on_demand_s": rows,
        "zones": ["any"], "horizons_s": [HOUR], "lasting_s": [[[HOUR], [HOUR]]], "slack_step_s": HOUR,
        "restart_usd": [[0.0]],
    }  # fmt: skip


def a_plan(table: dict[str, Any]) -> Plan:
    finish: Any = {"p10": 1.0, "p50": 2.0, "p90": 3.0}
    return Plan(made_at=NOON, table=table, finish_seconds=finish, chance_of_on_demand=0.5)


def a_decision(
    using: Choice, *, hours: float, plan: Plan | None = None, progress: Progress | None = None,
    since_hours: float = 0.0, **fields: Any,
) -> tuple[str, str]:  # fmt: skip
    """The decision so many hours after the launch."""
    request = asked(**fields)
    now = NOON + timedelta(hours=hours)
    use = CapacityUse(using=using, since=now - timedelta(hours=since_hours), now=now)
    deadline_at: Any = request.deadline_at(NOON)
    decided = choose(request, deadline_at=deadline_at, plan=plan, progress=progress, use=use)
    return decided.choice, decided.reason


def half_done(*, durable: int = 50) -> Progress:
    return Progress(step=50, total_steps=100, durable_step=durable, reported_at=NOON, read_to=0.0)


GUARD_HOURS = 20 - 10 - (1_800 + HANDOVER_SECONDS + DECISION_INTERVAL_SECONDS) / HOUR
"""After so long without progress, waiting is not safe any more."""


def test_without_a_plan_it_waits_to_the_last_safe_moment() -> None:
    choice, reason = a_decision(Choice.WAIT, hours=GUARD_HOURS - 0.01)
    assert (choice, "launched without a plan" in reason) == ("wait", True)
    choice, reason = a_decision(Choice.WAIT, hours=GUARD_HOURS + 0.01)
    assert choice == "on-demand"
    assert reason == (
        "the last safe moment for on-demand: 44 min to spare; how far it is is not known: all 10h of work count as left"
    )


def test_a_policy_leaves_a_drought_long_before_the_guard_would() -> None:
    plan = a_plan(a_table(droughts_s=5 * HOUR))
    assert a_decision(Choice.WAIT, hours=4.9, plan=plan, progress=half_done())[0] == "wait"
    choice, reason = a_decision(Choice.WAIT, hours=11, plan=plan, progress=half_done())
    assert (choice, reason) == ("on-demand", "4.0 h to spare, and on-demand pays below 5.0 h")


def test_what_was_done_makes_time_to_wait() -> None:
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS + 0.1)[0] == "on-demand"
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS + 0.1, progress=half_done())[0] == "wait"
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS + 0.1, progress=half_done(durable=1))[0] == "wait"
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS + 0.2, progress=half_done(durable=1))[0] == "on-demand"


def test_spot_at_work_is_kept_as_long_as_losing_it_would_not_be_late() -> None:
    assert a_decision(Choice.SPOT, hours=GUARD_HOURS - 0.1)[0] == "spot"
    assert a_decision(Choice.SPOT, hours=GUARD_HOURS + 0.1)[0] == "on-demand"
    assert a_decision(Choice.SPOT, hours=GUARD_HOURS + 0.1, progress=half_done())[0] == "spot"


def test_when_on_demand_would_be_late_anyway_what_works_on_spot_is_kept() -> None:
    choice, reason = a_decision(Choice.SPOT, hours=14.9, progress=half_done())
    assert (choice, reason) == (
        "spot", "too late for on-demand to be done in time: what works on spot is done sooner",
    )  # fmt: skip
    assert a_decision(Choice.WAIT, hours=21, progress=half_done())[0] == "on-demand"


def test_on_demand_is_not_left() -> None:
    plan = a_plan(a_table(droughts_s=0))
    assert a_decision(Choice.ON_DEMAND, hours=1, plan=plan, progress=half_done())[0] == "on-demand"


@pytest.mark.parametrize("table", [{"version": 2}, a_table(droughts_s=0) | {"restart_usd": []}])
def test_a_policy_that_cannot_be_read_leaves_the_guard(table: dict[str, Any]) -> None:
    assert a_decision(Choice.WAIT, hours=1, plan=a_plan(table))[0] == "wait"
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS + 0.1, plan=a_plan(table))[0] == "on-demand"


def test_work_longer_than_a_job_counts_a_start_for_each() -> None:
    """Ten hours in jobs of four: two more starts of half an hour on demand."""
    fields = {"max_run": "4h", "max_total_run": "10h"}
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS - 1.1, **fields)[0] == "wait"
    assert a_decision(Choice.WAIT, hours=GUARD_HOURS - 0.9, **fields)[0] == "on-demand"


def test_a_run_without_a_deadline_is_not_steered(make: Any) -> None:
    request = asked(deadline=None)
    run, attempt = make.run(request=request.as_document()), make.attempt()
    facts = JobFacts(
        run=run, request=request, attempt=attempt, deployment=DeploymentPolicy(name="spotkeep", prices={}), now=NOON,
        job=make.job(("Starting", 0.0)), log=JobLog(),
    )  # fmt: skip
    assert steer(facts) == RuleResult(run=run, attempt=attempt)
    assert no_time_for_spot(request, deadline_at=None, now=NOON) is None
    assert no_time_for_spot(asked(), deadline_at=asked().deadline_at(NOON), now=NOON) is None


def test_the_latest_moment_is_the_one_at_which_the_guard_decides() -> None:
    request = asked()
    at = on_demand_at_the_latest(request, deadline_at=NOON + timedelta(hours=20), now=NOON)
    assert at == NOON + timedelta(hours=GUARD_HOURS)


class Adversary:
    """A run, its capacity, its passes and its uploads, each as bad as it may be."""

    def __init__(self, *, work: float, restart: float, spare: float) -> None:
        self.total = 1_000
        self.pace = work / self.total
        self.done = self.durable = 0.0
        self.restart = restart
        self.deadline = work + restart + HANDOVER_SECONDS + DECISION_INTERVAL_SECONDS + spare
        self.now = 0.0

    def progress(self) -> Progress:
        step, durable = int(self.done / self.pace), int(self.durable / self.pace)
        return Progress(
            step=step, total_steps=self.total, durable_step=min(step, durable), reported_at=NOON, read_to=0.0
        )


@pytest.mark.long
@given(
    work=st.integers(600, 40 * HOUR),
    restart=st.integers(1, 2 * HOUR),
    spare=st.integers(0, 20 * HOUR),
    droughts_s=st.sampled_from([-(10**9), 0, HOUR, 10**9]),
    planned=st.booleans(),
    reports=st.booleans(),
    fate=st.lists(
        st.tuples(
            st.floats(1, DECISION_INTERVAL_SECONDS),  # until the next pass
            st.booleans(),  # whether spot has capacity
            st.floats(0, 1),  # how much of the interval it lasts
            st.booleans(),  # whether what is done becomes durable
            st.floats(0, 1),  # how long the handover takes, of what it may
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_no_adversary_makes_a_steered_run_late(
    work: int, restart: int, spare: int, droughts_s: float, planned: bool, reports: bool, fate: Any
) -> None:
    world = Adversary(work=work, restart=restart, spare=spare)
    request = asked(max_run="28d", work=work, restart=restart, deadline=int(world.deadline) + 1)
    deadline_at: Any = request.deadline_at(NOON)
    plan = a_plan(a_table(droughts_s=droughts_s)) if planned else None
    using, since, start_left, tick = Choice.WAIT, 0.0, 0.0, 0
    while True:
        interval, there, lasts, durable, handover = fate[tick % len(fate)]
        tick += 1
        progress = world.progress() if reports else None
        use = CapacityUse(using=using, since=NOON + timedelta(seconds=since), now=NOON + timedelta(seconds=world.now))
        decided = choose(request, deadline_at=deadline_at, plan=plan, progress=progress, use=use)
        if decided.choice == "on-demand":
            # What spot has not made durable is lost, at worst; the job before is over first.
            end = world.now + handover * HANDOVER_SECONDS + restart + (work - world.durable)
            assert end <= world.deadline + 1
            return
        if using is Choice.WAIT and there:
            using, since, start_left = Choice.SPOT, world.now, float(restart)
        if using is Choice.SPOT:
            worked = max(0.0, interval * lasts - start_left)
            start_left = max(0.0, start_left - interval * lasts)
            if world.done + worked >= work:
                assert world.now + interval <= world.deadline + 1
                return
            world.done += worked
            if durable:
                world.durable = world.done
            if lasts < 1:
                using, since, world.done = Choice.WAIT, world.now + interval * lasts, world.durable
        world.now += interval
        if tick > 2_000:
            return  # Passes a second apart for days: nothing new is to be learnt.
