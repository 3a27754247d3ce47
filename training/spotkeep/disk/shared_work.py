"""A few threads that share one row of work, to keep a disk or the memory busy from Python.

Copying, adding up, reading and writing release the interpreter's lock, so a second thread uses a second processor. Two
requests keep a disk busy. A few processors at once reach the full speed of memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, Generic, TypeVar

Item = TypeVar("Item")
Piece = tuple[int, int]
"""A start and an end."""

_MOST_MEMORY_THREADS = 8


def usable_processors() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_threads() -> int:
    """Give the number of threads that move memory. It is one for each processor, up to eight, and at least two.

    One core of a server uses a small part of its memory's bandwidth, and some cores together use all of it. The ranks
    that torchrun started on this machine (LOCAL_WORLD_SIZE) save at the same moment, so they share its processors.
    """
    ranks = 1
    with contextlib.suppress(ValueError):
        ranks = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
    return max(2, min(usable_processors() // ranks, _MOST_MEMORY_THREADS))


def pieces(size: int, piece_bytes: int) -> Iterator[Piece]:
    """Cut a length into pieces. Each has a start and an end."""
    return ((start, min(start + piece_bytes, size)) for start in range(0, size, piece_bytes))


def share(items: Iterable[Item], work: Callable[[Iterator[Item]], None], *, threads: int = 2) -> None:
    """Let this thread and, for more than one item, others go through some items in their order.

    It returns when all threads are done, or raises the error of one of them. No thread starts another item after a
    failure.

    Args:
        items: The items of work.
        work: Called in every thread with the items that remain, for as long as it asks for more.
        threads: Number of threads, this one included. Never more than there are items, or than the system starts.
    """
    row = list(items)
    left = ItemsLeft(row)

    def help_along() -> None:
        try:
            work(left)
        except BaseException as problem:  # noqa: BLE001 - it is raised below, in the thread that asked
            left.problem = left.problem or problem

    helpers = [
        threading.Thread(target=help_along, name="spotkeep-helper", daemon=True)
        for _ in range(min(threads, len(row)) - 1)
    ]
    try:
        # Where the system starts no more threads, those that are there do it all.
        with contextlib.suppress(RuntimeError):
            for helper in helpers:
                helper.start()
        help_along()
        _join(helpers)
    except BaseException as problem:
        # An interruption of this thread: the others must not go on with memory that changes from here on.
        left.problem = problem
        _join(helpers)
        raise
    if left.problem is not None:
        raise left.problem


def _join(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        if thread.ident is not None:  # else it was never started
            thread.join()


class ItemsLeft(Generic[Item]):
    """The items that are left, for all threads, until one of them fails.

    Attributes:
        problem: The failure. No thread gets another item after it.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._next = 0
        self._lock = threading.Lock()
        self.problem: BaseException | None = None

    def __bool__(self) -> bool:
        return self._next < len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        with self._lock:
            if self.problem is not None or not self:
                raise StopIteration
            self._next += 1
            return self._items[self._next - 1]
