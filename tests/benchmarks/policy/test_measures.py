"""The optimum is what trying everything finds, and more time never costs more. No policy beats it: test_survival.py."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policy.measures import optimal_costs
from spotkeep_planner.errors import PlanError
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Windows, replay
from spotkeep_planner.traces import CapacityTrace
from tests.models.capacity_traces import capacity_with_known_law, trace_of

ON_DEMAND_PRICE = 3.0


class _Script:
    """Does in each tick what was written down for it, in every window something else."""

    name = "script"

    def __init__(self, plans: Sequence[Sequence[int]]) -> None:
        self._plans = np.array(plans)

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        return self.decide

    def decide(self, observation: Observation) -> IntArray:
        return self._plans[:, observation.tick]


def cheapest_of_everything(job: PlannedJob, traces: Sequence[CapacityTrace]) -> float:
    """The cost of the best of all sequences of choices, each of them replayed."""
    ticks = Windows(traces, starts=[0], on_demand_price=ON_DEMAND_PRICE).ticks_for(job)
    plans = list(itertools.product([WAIT, ON_DEMAND, *range(len(traces))], repeat=ticks))
    windows = Windows(traces, starts=[0] * len(plans), on_demand_price=ON_DEMAND_PRICE)
    outcomes = replay(job, windows, _Script(plans))
    in_time = outcomes.cost_usd[~outcomes.missed]
    return float(in_time.min()) if len(in_time) else float("inf")


PRICES = st.sampled_from([0.5, 1.0, 2.5])
WORK_S = st.sampled_from([300, 600, 1000, 1500, 2100])
RESTART_S = st.sampled_from([0, 200, 600, 900, 1250])
SHORT_OF_A_TICK_S = st.sampled_from([0, 250])


def ticks_of(count: int) -> st.SearchStrategy[tuple[list[bool], list[float]]]:
    return st.tuples(
        st.lists(st.booleans(), min_size=count, max_size=count), st.lists(PRICES, min_size=count, max_size=count)
    )


def job_of(*, work_s: float, restart_s: float, ticks: int, short_s: float) -> PlannedJob:
    return PlannedJob(work_s=work_s, restart_s=restart_s, deadline_s=ticks * 600 - short_s)


@given(
    zones=st.tuples(ticks_of(7)) | st.tuples(ticks_of(5), ticks_of(5)),
    work_s=WORK_S,
    restart_s=RESTART_S,
    short_s=SHORT_OF_A_TICK_S,
)
def test_it_is_the_best_of_all_sequences(
    zones: tuple[tuple[list[bool], list[float]], ...], work_s: float, restart_s: float, short_s: float
) -> None:
    job = job_of(work_s=work_s, restart_s=restart_s, ticks=len(zones[0][0]), short_s=short_s)
    traces = [trace_of(available, price=prices, zone=str(number)) for number, (available, prices) in enumerate(zones)]
    windows = Windows(traces, starts=[0], on_demand_price=ON_DEMAND_PRICE)
    found = optimal_costs(job, windows, deadlines_s=[job.deadline_s])[0, 0]
    assert found == pytest.approx(cheapest_of_everything(job, traces))


@pytest.mark.long
def test_more_time_never_costs_more() -> None:
    trace = capacity_with_known_law(ticks=600, tick_s=600.0, run_h=2, drought_h=4, seed=3)
    job = PlannedJob(work_s=8 * 3600, deadline_s=40 * 3600, restart_s=720)
    deadlines_s = [hours * 3600.0 for hours in (8.1, 8.3, 9, 11, 14, 20, 40)]
    costs = optimal_costs(
        job, Windows([trace], starts=range(0, 300, 20), on_demand_price=ON_DEMAND_PRICE), deadlines_s=deadlines_s
    )
    assert np.isinf(costs[:, 0]).all(), "8.1 h are not enough for 8 h of work and a restart of 0.2 h"
    assert np.isfinite(costs[:, 1:]).all()
    assert (np.diff(costs[:, 1:], axis=1) <= 1e-9).all()
    assert (costs[:, -1] < costs[:, 1]).any()


def test_durations_without_a_usable_common_unit_are_refused() -> None:
    windows = Windows([trace_of([1] * 2000)], starts=[0], on_demand_price=ON_DEMAND_PRICE)
    job = PlannedJob(work_s=172_800.001, deadline_s=900_000, restart_s=720)
    with pytest.raises(PlanError, match="common unit"):
        optimal_costs(job, windows, deadlines_s=[job.deadline_s])


def test_a_window_beyond_the_trace_is_refused() -> None:
    windows = Windows([trace_of([1] * 10)], starts=[5], on_demand_price=ON_DEMAND_PRICE)
    with pytest.raises(PlanError, match="beyond the end"):
        optimal_costs(PlannedJob(work_s=600, deadline_s=6000), windows, deadlines_s=[6000])
