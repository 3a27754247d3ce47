"""When a save is due, and the interval that loses the least."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.save_schedule import ExtraTime, InterruptionOutlook, SaveSchedule, best_interval

HOURLY = InterruptionOutlook(mean_seconds_between=3600.0, notice_chance=0.0)


def test_steps_are_kept_to_the_step_even_while_a_save_is_running():
    schedule = SaveSchedule(every_steps=10)
    assert [step for step in range(1, 31) if due_and_tried(schedule, step, 0.0, saving=True)] == [10, 20, 30]


def test_seconds_wait_for_a_save_that_is_running():
    schedule = SaveSchedule(every_seconds=5.0)
    assert not schedule.due(1, 4.9, saving=False)
    assert not schedule.due(2, 9.0, saving=True)
    assert schedule.due(3, 9.0, saving=False)


def due_and_tried(schedule, step, now, *, saving):
    due = schedule.due(step, now, saving=saving)
    if due:
        schedule.tried(step, now)
    return due


def test_the_interval_is_that_of_young_and_daly():
    interval = best_interval(extra_seconds=2.0, durable_seconds=1.0, outlook=HOURLY)
    assert interval.seconds == pytest.approx(math.sqrt(2 * 2.0 * 3600))
    assert "costs 2 s" in interval.reason
    assert "every 3.6e+03 s" in interval.reason


def test_notices_make_saving_seldom_enough():
    rare = InterruptionOutlook(mean_seconds_between=3600.0, notice_chance=0.75)
    interval = best_interval(extra_seconds=2.0, durable_seconds=1.0, outlook=rare)
    assert interval.seconds == pytest.approx(2 * math.sqrt(2 * 2.0 * 3600))
    sure = InterruptionOutlook(mean_seconds_between=3600.0, notice_chance=1.0)
    assert best_interval(extra_seconds=2.0, durable_seconds=1.0, outlook=sure).seconds == 3600.0


@given(
    cost=st.floats(0.01, 20),
    mean=st.floats(600, 100_000),
    chance=st.floats(0, 0.95),
    factor=st.floats(0.2, 5).filter(lambda factor: abs(factor - 1) > 0.05),
)
def test_no_other_interval_loses_less(cost, mean, chance, factor):
    outlook = InterruptionOutlook(mean_seconds_between=mean, notice_chance=chance)
    best = best_interval(extra_seconds=cost, durable_seconds=0.0, outlook=outlook).seconds
    ideal = math.sqrt(2 * cost * mean / (1 - chance))

    def lost_share(seconds):
        return cost / seconds + (1 - chance) * seconds / 2 / mean

    if best == ideal:
        assert lost_share(best) < lost_share(best * factor)


def test_at_most_half_of_the_time_is_spent_writing():
    assert best_interval(extra_seconds=0.0, durable_seconds=40.0, outlook=HOURLY).seconds == 80.0


def test_auto_measures_then_adapts_and_says_so_once():
    told = []
    schedule = SaveSchedule(auto=True, outlook=HOURLY, announce=told.append)
    assert not schedule.due(1, 29.0, saving=False)
    assert schedule.due(2, 30.0, saving=False)
    for now in (30.0, 200.0):
        schedule.tried(2, now)
        schedule.extra_time.call(2.0)
        schedule.saved(1.0)
    assert len(told) == 1
    assert told[0].seconds == pytest.approx(120.0)
    assert not schedule.due(3, 319.0, saving=False)
    assert schedule.due(3, 320.0, saving=False)


def test_the_extra_time_is_the_call_and_what_the_steps_lost():
    extra = ExtraTime()
    assert extra.seconds is None
    for _ in range(5):
        extra.step(1.0, while_saving=False)
    extra.call(0.25)
    extra.step(1.5, while_saving=True)
    extra.step(1.25, while_saving=True)
    extra.saved(3.0)
    assert extra.seconds == pytest.approx(1.0)
    assert extra.durable_seconds == 3.0


def test_faster_steps_while_saving_are_no_gain():
    extra = ExtraTime()
    extra.step(1.0, while_saving=False)
    extra.step(0.5, while_saving=True)
    extra.saved(1.0)
    assert extra.seconds == 0.0
