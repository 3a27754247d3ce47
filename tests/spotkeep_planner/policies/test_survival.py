"""Ours is cautious with little history, better than the rest where capacity has a law, and the same as its table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.policy.measures import optimal_costs
from benchmarks.policy.setting import prior_from_elsewhere
from spotkeep_planner.capacity_model import ages_s
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import (
    Guarded,
    OnDemand,
    SurvivalPolicy,
    decision_table,
    greedy,
    survival,
    uniform_progress,
)
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Policy, Windows, replay
from spotkeep_planner.steering import Choice, DeadlineClock, DecisionTable, ZoneView
from spotkeep_planner.traces import CapacityTrace
from tests.models.capacity_traces import capacity_with_known_law, trace_of

HOUR_S = 3600.0
PRICE = 3.0


def job(deadline_h: float, **changes: float) -> PlannedJob:
    return PlannedJob(**{"work_s": 24 * HOUR_S, "deadline_s": deadline_h * HOUR_S, "restart_s": 720.0, **changes})


@pytest.fixture(scope="module")
def zones() -> list[CapacityTrace]:
    return [
        capacity_with_known_law(ticks=3000, tick_s=600.0, run_h=6, drought_h=4, seed=seed, zone=str(seed), price=1.0)
        for seed in range(3)
    ]


@pytest.mark.long
def test_where_capacity_has_a_law_it_is_cheaper_than_the_others_and_the_cheaper_the_more_time_there_is(
    zones: list[CapacityTrace],
) -> None:
    # Of nearly the same time, so that they share what is fitted and solved.
    windows = Windows(zones[:1], starts=range(1900, 2700, 12), on_demand_price=PRICE)
    prior = prior_from_elsewhere(zones[1:])
    costs = []
    for deadline_h in (26.0, 30.0, 40.0):
        cost = {
            policy.name: replay(job(deadline_h), windows, policy).cost_usd.mean()
            for policy in (survival(prior=prior), greedy(), uniform_progress(), OnDemand())
        }
        assert cost["spotkeep"] <= min(cost.values()) * 1.005
        assert cost["spotkeep"] < cost["on-demand"]
        costs.append(cost["spotkeep"])
    assert costs == sorted(costs, reverse=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "checkpoint"),
    [(1, (1800.0, 60.0)), (3, (0.0, 0.0))],
    ids=["one-zone-with-checkpoints", "three-zones-durable"],
)
def test_no_policy_beats_the_optimum_or_misses(
    zones: list[CapacityTrace], count: int, checkpoint: tuple[float, float]
) -> None:
    windows = Windows(zones[:count], starts=range(0, 2700, 300), on_demand_price=PRICE)
    planned = job(27.0, checkpoint_interval_s=checkpoint[0], checkpoint_cost_s=checkpoint[1])
    best = optimal_costs(planned, windows, deadlines_s=[planned.deadline_s])[:, 0]
    policies: list[Policy] = [survival(), OnDemand(), greedy(), uniform_progress()]
    for policy in policies:
        outcomes = replay(planned, windows, policy)
        assert not outcomes.missed.any(), policy.name
        assert (outcomes.cost_usd >= best - 1e-9).all(), policy.name


def test_without_any_history_it_relies_on_the_published_band_and_still_keeps_the_deadline(
    zones: list[CapacityTrace],
) -> None:
    windows = Windows(zones[:1], starts=[0, 1, 2], on_demand_price=PRICE)
    outcomes = replay(job(30.0), windows, survival())
    assert not outcomes.missed.any()


def test_with_little_history_it_expects_to_pay_more(zones: list[CapacityTrace]) -> None:
    """The less is known, the sooner runs and the later droughts are taken to end."""
    past = Windows(zones[:1], starts=[900], on_demand_price=PRICE).pasts()[0]
    expected = [
        SurvivalPolicy(caution=caution)
        .plan(job(40.0), past, ticks=900, on_demand_price=PRICE)
        .thresholds.expected_cost.mean()
        for caution in (0.0, 0.5, 1.5)
    ]
    assert expected == sorted(expected)
    assert expected[0] < expected[-1]


def test_caution_fades_as_history_grows(zones: list[CapacityTrace]) -> None:
    policy = SurvivalPolicy()
    windows = Windows(zones[:1], starts=[60, 2900], on_demand_price=PRICE)

    def spread(past: Past) -> float:
        cautious, bold = (
            SurvivalPolicy(caution=caution).plan(job(40.0), past, ticks=past.start_tick, on_demand_price=PRICE)
            for caution in (policy.caution, 0.0)
        )
        return float(np.abs(cautious.lasting_s - bold.lasting_s).max() / bold.lasting_s.max())

    little, much = (spread(past) for past in windows.pasts())
    assert much < little


@pytest.mark.long
def test_several_zones_cost_less_than_the_best_of_them(zones: list[CapacityTrace]) -> None:
    starts = range(2400, 2700, 15)
    together, *alone = (
        replay(job(30.0), Windows(some, starts=starts, on_demand_price=PRICE), survival()).cost_usd.mean()
        for some in (zones, *([zone] for zone in zones))
    )
    assert together < min(alone)


def test_it_leaves_a_zone_for_a_cheaper_one_only_if_that_pays_for_the_restart() -> None:
    """Both zones have always had capacity; the second is dear, a little dearer, or far dearer than the first."""
    there = [1] * 2000

    def moves(*, dear: float, cheap: float) -> int:
        dear_first = [0] * 1000 + [0] * 30 + [1] * 970
        zones = trace_of(dear_first, price=cheap, zone="cheap"), trace_of(there, price=dear, zone="dear")
        windows = Windows(zones, starts=[1000], on_demand_price=PRICE)
        return int(replay(job(40.0), windows, survival()).restarts[0]) - 1

    assert moves(dear=2.5, cheap=0.5) == 1
    assert moves(dear=0.51, cheap=0.5) == 0


class _FromTable:
    """Decides window by window with the exported table, as a function in the cloud would."""

    name = "table"

    def __init__(self, policy: SurvivalPolicy, names: Sequence[str]) -> None:
        self._policy = policy
        self._names = names

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        (past,) = pasts
        table = decision_table(
            self._policy, job=job, past=past, zones=self._names, on_demand_price=on_demand_price, most_columns=10**6
        )
        self._table = DecisionTable.from_document(json.loads(json.dumps(table.as_document())))
        self._job = job
        self._seen = past.available
        return self.decide

    def decide(self, observation: Observation) -> IntArray:
        self._seen = np.concatenate([self._seen, observation.available.T], axis=1)
        using = int(observation.using[0])
        ages = [ages_s(zone, tick_s=observation.tick_s)[-1] for zone in self._seen]
        decision = self._table.decide(
            DeadlineClock(
                time_left_s=observation.time_left_s,
                work_left_s=float(observation.work_left_s[0]),
                work_left_if_lost_s=float(observation.work_left_if_lost_s[0]),
                restart_s=self._job.restart_s,
                restart_left_s=float(observation.restart_left_s[0]),
                decision_interval_s=observation.tick_s,
            ),
            using={WAIT: Choice.WAIT, ON_DEMAND: Choice.ON_DEMAND}.get(using, Choice.SPOT),
            using_zone=using if using >= 0 else None,
            zones=[
                ZoneView(available=bool(there), age_s=float(age), spot_price=float(price))
                for there, age, price in zip(observation.available[0], ages, observation.spot_price[0], strict=True)
            ],
            any_age_s=float(ages_s(self._seen.any(axis=0), tick_s=observation.tick_s)[-1]),
            spot_is_kept=True,
        )
        if decision.choice is Choice.SPOT:
            assert decision.zone is not None
            return np.array([decision.zone])
        return np.array([WAIT if decision.choice is Choice.WAIT else ON_DEMAND])


@pytest.mark.long
@pytest.mark.parametrize(("count", "deadline_h"), [(1, 26.0), (3, 32.0)])
def test_the_exported_table_steers_as_the_policy_was_forecast(
    zones: list[CapacityTrace], count: int, deadline_h: float
) -> None:
    policy = SurvivalPolicy(refit_growth=1e-9)
    # Thresholds in the table are whole seconds, and its slack has fewer steps: a decision in thousands may differ.
    for start in (500, 1400, 2300):
        windows = Windows(zones[:count], starts=[start], on_demand_price=PRICE)
        forecast = replay(job(deadline_h), windows, Guarded(policy=policy))
        steered = replay(job(deadline_h), windows, _FromTable(policy, windows.zones))
        assert not steered.missed.any()
        assert steered.cost_usd[0] == pytest.approx(forecast.cost_usd[0], rel=1e-3)


def test_the_table_is_small(zones: list[CapacityTrace]) -> None:
    past = Windows(zones, starts=[2000], on_demand_price=PRICE).pasts()[0]
    table = decision_table(SurvivalPolicy(), job=job(60.0), past=past, zones=("a", "b", "c"), on_demand_price=PRICE)
    assert len(json.dumps(table.as_document())) < 40_000
