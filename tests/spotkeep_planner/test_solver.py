"""The program's expected cost is right where it can be worked out, and moves the right way where it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from spotkeep_planner.capacity_model import BANDS
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.solver import Thresholds, choose_step_s, solve

HOUR_S = 3600.0
STEP_S = 480.0


def hazards(*, run_h: float, drought_h: float) -> np.ndarray:
    return np.stack([np.full(BANDS, 1 / (drought_h * HOUR_S)), np.full(BANDS, 1 / (run_h * HOUR_S))])


def job(deadline_h: float, **changes: float) -> PlannedJob:
    return PlannedJob(**{"work_s": 24 * HOUR_S, "deadline_s": deadline_h * HOUR_S, "restart_s": 720.0, **changes})


def solved(planned: PlannedJob, capacity: np.ndarray, *, changes_per_s: float = 0.0) -> Thresholds:
    return solve(
        planned,
        capacity,
        tick_s=240.0,
        step_s=STEP_S,
        spot_price=1.0,
        on_demand_price=3.0,
        changes_per_s=changes_per_s,
    )


def cost(planned: PlannedJob, capacity: np.ndarray, *, changes_per_s: float = 0.0) -> float:
    return float(solved(planned, capacity, changes_per_s=changes_per_s).expected_cost[BANDS])


def test_capacity_that_never_goes_costs_the_work_and_one_restart() -> None:
    assert cost(job(30), hazards(run_h=1e6, drought_h=1)) == pytest.approx(24.2, rel=1e-3)


def test_capacity_that_never_comes_costs_on_demand() -> None:
    program = solved(job(30), hazards(run_h=1, drought_h=1e6))
    assert program.expected_cost[BANDS - 1] == pytest.approx(24.2 * 3, rel=1e-2)


@pytest.mark.long
def test_more_time_never_costs_more_and_worse_capacity_never_less() -> None:
    capacity = hazards(run_h=4, drought_h=4)
    costs = [cost(job(hours), capacity) for hours in (24.5, 26, 30, 40, 60)]
    assert costs == sorted(costs, reverse=True)
    assert cost(job(30), capacity) < cost(job(30), hazards(run_h=4, drought_h=8))
    assert cost(job(30), capacity) < cost(job(30), hazards(run_h=2, drought_h=4))


def test_changes_of_zone_and_lost_work_cost() -> None:
    capacity = hazards(run_h=4, drought_h=2)
    plain = cost(job(40), capacity)
    assert plain < cost(job(40), capacity, changes_per_s=1 / (2 * HOUR_S))
    assert plain < cost(job(40, checkpoint_interval_s=3600.0), capacity)


def test_the_less_slack_the_more_a_restart_costs() -> None:
    program = solved(job(40), hazards(run_h=4, drought_h=4))
    row = program.restart_usd[-1]
    assert row[20] > row[-20] >= 0


@pytest.mark.long
def test_the_more_work_is_left_the_more_slack_is_wanted_before_waiting() -> None:
    program = solved(job(60), hazards(run_h=4, drought_h=4))
    row = program.from_nothing_s[3]
    assert row[len(row) // 4] < row[-1]


@pytest.mark.long
def test_the_step_is_whole_ticks_and_bounds_the_work() -> None:
    step_s = choose_step_s(job(60), tick_s=195.0, most_steps=100)
    assert step_s % 195 == 0
    assert 24 * HOUR_S / step_s <= 100
    assert choose_step_s(job(24 * 30), tick_s=195.0, most_steps=100) >= (24 * 29 * HOUR_S) / 200
