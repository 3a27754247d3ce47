"""The last safe moment for on-demand is never missed, whatever capacity does and whatever a policy wants."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_planner.steering import Choice, DeadlineClock, is_safe, last_safe_wait_s

HOUR_S = 3600.0


def clock(**changes: float) -> DeadlineClock:
    """Ten hours of work, eleven hours left, a restart of half an hour, a decision every ten minutes."""
    values = {
        "time_left_s": 11 * HOUR_S,
        "work_left_s": 10 * HOUR_S,
        "work_left_if_lost_s": 10 * HOUR_S,
        "restart_s": 0.5 * HOUR_S,
        "restart_left_s": 0.0,
        "decision_interval_s": 600.0,
    }
    return DeadlineClock(**{**values, **changes})


def guarded(choice: Choice, *, using: Choice, clock: DeadlineClock) -> Choice:
    """The choice, or on-demand where it is not safe any more."""
    return choice if is_safe(choice, using=using, clock=clock) else Choice.ON_DEMAND


def test_on_demand_is_always_safe() -> None:
    late = clock(time_left_s=1.0)
    assert is_safe(Choice.ON_DEMAND, using=Choice.WAIT, clock=late)


def test_waiting_is_safe_to_the_last_moment_and_not_a_second_longer() -> None:
    work_and_restart_s = 10.5 * HOUR_S
    assert is_safe(Choice.WAIT, using=Choice.WAIT, clock=clock(time_left_s=work_and_restart_s + 600))
    assert not is_safe(Choice.WAIT, using=Choice.WAIT, clock=clock(time_left_s=work_and_restart_s + 599))


def test_starting_spot_in_the_last_moment_is_not_safe_since_it_can_be_taken_at_once() -> None:
    assert not is_safe(Choice.SPOT, using=Choice.WAIT, clock=clock(time_left_s=10.5 * HOUR_S + 300))


def test_spot_at_work_counts_for_what_is_durable_only() -> None:
    durable = clock(time_left_s=10.5 * HOUR_S + 600, work_left_s=9.9 * HOUR_S)
    assert is_safe(Choice.SPOT, using=Choice.SPOT, clock=durable)
    not_durable = clock(time_left_s=10.5 * HOUR_S + 599, work_left_s=9.9 * HOUR_S)
    assert not is_safe(Choice.SPOT, using=Choice.SPOT, clock=not_durable)
    assert is_safe(Choice.SPOT, using=Choice.SPOT, clock=not_durable, kept_until_next_decision_s=600.0)


def test_it_says_how_long_a_run_may_still_wait() -> None:
    assert last_safe_wait_s(clock()) == pytest.approx(0.5 * HOUR_S)
    assert last_safe_wait_s(clock(time_left_s=HOUR_S)) == 0.0


@st.composite
def fates(draw: st.DrawFn) -> tuple[str, float, float]:
    """What happens in one interval: what a policy wants, how long capacity lasts, how much work is durable."""
    wish = draw(st.sampled_from(list(Choice)))
    lasts = draw(st.one_of(st.just(1.0), st.floats(0.0, 1.0)))
    durable = draw(st.floats(0.0, 1.0))
    return wish.value, lasts, durable


@pytest.mark.long
@given(
    work_s=st.floats(60, 20 * HOUR_S),
    restart_s=st.floats(0, 2 * HOUR_S),
    spare_s=st.floats(0, 10 * HOUR_S),
    interval_s=st.floats(30, 2 * HOUR_S),
    fate=st.lists(fates(), min_size=1, max_size=30),
)
def test_no_adversary_makes_a_guarded_run_late(
    work_s: float, restart_s: float, spare_s: float, interval_s: float, fate: list[tuple[str, float, float]]
) -> None:
    """Spot is taken when it hurts most, between two decisions, and the policy wishes for the worst."""
    deadline_s = work_s + restart_s + spare_s
    time_s, durable_left_s, at_risk_s = 0.0, work_s, 0.0
    using, restart_left_s = Choice.WAIT, 0.0
    for tick in range(math.ceil(deadline_s / interval_s) + 1):
        wish, lasts, durable = fate[tick % len(fate)]
        now = DeadlineClock(
            time_left_s=deadline_s - time_s,
            work_left_s=durable_left_s - at_risk_s,
            work_left_if_lost_s=durable_left_s,
            restart_s=restart_s,
            restart_left_s=restart_left_s,
            decision_interval_s=interval_s,
        )
        chosen = guarded(Choice(wish), using=using, clock=now)
        if chosen is not using:
            durable_left_s, at_risk_s = durable_left_s - at_risk_s, 0.0
            restart_left_s = restart_s
            using = chosen
        if using is not Choice.WAIT:
            usable_s = interval_s * (lasts if using is Choice.SPOT else 1.0)
            started_s = min(usable_s, restart_left_s)
            done_s = min(usable_s - started_s, durable_left_s - at_risk_s)
            if at_risk_s + done_s >= durable_left_s - 1e-6:
                assert time_s + started_s + done_s <= deadline_s + 1e-3
                return
            restart_left_s -= started_s
            saved_s = (at_risk_s + done_s) * durable if using is Choice.SPOT else at_risk_s + done_s
            durable_left_s, at_risk_s = durable_left_s - saved_s, at_risk_s + done_s - saved_s
            if using is Choice.SPOT and lasts < 1.0:
                using, at_risk_s = Choice.WAIT, 0.0
        time_s += interval_s
    raise AssertionError(f"not done at the deadline: {durable_left_s:.0f} s of work left")
