"""A few threads that share the pieces of a length."""

from __future__ import annotations

import os
import threading

import pytest

from spotkeep.disk import shared_work
from spotkeep.disk.shared_work import memory_threads, pieces, share, usable_processors


def test_a_length_is_cut_into_pieces():
    assert list(pieces(10, 4)) == [(0, 4), (4, 8), (8, 10)]
    assert list(pieces(0, 4)) == []


@pytest.mark.parametrize("size", [0, 3, 4, 5, 400])
def test_each_piece_is_done_once(size):
    done = []
    share(pieces(size, 4), done.extend)
    assert sorted(done) == list(pieces(size, 4))


def test_two_threads_are_at_it_at_once():
    both = threading.Barrier(2, timeout=30)
    share(pieces(8, 4), lambda left: [both.wait() for _ in left])


def test_or_as_many_as_asked_for_and_never_more_than_there_are_pieces():
    every_one = threading.Barrier(3, timeout=30)
    share(pieces(12, 4), lambda left: [every_one.wait() for _ in left], threads=8)
    assert threading.active_count() == 1 or all(thread.name != "spotkeep-helper" for thread in threading.enumerate())


def test_one_piece_needs_no_other_thread():
    threads = []
    share(pieces(4, 4), lambda left: threads.extend(threading.current_thread() for _ in left))
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("there_are", [0, 1])
def test_where_no_other_thread_can_be_started_those_that_are_there_do_it_all(only_so_many_threads_start, there_are):
    done = []
    only_so_many_threads_start(there_are)
    share(pieces(400, 4), done.extend, threads=4)
    assert sorted(done) == list(pieces(400, 4))
    assert all(thread.name != "spotkeep-helper" for thread in threading.enumerate())


@pytest.mark.parametrize("in_helper", [True, False])
def test_a_failure_of_one_thread_ends_all_and_is_raised(in_helper):
    asking = threading.current_thread()
    both = threading.Barrier(2, timeout=30)
    begun = []

    def work(left):
        for piece in left:
            begun.append(piece)
            if len(begun) <= 2:
                both.wait()
            if (threading.current_thread() is not asking) == in_helper:
                raise KeyError(piece)

    with pytest.raises(KeyError):
        share(pieces(10**6, 4), work)
    assert threading.active_count() == 1 or all(thread.name != "spotkeep-helper" for thread in threading.enumerate())


def test_who_interrupts_the_asking_thread_finds_the_others_stopped(monkeypatch):
    really_join = threading.Thread.join
    interrupted = []

    def join(self, timeout=None):
        if self.name == "spotkeep-helper" and not interrupted:
            interrupted.append(self)
            raise KeyboardInterrupt
        really_join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", join)
    with pytest.raises(KeyboardInterrupt):
        share(pieces(16, 4), list, threads=4)
    assert not interrupted[0].is_alive()
    assert all(thread.name != "spotkeep-helper" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("processors", "ranks", "threads"),
    [(1, None, 2), (2, None, 2), (4, None, 4), (96, None, 8), (16, "4", 4), (8, "8", 2), (16, "many", 8), (16, "0", 8)],
)
def test_each_processor_moves_memory_and_the_ranks_of_a_machine_share_them(monkeypatch, processors, ranks, threads):
    monkeypatch.setattr(shared_work, "usable_processors", lambda: processors)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if ranks is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert memory_threads() == threads


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux binds a process to processors")
def test_a_processor_that_this_process_may_not_use_does_not_count():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_processors() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable_processors() == len(allowed)
