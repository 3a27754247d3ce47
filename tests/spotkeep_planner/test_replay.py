"""A replay bills what was used, loses what was not durable, pays every restart, and shows no policy the future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.policy.setting import prior_from_elsewhere
from spotkeep_planner.capacity_model import CapacityModel
from spotkeep_planner.errors import PlanError
from spotkeep_planner.interruption_bands import prior_from_band
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import Greedy, OnDemand, greedy, survival, uniform_progress
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Policy, Windows, replay
from spotkeep_planner.traces import CapacityTrace
from tests.models.capacity_traces import capacity_with_known_law, trace_of

HOUR_S = 3600.0


class _Script:
    name = "script"

    def __init__(self, *choices: int) -> None:
        self._choices = choices

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        return self.decide

    def decide(self, observation: Observation) -> IntArray:
        choice = self._choices[min(observation.tick, len(self._choices) - 1)]
        return np.full_like(observation.using, choice)


def windows(*traces: CapacityTrace, starts: Sequence[int] = (0,)) -> Windows:
    return Windows(traces, starts=starts, on_demand_price=3.0)


def job(**changes: float | bool) -> PlannedJob:
    """Two hours of work within ten, half an hour to restart."""
    return PlannedJob(**{"work_s": 2 * HOUR_S, "deadline_s": 10 * HOUR_S, "restart_s": 0.5 * HOUR_S, **changes})  # type: ignore[arg-type]


def test_on_demand_pays_for_its_restart_and_its_work_to_the_second() -> None:
    outcomes = replay(job(), windows(trace_of([0] * 70)), OnDemand())
    assert outcomes.cost_usd == pytest.approx(2.5 * 3.0)
    assert outcomes.finish_s == pytest.approx(2.5 * HOUR_S)
    assert outcomes.restarts.tolist() == [1]
    assert not outcomes.missed.any()


def test_spot_is_billed_at_the_price_of_each_tick() -> None:
    prices = [1.0] * 6 + [2.0] * 64
    outcomes = replay(job(), windows(trace_of([1] * 70, price=prices)), Greedy())
    assert outcomes.cost_usd == pytest.approx(1.0 + 1.5 * 2.0)


def test_capacity_that_is_taken_costs_a_restart_and_what_was_not_durable() -> None:
    """An hour and a half on spot, saves every 20 min of 2 min: two are done when it is taken."""
    capacity = [1] * 8 + [0] * 3 + [1] * 59
    saving = job(checkpoint_interval_s=1200, checkpoint_cost_s=120)
    outcomes = replay(saving, windows(trace_of(capacity)), Greedy())
    worked_s = 8 * 600 - 1800
    assert outcomes.interruptions.tolist() == [1]
    assert outcomes.lost_work_s == pytest.approx(worked_s - 2 * 1320)
    rest_s = 2 * HOUR_S - 2 * 1200
    again_s = 1800 + saving.running_time_s(rest_s)
    assert outcomes.finish_s == pytest.approx(11 * 600 + again_s)
    assert outcomes.waiting_s == pytest.approx(1800)


def test_a_job_that_saves_on_the_notice_loses_nothing() -> None:
    capacity = [1] * 8 + [0] * 3 + [1] * 59
    saving = job(checkpoint_interval_s=1200, checkpoint_cost_s=120, saves_on_notice=True)
    assert replay(saving, windows(trace_of(capacity)), Greedy()).lost_work_s == pytest.approx(0)


def test_every_change_of_capacity_restarts_and_a_move_loses_no_work() -> None:
    """Spot in a, spot in b, on-demand, each for an hour: half of each is restart."""
    zones = trace_of([1] * 70, zone="a"), trace_of([1] * 70, zone="b", price=2.0)
    moving = _Script(*[0] * 6, *[1] * 6, ON_DEMAND)
    outcomes = replay(job(checkpoint_interval_s=7200), windows(*zones), moving)
    assert outcomes.restarts.tolist() == [3]
    assert outcomes.finish_s == pytest.approx(3.5 * HOUR_S)
    assert outcomes.cost_usd == pytest.approx(1.0 + 2.0 + 1.5 * 3.0)
    assert outcomes.lost_work_s == pytest.approx(0)


def test_a_zone_without_capacity_means_waiting() -> None:
    outcomes = replay(job(), windows(trace_of([0] * 70)), _Script(*[0] * 6, ON_DEMAND))
    assert outcomes.waiting_s == pytest.approx(HOUR_S)
    assert outcomes.finish_s == pytest.approx(3.5 * HOUR_S)


def test_a_job_that_is_late_is_a_miss_and_is_finished_on_demand() -> None:
    outcomes = replay(job(), windows(trace_of([0] * 70)), _Script(WAIT))
    assert outcomes.missed.all()
    assert outcomes.finish_s == pytest.approx(12.5 * HOUR_S)
    assert outcomes.cost_usd == pytest.approx(7.5)


def test_a_course_ends_where_the_windows_end() -> None:
    """Four hours of work, which are lost once, on a zone whose other window has no capacity at all."""
    trace = trace_of([1] * 12 + [0] * 6 + [1] * 52)
    capacity = windows(trace, starts=(0, 18))
    long = job(work_s=4 * HOUR_S, deadline_s=8 * HOUR_S)
    assert replay(long, capacity, Greedy()).course is None
    outcomes = replay(long, capacity, Greedy(), times=10)
    course = outcomes.course
    assert course is not None
    assert len(course.at_s) <= 11
    assert course.done_s.shape == course.cost_usd.shape == (len(course.at_s), 2)
    assert course.done_s[-1] == pytest.approx([4 * HOUR_S, 4 * HOUR_S])
    assert course.cost_usd[-1] == pytest.approx(outcomes.cost_usd)
    assert (np.diff(course.cost_usd, axis=0) >= 0).all()
    # After an hour, half of it went into the restart. The second window is never interrupted.
    first = int(np.searchsorted(course.at_s, HOUR_S))
    assert course.done_s[first] == pytest.approx([course.at_s[first] - 0.5 * HOUR_S] * 2)
    assert (course.done_s[:, 0] <= course.done_s[:, 1]).all()


def test_a_late_job_is_not_done_at_the_end_of_its_course() -> None:
    outcomes = replay(job(), windows(trace_of([0] * 70)), _Script(WAIT), times=5)
    assert outcomes.course is not None
    assert outcomes.course.at_s[-1] == job().deadline_s
    assert outcomes.course.done_s[-1] == [0.0]


def test_windows_do_not_know_of_each_other() -> None:
    trace = capacity_with_known_law(ticks=500, tick_s=600.0, run_h=2, drought_h=2, seed=1)
    starts = [0, 17, 100, 211, 300]
    together = replay(job(), windows(trace, starts=starts), greedy())
    alone = [replay(job(), windows(trace, starts=[start]), greedy()).cost_usd[0] for start in starts]
    assert together.cost_usd.tolist() == pytest.approx(alone)


def test_a_window_beyond_the_trace_is_refused() -> None:
    with pytest.raises(PlanError, match="needs 90 ticks"):
        replay(job(), windows(trace_of([1] * 70), starts=[30]), greedy())


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PlanError, match="chose zone 1"):
        replay(job(), windows(trace_of([1] * 70)), _Script(1))


class _Diary:
    """Writes down what a policy decided."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name
        self.entries: list[list[int]] = []

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        self._inner = self._policy.begin(job=job, pasts=pasts, on_demand_price=on_demand_price)
        return self.decide

    def decide(self, observation: Observation) -> IntArray:
        chosen = self._inner(observation)
        self.entries.append(chosen.tolist())
        return chosen


