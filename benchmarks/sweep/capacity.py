"""When a worker's capacity is there: always, or as a recorded zone's was."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spotkeep_planner.traces.capacity_trace import CapacityTrace


class Stretch(NamedTuple):
    """What became of some work.

    Attributes:
        ended_at_s: When it was done, or interrupted.
        billed_s: How long the capacity worked for it.
        was_done: Whether it was done.
    """

    ended_at_s: float
    billed_s: float
    was_done: bool


class WorkerCapacity(Protocol):
    """The capacity of one worker."""

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        """Begin some work as soon as there is capacity, and do it until it is done or interrupted.

        Args:
            at_s: When it could begin.
            for_s: How long it takes.
        """


class Uninterrupted:
    """Capacity that is always there."""

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        """See `WorkerCapacity`."""
        return Stretch(at_s + for_s, for_s, was_done=True)


class RecordedZone:
    """Capacity as it was in a zone, from a moment on; after its end the trace begins again."""

    def __init__(self, trace: CapacityTrace, *, begin: int) -> None:
        """Bind the zone.

        Args:
            trace: What was recorded.
            begin: The tick at which time is 0.
        """
        available = np.roll(np.asarray(trace.available, dtype=bool), -begin)
        self._tick_s = trace.tick_s
        self._ticks = len(available)
        twice = np.concatenate([available, available])
        self._next_up = _next(twice)[: self._ticks]
        self._next_down = _next(~twice)[: self._ticks]

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        """See `WorkerCapacity`."""
        begin_s = self._when(self._next_up, at_s)
        taken_s = self._when(self._next_down, begin_s)
        if begin_s + for_s <= taken_s:
            return Stretch(begin_s + for_s, for_s, was_done=True)
        return Stretch(taken_s, taken_s - begin_s, was_done=False)

    def _when(self, following: NDArray[np.int64], at_s: float) -> float:
        """Return when the next tick of a kind begins, or the moment itself where it is in one."""
        rounds, tick = divmod(int(at_s // self._tick_s), self._ticks)
        return max(at_s, (rounds * self._ticks + int(following[tick])) * self._tick_s)


def _next(is_so: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each tick the first one from it on at which something is so; far away where it never is."""
    ticks = np.where(is_so, np.arange(len(is_so)), np.iinfo(np.int64).max // 4)
    return np.minimum.accumulate(ticks[::-1])[::-1]
