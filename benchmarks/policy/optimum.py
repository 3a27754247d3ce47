"""The cheapest that was possible with knowledge of the future: the yardstick for every policy.

Found by dynamic programming forward in time over the work done so far, exactly: in the units in which ticks, restart
and work are whole numbers. It may use nothing, spot in any zone, or on-demand, changes as often as it likes, and pays
every restart. Knowing when capacity goes, it needs no saves on a clock and loses no work, so it is a lower bound for
jobs with checkpoints too.

A capacity that is started only pays off if it is kept past its restart, so a start is one step in the program: it costs
the ticks of the restart and lands where the last of them leaves the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spotkeep_planner.errors import PlanError
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.replay import Windows
from spotkeep_planner.traces.capacity_trace import BoolArray, FloatArray

_MOST_UNITS = 2_000_000
_MILLISECONDS = 1000
_SECONDS_PER_HOUR = 3600.0


def optimal_costs(job: PlannedJob, windows: Windows, *, deadlines_s: Sequence[float]) -> FloatArray:
    """Return the lowest possible cost of every window, for several deadlines at the price of the longest.

    Args:
        job: The job; its deadline is not used.
        windows: Where and when it starts.
        deadlines_s: Deadlines in seconds from the start.

    Returns:
        (windows, deadlines) USD; infinite where even on-demand from the start is too late.

    Raises:
        PlanError: A window reaches beyond the trace, or the durations have no usable common unit.
    """
    ticks = math.ceil(max(deadlines_s) / windows.tick_s)
    if int(windows.starts.max()) + ticks > windows.available.shape[1]:
        raise PlanError("a window reaches beyond the end of the trace: start earlier, or give a longer trace")
    program = _Program(job, tick_s=windows.tick_s, deadlines_s=deadlines_s)
    best = np.empty((len(windows), len(deadlines_s)))
    for number, start in enumerate(windows.starts.tolist()):
        at = slice(start, start + ticks)
        # On-demand is one more place, always there.
        available = np.vstack([windows.available[:, at], np.ones((1, ticks), dtype=np.bool_)])
        hourly = np.vstack([windows.spot_price[:, at], np.full((1, ticks), windows.on_demand_price)])
        best[number] = program.solve(available, hourly * windows.tick_s / _SECONDS_PER_HOUR)
    return best


class _Program:
    """The dynamic program of one job and tick."""

    def __init__(self, job: PlannedJob, *, tick_s: float, deadlines_s: Sequence[float]) -> None:
        whole = [round(seconds * _MILLISECONDS) for seconds in (tick_s, job.restart_s, job.work_s)]
        unit = math.gcd(*whole)
        self._tick, self._restart, self._work = (length // unit for length in whole)
        if self._work > _MOST_UNITS:
            raise PlanError(
                f"tick {tick_s:g} s, restart {job.restart_s:g} s and work {job.work_s:g} s have no common unit above "
                f"{unit / _MILLISECONDS:g} s; give the restart and the work in whole multiples of a second"
            )
        self._deadlines = [math.floor(seconds * _MILLISECONDS / unit + 1e-9) for seconds in deadlines_s]
        self._restart_ticks = math.ceil(self._restart / self._tick)
        self._restart_gain = self._restart_ticks * self._tick - self._restart

    def solve(self, available: BoolArray, tick_cost: FloatArray) -> FloatArray:
        """Return the lowest costs.

        Args:
            available: (places, ticks).
            tick_cost: (places, ticks) USD for a whole tick.

        Returns:
            (deadlines,) USD.
        """
        places, ticks = available.shape
        work, tick, starting, gain = self._work, self._tick, self._restart_ticks, self._restart_gain
        best = np.full(len(self._deadlines), np.inf)
        # The lowest cost to be at work in a place, and to be anywhere, by units of work done.
        at_work = np.full((places, work), np.inf)
        anywhere = np.full(work, np.inf)
        anywhere[0] = 0.0
        earlier: list[FloatArray] = []
        paid = np.concatenate([np.zeros((places, 1)), np.cumsum(tick_cost, axis=1)], axis=1)
        there = np.concatenate([np.zeros((places, 1)), np.cumsum(available, axis=1)], axis=1)
        for now in range(ticks + 1):
            reach = min(work, now * tick + 1)
            begun = now - starting
            if not starting:
                # A restart that takes no time: who is at work in one place can go on in any other at once.
                np.minimum(anywhere[:reach], at_work[:, :reach].min(axis=0), out=anywhere[:reach])
            for place in range(places) if begun >= 0 else ():
                if there[place, now] - there[place, begun] < starting:
                    continue
                cost = paid[place, now] - paid[place, begun]
                before = anywhere if starting == 0 else earlier[begun]
                if gain < work:
                    landing = before[: work - gain] + cost
                    np.minimum(at_work[place, gain:], landing, out=at_work[place, gain:])
                if starting:
                    self._finish(
                        best,
                        before,
                        since=begun,
                        lead=self._restart,
                        last=now - 1,
                        paid_before=paid[place, now - 1] - paid[place, begun],
                        last_cost=tick_cost[place, now - 1],
                    )
            np.minimum(anywhere[:reach], at_work[:, :reach].min(axis=0), out=anywhere[:reach])
            if now == ticks:
                break
            earlier.append(anywhere.copy() if starting else anywhere)
            if len(earlier) > starting:
                earlier[len(earlier) - starting - 1] = _SPENT
            for place in range(places):
                if not available[place, now]:
                    at_work[place] = np.inf
                    continue
                cost = tick_cost[place, now]
                self._finish(best, at_work[place], since=now, lead=0, last=now, paid_before=0.0, last_cost=cost)
                end = max(tick, min(work, reach + tick))
                at_work[place, tick:end] = at_work[place, : end - tick] + cost
                at_work[place, :tick] = np.inf
        return best

    def _finish(
        self,
        best: FloatArray,
        before: FloatArray,
        *,
        since: int,
        lead: int,
        last: int,
        paid_before: float,
        last_cost: float,
    ) -> None:
        """End the work in the last of some ticks, paying for the part of it that is used.

        Args:
            best: (deadlines,) improved in place.
            before: Lowest cost by work done, when the ticks begin.
            since: The first of the ticks.
            lead: Units of restart that come before the work.
            last: The last of them.
            paid_before: The cost of those before the last.
            last_cost: The cost of the last, if all of it were used.
        """
        most = (last - since + 1) * self._tick - lead
        if most <= 0:
            return
        first = max(0, self._work - most)
        left = np.arange(self._work - first, 0, -1)
        used_in_last = lead + left - (last - since) * self._tick
        costs = before[first:] + paid_before + last_cost * used_in_last / self._tick
        ends = since * self._tick + lead + left
        for number, deadline in enumerate(self._deadlines):
            in_time = costs[ends <= deadline]
            if len(in_time):
                best[number] = min(best[number], float(in_time.min()))


_SPENT = np.empty(0)
