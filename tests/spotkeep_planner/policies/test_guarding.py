"""A guarded policy misses no deadline on any trace; and the guard for many windows is the guard for one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import Guarded, safe
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Windows, replay
from spotkeep_planner.steering import Choice, DeadlineClock, is_safe
from tests.models.capacity_traces import trace_of

CHOICES = {WAIT: Choice.WAIT, ON_DEMAND: Choice.ON_DEMAND, 0: Choice.SPOT}


class _Wishes:
    """Wants what was drawn for each tick, again and again."""

    name = "wishes"

    def __init__(self, wishes: Sequence[int]) -> None:
        self._wishes = wishes

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        return self.decide

    def decide(self, observation: Observation) -> IntArray:
        return np.full_like(observation.using, self._wishes[observation.tick % len(self._wishes)])


_SHORT_SPELLS = [tick in (31, 43, 55, 56) for tick in range(120)]


# On demand for a tick and away again, at the expense of a save each time, until the last moment.
@pytest.mark.long
@example(
    capacity=_SHORT_SPELLS,
    wishes=[WAIT, ON_DEMAND, WAIT, ON_DEMAND, WAIT, ON_DEMAND, WAIT, 0, WAIT, WAIT, ON_DEMAND, ON_DEMAND],
    work_s=3765,
    restart_s=538,
    spare_s=15247,
    checkpoint=(1800.0, 120.0, True),
)
@given(
    capacity=st.lists(st.booleans(), min_size=120, max_size=120),
    wishes=st.lists(st.sampled_from([WAIT, ON_DEMAND, 0]), min_size=1, max_size=12),
    work_s=st.integers(300, 40_000),
    restart_s=st.integers(0, 5_000),
    spare_s=st.integers(0, 20_000),
    checkpoint=st.sampled_from(
        [(0.0, 0.0, False), (1800.0, 0.0, False), (1800.0, 120.0, False), (1800.0, 120.0, True)]
    ),
)
def test_a_guarded_policy_misses_no_deadline_that_can_be_kept(
    capacity: list[bool],
    wishes: list[int],
    work_s: int,
    restart_s: int,
    spare_s: int,
    checkpoint: tuple[float, float, bool],
) -> None:
    interval_s, cost_s, on_notice = checkpoint
    # What a save before leaving of one's own accord costs is on top of the restart: room for a few of them.
    room_s = 120 * cost_s
    job = PlannedJob(
        work_s=work_s,
        restart_s=restart_s,
        deadline_s=work_s * (1 + (cost_s / interval_s if interval_s else 0)) + restart_s + spare_s + room_s,
        checkpoint_interval_s=interval_s,
        checkpoint_cost_s=cost_s,
        saves_on_notice=on_notice,
    )
    windows = Windows([trace_of(capacity, tick_s=600.0)], starts=[0], on_demand_price=3.0)
    if job.deadline_s > 120 * 600:
        return
    assert not replay(job, windows, Guarded(policy=_Wishes(wishes))).missed.any()


@given(
    chosen=st.sampled_from([WAIT, ON_DEMAND, 0]),
    using=st.sampled_from([WAIT, ON_DEMAND, 0]),
    time_left_s=st.floats(0, 50_000),
    work_left_s=st.floats(0, 40_000),
    at_risk_s=st.floats(0, 5_000),
    restart_left_s=st.floats(0, 720),
)
def test_it_decides_as_the_guard_for_one_run(
    chosen: int, using: int, time_left_s: float, work_left_s: float, at_risk_s: float, restart_left_s: float
) -> None:
    job = PlannedJob(work_s=40_000, deadline_s=60_000, restart_s=720, checkpoint_interval_s=3600)
    at_risk_s = at_risk_s if using == 0 else 0.0
    observation = Observation(
        tick=1,
        tick_s=195.0,
        time_left_s=time_left_s,
        work_left_s=np.array([work_left_s]),
        work_left_if_lost_s=np.array([work_left_s + at_risk_s]),
        using=np.array([using]),
        restart_left_s=np.array([restart_left_s]),
        available=np.array([[True]]),
        spot_price=np.array([[1.0]]),
    )
    clock = DeadlineClock(
        time_left_s=time_left_s,
        work_left_s=work_left_s,
        work_left_if_lost_s=work_left_s + at_risk_s,
        restart_s=720,
        restart_left_s=restart_left_s,
        decision_interval_s=195.0,
    )
    one = is_safe(CHOICES[chosen], using=CHOICES[using], clock=clock)
    many = safe(np.array([chosen]), observation=observation, job=job)
    assert bool(many[0]) == one


def test_an_unguarded_policy_that_only_waits_misses() -> None:
    job = PlannedJob(work_s=3600, deadline_s=7200, restart_s=600)
    windows = Windows([trace_of([0] * 20)], starts=[0], on_demand_price=3.0)
    assert replay(job, windows, _Wishes([WAIT])).missed.all()
    assert replay(job, windows, Guarded(policy=_Wishes([WAIT]))).on_demand_s == pytest.approx(4200)
