"""A plan says what it rests on, refuses what cannot be, and is the same for the same seed."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from benchmarks.policy.measures import goodput_in_hindsight
from spotkeep_planner.capacity_model import BANDS, Spells, watch
from spotkeep_planner.errors import PlanError
from spotkeep_planner.interruption_bands import SHARE_RECLAIMED, prior_from_band
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.planning import (
    INTERVALS_S,
    PRIOR_WORTH_ENDINGS,
    CapacityPlan,
    Knowledge,
    advise_interval,
    expected_goodput,
    knowledge_from_traces,
    knowledge_without_history,
    make_plan,
)
from spotkeep_planner.policies import Greedy
from spotkeep_planner.replay import Past, Windows, replay
from tests.models.capacity_traces import capacity_with_known_law, trace_of

HOUR_S = 3600.0
JOB = PlannedJob(work_s=12 * HOUR_S, deadline_s=18 * HOUR_S)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    zones = [
        capacity_with_known_law(ticks=3000, tick_s=600.0, run_h=run_h, drought_h=2, seed=4, zone=zone, price=price)
        for zone, run_h, price in (("near", 3, 1.2), ("far", 12, 0.9))
    ]
    return knowledge_from_traces(zones, on_demand_price=3.0)


@pytest.fixture(scope="module")
def plan(knowledge: Knowledge) -> CapacityPlan:
    return make_plan(JOB, knowledge, compare=True, save_cost_s=30.0)


def test_every_policy_is_set_beside_ours(plan: CapacityPlan) -> None:
    assert [each.policy for each in plan.forecasts] == ["spotkeep", "uniform-progress", "greedy", "on-demand"]
    assert all(each.chance_in_time == 1.0 for each in plan.forecasts)
    ours, *_, on_demand = plan.forecasts
    assert ours.cost_usd.mean < on_demand.cost_usd.mean


def test_the_zones_come_cheapest_first(plan: CapacityPlan) -> None:
    assert [zone.zone for zone in plan.zones] == ["far", "near"]
    assert plan.zones[0].run_s > plan.zones[1].run_s
    assert plan.zones[0].availability is not None


def test_it_says_how_often_to_save_and_plans_with_it(plan: CapacityPlan) -> None:
    assert plan.job.checkpoint_interval_s == plan.interval.interval_s
    assert plan.job.checkpoint_cost_s == 30.0
    assert 0.8 < plan.interval.goodput < 1.0


def test_it_says_when_on_demand_must_be_started_at_the_latest(plan: CapacityPlan) -> None:
    assert plan.latest_on_demand_s == pytest.approx(JOB.deadline_s - plan.job.uninterrupted_s)
    assert plan.thresholds[0].slack_s >= plan.thresholds[-1].slack_s


def test_the_same_seed_gives_the_same_plan(knowledge: Knowledge) -> None:
    documents = [make_plan(JOB, knowledge, seed=seed).as_document() for seed in (5, 5, 6)]
    assert documents[0] == documents[1]
    assert documents[0] != documents[2]


def test_the_document_is_json_and_holds_the_forecast(plan: CapacityPlan) -> None:
    document = json.loads(json.dumps(plan.as_document()))
    assert document["currency"] == "USD"
    assert document["forecasts"][0]["cost"]["p10"] <= document["forecasts"][0]["cost"]["p90"]
    assert document["knowledge"]["sources"] == ["2 zones watched for 20.8 days, to 2026-01-21 20:00 UTC"]


def test_a_deadline_that_cannot_be_kept_is_refused_with_what_it_takes(knowledge: Knowledge) -> None:
    with pytest.raises(PlanError, match=r"12\.1 h are not enough: .* 12\.2 h without any interruption"):
        make_plan(PlannedJob(work_s=12 * HOUR_S, deadline_s=12.1 * HOUR_S), knowledge)


def test_traces_without_an_on_demand_price_need_one() -> None:
    with pytest.raises(PlanError, match="--on-demand-price"):
        knowledge_from_traces([trace_of([1, 0, 1])], on_demand_price=None)


def test_without_a_price_costs_are_in_on_demand_hours() -> None:
    known = knowledge_without_history(
        past=Past.without_capacity(tick_s=300.0, now=NOW, price_now=np.array([0.5])),
        zones=["a"],
        on_demand_price=None,
        sources=["nothing"],
    )
    document = make_plan(JOB, known).as_document()
    assert document["currency"] == "on-demand hours"
    assert document["forecasts"][0]["cost"]["p90"] <= 12.3


def test_own_runs_are_evidence() -> None:
    """Capacity that was taken every other hour makes a plan dearer than none of that."""
    nothing = Past.without_capacity(tick_s=300.0, now=NOW, price_now=np.array([1.0]))
    bad = Spells(endings=np.full((2, BANDS), 20.0), seen_s=np.full((2, BANDS), 40 * HOUR_S))
    costs = [
        make_plan(
            JOB,
            knowledge_without_history(past=nothing, zones=["a"], on_demand_price=3.0, sources=[], own_runs=own_runs),
        )
        for own_runs in (None, bad)
    ]
    assert costs[0].forecasts[0].interruptions.mean < costs[1].forecasts[0].interruptions.mean
    assert costs[1].knowledge.sources[-1] == "this deployment's own runs: 280 h on spot, 140 interruptions"


def test_the_bands_are_those_of_the_advisor() -> None:
    assert list(SHARE_RECLAIMED) == ["<5%", "5-10%", "10-15%", "15-20%", ">20%"]


def constant(run_h: float) -> np.ndarray:
    return np.full((2, BANDS), 1 / (run_h * HOUR_S))


@pytest.mark.parametrize("run_h", [4.0, 12.0, 48.0])
@pytest.mark.parametrize("save_cost_s", [5.0, 30.0])
def test_it_is_youngs_interval_for_a_constant_hazard(run_h: float, save_cost_s: float) -> None:
    advice = advise_interval(constant(run_h), save_cost_s=save_cost_s, restart_s=0.0, work_s=1000 * HOUR_S)
    young_s = math.sqrt(2 * save_cost_s * run_h * HOUR_S)
    assert advice.interval_s == pytest.approx(young_s, rel=0.12)
    assert advice.lost_per_interruption_s == pytest.approx(advice.interval_s / 2)


def test_a_dearer_save_is_made_less_often_and_a_worse_hazard_more() -> None:
    def interval(save_cost_s: float, run_h: float) -> float:
        return advise_interval(constant(run_h), save_cost_s=save_cost_s, restart_s=720, work_s=48 * HOUR_S).interval_s

    assert interval(10, 8) < interval(60, 8) < interval(300, 8)
    assert interval(60, 2) < interval(60, 8)


def test_a_free_save_is_made_as_often_as_can_be() -> None:
    advice = advise_interval(constant(8), save_cost_s=0.0, restart_s=720, work_s=48 * HOUR_S)
    assert advice.interval_s == pytest.approx(INTERVALS_S[0])


def test_expected_goodput_is_what_capacity_with_that_law_gives() -> None:
    trace = capacity_with_known_law(ticks=60_000, tick_s=300.0, run_h=6, drought_h=1, seed=4)
    intervals_s = np.array([300.0, 1800.0, 7200.0])
    expected = expected_goodput(constant(6), intervals_s, save_cost_s=60, restart_s=720, work_s=2000 * HOUR_S)
    found = goodput_in_hindsight(trace.available, intervals_s, tick_s=300.0, save_cost_s=60, restart_s=720)
    assert found == pytest.approx(expected, rel=0.03)


def test_goodput_in_hindsight_is_what_a_replay_keeps() -> None:
    """Three runs of 10, 3 and 20 ticks; the work they keep is the work a replay keeps of them."""
    capacity = [1] * 10 + [0] * 2 + [1] * 3 + [0] * 2 + [1] * 20 + [0] * 2
    goodput = goodput_in_hindsight(
        np.array(capacity, dtype=bool), np.array([1000.0]), tick_s=600.0, save_cost_s=50.0, restart_s=700.0
    )[0]
    job = PlannedJob(
        work_s=1e6,
        deadline_s=len(capacity) * 600,
        restart_s=700,
        checkpoint_interval_s=1000,
        checkpoint_cost_s=50,
    )
    outcomes = replay(job, Windows([trace_of(capacity)], starts=[0], on_demand_price=3.0), Greedy())
    kept_s = 1e6 - (outcomes.finish_s[0] - len(capacity) * 600 - 700) / 1050 * 1000
    assert goodput * 33 * 600 == pytest.approx(kept_s, rel=0.01)


def test_the_advice_is_nearly_as_good_as_hindsight() -> None:
    trace = capacity_with_known_law(ticks=12_000, tick_s=300.0, run_h=5, drought_h=2, seed=9)
    seen = watch(trace.available[:6000], tick_s=300.0)
    hazards = prior_from_band().updated(seen, worth_endings=PRIOR_WORTH_ENDINGS).hazard_per_s
    advice = advise_interval(hazards, save_cost_s=60, restart_s=720, work_s=500 * HOUR_S)
    goodput = goodput_in_hindsight(
        trace.available[6000:],
        np.append(INTERVALS_S, advice.interval_s),
        tick_s=300.0,
        save_cost_s=60,
        restart_s=720,
    )
    assert goodput[-1] >= 0.98 * goodput.max()


def test_no_capacity_has_no_goodput() -> None:
    assert np.isnan(
        goodput_in_hindsight(np.zeros(9, dtype=bool), INTERVALS_S, tick_s=60, save_cost_s=1, restart_s=1)
    ).all()


def test_nonsense_is_refused() -> None:
    with pytest.raises(PlanError, match="durations are 0 or more"):
        advise_interval(constant(8), save_cost_s=-1, restart_s=0, work_s=HOUR_S)
