"""The advised interval is Young's where Young's formula holds, and good where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.policy.measures import goodput_in_hindsight
from spotkeep_planner.capacity_model import BANDS, watch
from spotkeep_planner.checkpoint_interval import (
    INTERVALS_S,
    PRIOR_WORTH_ENDINGS,
    advise_interval,
    expected_goodput,
)
from spotkeep_planner.errors import PlanError
from spotkeep_planner.interruption_bands import prior_from_band
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import Greedy
from spotkeep_planner.replay import Windows, replay
from tests.models.capacity_traces import capacity_with_known_law, trace_of

HOUR_S = 3600.0


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