def looks_ahead(policy_for: Callable[[CapacityTrace], Policy], trace: CapacityTrace, *, starts: Sequence[int]) -> bool:
    """Whether any decision changes when only what comes after it changes."""
    planned = job(deadline_s=20 * HOUR_S, work_s=12 * HOUR_S, restart_s=900)
    ticks = 120
    diary = _Diary(policy_for(trace))
    replay(planned, Windows([trace], starts=starts, on_demand_price=3.0), diary)
    random = np.random.default_rng(0)
    for now in (0, 7, 77):
        for number, start in enumerate(starts):
            available, price = trace.available.copy(), trace.spot_price.copy()
            after = start + now + 1
            available[after:] = random.random(len(available) - after) < 0.5
            price[after:] = random.uniform(0.5, 2.5, len(price) - after)
            other = replace(trace, available=available, spot_price=price)
            again = _Diary(policy_for(other))
            replay(planned, Windows([other], starts=[start], on_demand_price=3.0), again)
            seen = min(now + 1, ticks, len(diary.entries), len(again.entries))
            if [entry[number] for entry in diary.entries[:seen]] != [entry[0] for entry in again.entries[:seen]]:
                return True
    return False


@pytest.mark.parametrize(
    "policy_for",
    [
        lambda _: uniform_progress(),
        # The zones learnt from are of the same days: what comes after the start must not be used of them either.
        lambda trace: survival(prior=prior_from_elsewhere((trace,))),
    ],
    ids=["uniform-progress", "spotkeep-that-learns-elsewhere"],
)
@pytest.mark.long
def test_no_policy_looks_ahead(policy_for: Callable[[CapacityTrace], Policy]) -> None:
    trace = capacity_with_known_law(ticks=900, tick_s=600.0, run_h=2, drought_h=3, seed=5)
    assert not looks_ahead(policy_for, trace, starts=[0, 300, 700])


def test_a_prior_that_learns_elsewhere_uses_only_what_had_happened() -> None:
    trace = capacity_with_known_law(ticks=900, tick_s=600.0, run_h=2, drought_h=3, seed=5)
    prior = prior_from_elsewhere((trace,))

    def endings(model: CapacityModel) -> float:
        return float(model.endings.sum())

    assert endings(prior(trace.start)) == endings(prior_from_band())
    assert endings(prior_from_band()) < endings(prior(trace.end))
