"""Parts that move at once: all of them, or the first problem; and a pace that is kept."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.remote import transfer as module
from spotkeep.remote.transfer import Pace, TransferCancelledError, transfer

NEVER = threading.Event()


def test_every_part_is_moved_once():
    moved = []
    transfer(range(100), moved.append, cancelled=NEVER)
    assert sorted(moved) == list(range(100))


def test_several_are_on_their_way_at_once():
    together = threading.Barrier(4)
    transfer(range(8), lambda part: together.wait(30), cancelled=NEVER)


@pytest.mark.parametrize("there_are", [0, 1])
def test_where_no_other_thread_can_be_started_those_that_are_there_move_it_all(only_so_many_threads_start, there_are):
    moved = []
    only_so_many_threads_start(there_are)
    transfer(range(100), moved.append, cancelled=NEVER)
    assert sorted(moved) == list(range(100))


def test_the_first_problem_ends_it():
    moved = []

    def move(part):
        moved.append(part)
        if part == 3:
            raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        transfer(range(10**6), move, cancelled=NEVER)
    assert len(moved) < 10**6


def test_it_can_be_broken_off():
    cancelled = threading.Event()
    moved = []

    def move(part):
        moved.append(part)
        cancelled.set()

    with pytest.raises(TransferCancelledError):
        transfer(range(100), move, cancelled=cancelled)
    assert len(moved) < 100


class Clock:
    """Time that passes only during a wait."""

    def __init__(self):
        self.now = 100.0
        self.cancelled = self

    def monotonic(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        return False


@given(sizes=st.lists(st.integers(1, 10**8), min_size=1, max_size=30), rate=st.floats(1e5, 1e9))
def test_the_pace_is_kept_on_average(sizes, rate):
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        pace = Pace(rate)
        for size in sizes:
            pace.wait(size, cancelled=clock)
    # The last part has just been let through, and takes its own time.
    assert clock.now - 100 == pytest.approx(sum(sizes[:-1]) / rate, rel=1e-6, abs=1e-9)


def test_a_pace_that_is_lifted_waits_no_more(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    pace = Pace(1.0)
    pace.wait(10**9, cancelled=clock)
    pace.lift()
    pace.wait(10**9, cancelled=clock)
    assert clock.now == 100


def test_who_waits_for_a_turn_is_let_go_when_it_is_broken_off():
    cancelled = threading.Event()
    pace = Pace(1.0)
    pace.wait(10**6, cancelled=cancelled)
    cancelled.set()
    with pytest.raises(TransferCancelledError):
        pace.wait(1, cancelled=cancelled)


def test_a_problem_of_what_lists_the_parts_ends_it_too():
    def parts():
        yield from range(20)
        raise OSError("no list")

    with pytest.raises(OSError, match="no list"):
        transfer(parts(), lambda part: None, cancelled=NEVER)
