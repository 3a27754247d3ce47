"""The measures of a policy on recorded capacity, and the lowest possible cost, which is the yardstick of each policy.

The lowest cost needs knowledge of the future. Dynamic programming forward in time finds it exactly, over the work done
so far. Its units make ticks, restart and work whole numbers. This policy may use nothing, spot in any zone, or
on-demand. It changes as often as it likes, and pays each restart. It knows when capacity goes, so it needs no saves on
a clock and loses no work. Therefore its cost is a lower bound for jobs with checkpoints too.

A capacity that is started pays off only if it is kept past its restart. So a start is one step in the program. It costs
the ticks of the restart, and ends with the work at the last of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.policy import setting
from spotkeep_planner.errors import PlanError
from spotkeep_planner.forecast import Distribution, fitted_models, forecast
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.planning import INTERVALS_S, PRIOR_WORTH_ENDINGS, advise_interval
from spotkeep_planner.policies import survival
from spotkeep_planner.replay import Windows, replay
from spotkeep_planner.traces import BoolArray, FloatArray

_MOST_UNITS = 2_000_000
_MILLISECONDS = 1000
_SECONDS_PER_HOUR = 3600.0


def optimal_costs(job: PlannedJob, windows: Windows, *, deadlines_s: Sequence[float]) -> FloatArray:
    """Return the lowest possible cost of every window, for several deadlines at the price of the longest.

    Args:
        job: The job, without regard to its deadline.
        windows: The zones and the start of each window.
        deadlines_s: Deadlines in seconds from the start.

    Returns:
        (windows, deadlines) USD. Infinite where even on-demand from the start is too late.

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The result of one policy on one task at one deadline.

    Attributes:
        policy: Its name.
        deadline_h: Hours.
        zones: The zones a job could use.
        ratios: (windows,) cost over the optimum.
        misses: Deadlines missed.
    """

    policy: str
    deadline_h: float
    zones: tuple[str, ...]
    ratios: FloatArray
    misses: int


def windows_of(task: setting.PolicyTask) -> Windows:
    """Return the windows of a task."""
    return Windows(task.judged, starts=task.starts, on_demand_price=task.on_demand_price)


def compare(task: setting.PolicyTask) -> list[Comparison]:
    """Compare every policy at every deadline with the optimum."""
    windows = windows_of(task)
    best = optimal_costs(
        setting.job(max(setting.DEADLINES_H)),
        windows,
        deadlines_s=[deadline_h * setting.HOUR_S for deadline_h in setting.DEADLINES_H],
    )
    found = []
    for number, deadline_h in enumerate(setting.DEADLINES_H):
        for policy in task.policies():
            outcomes = replay(setting.job(deadline_h), windows, policy)
            found.append(
                Comparison(
                    policy=policy.name,
                    deadline_h=deadline_h,
                    zones=windows.zones,
                    ratios=outcomes.cost_usd / best[:, number],
                    misses=int(outcomes.missed.sum()),
                )
            )
    return found


def speed(task: setting.PolicyTask, *, windows: int, deadline_h: float = 60.0) -> dict[str, float | int]:
    """Time our policy for many windows, fitting and solving included."""
    ticks = int(np.ceil(deadline_h * setting.HOUR_S / task.judged[0].tick_s))
    starts = np.linspace(0, len(task.judged[0]) - ticks - 1, windows).astype(int)
    many = Windows(task.judged, starts=starts, on_demand_price=task.on_demand_price)
    policy = survival(prior=task.prior)
    started = time.perf_counter()
    replay(setting.job(deadline_h), many, policy)
    return {
        "windows": windows,
        "deadline_h": deadline_h,
        "tick_s": many.tick_s,
        "seconds": round(time.perf_counter() - started, 2),
        "target_seconds": 60,
    }


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Number of held-out windows in which the outcome lay within the 80% interval of its forecast."""

    windows: int
    within: dict[str, int]


def forecast_coverage(task: setting.PolicyTask, *, windows: int = 30, futures: int = 100) -> Coverage:
    """Forecast each window from its past, then compare the forecast with the outcome."""
    chosen = task.starts[:: max(1, len(task.starts) // windows)]
    real = Windows(task.judged, starts=chosen, on_demand_price=task.on_demand_price)
    policy = survival(prior=task.prior)
    within = {"cost_usd": 0, "finish_s": 0}
    for deadline_h in setting.DEADLINES_H:
        job = setting.job(deadline_h)
        happened = replay(job, real, policy)
        for number, past in enumerate(real.pasts()):
            expected = forecast(
                job,
                policy,
                past=past,
                prior=task.prior,
                on_demand_price=task.on_demand_price,
                futures=futures,
                seed=number,
            )
            within["cost_usd"] += _holds(expected.cost_usd, happened.cost_usd[number])
            within["finish_s"] += _holds(expected.finish_s, happened.finish_s[number])
    return Coverage(windows=len(chosen) * len(setting.DEADLINES_H), within=within)


def pooled_coverage(found: Iterable[Coverage]) -> dict[str, Any]:
    """Return the share over all zones."""
    coverages = list(found)
    count = sum(coverage.windows for coverage in coverages)
    names = coverages[0].within
    return {
        "n": count,
        "share_within_80": {
            name: round(sum(coverage.within[name] for coverage in coverages) / count, 4) for name in names
        },
    }


SAVE_COSTS_S = (10.0, 60.0, 300.0)


@dataclass(frozen=True, kw_only=True)
class IntervalRegret:
    """Goodput of the advised intervals over that of the best fixed interval in hindsight, in one zone.

    Attributes:
        zone: Its name.
        by_save_cost: Over all windows of the zone together, by the cost of a save in seconds. One interval is best for
            the zone. The advice, made anew for each window from its past, is compared with it.
        by_window: Window by window, each against the interval that happened to fit its few runs best.
    """

    zone: str
    by_save_cost: dict[float, float]
    by_window: tuple[float, ...]


def interval_regret(task: setting.PolicyTask) -> IntervalRegret:
    """Advise an interval from the past, then find the one that would have been best."""
    windows = windows_of(task)
    ticks = int(np.ceil(setting.WORK_H * setting.HOUR_S / windows.tick_s))
    restart_s = setting.RESTART_H * setting.HOUR_S
    by_save_cost, by_window = {}, []
    models = [
        fitted_models(past, prior=task.prior, worth_endings=PRIOR_WORTH_ENDINGS)[0].hazard_per_s
        for past in windows.pasts()
    ]
    for save_cost_s in SAVE_COSTS_S:
        durable, advised = np.zeros(len(INTERVALS_S)), 0.0
        for start, hazards in zip(windows.starts.tolist(), models, strict=True):
            advice = advise_interval(
                hazards, save_cost_s=save_cost_s, restart_s=restart_s, work_s=setting.WORK_H * setting.HOUR_S
            )
            stretch = windows.available[0, start : start + ticks]
            if not stretch.any():
                continue
            goodput = goodput_in_hindsight(
                stretch,
                np.append(INTERVALS_S, advice.interval_s),
                tick_s=windows.tick_s,
                save_cost_s=save_cost_s,
                restart_s=restart_s,
            )
            durable += goodput[:-1] * stretch.sum()
            advised += goodput[-1] * stretch.sum()
            if goodput.max() > 0:
                by_window.append(float(goodput[-1] / goodput.max()))
        by_save_cost[save_cost_s] = float(advised / durable.max())
    return IntervalRegret(zone=windows.zones[0], by_save_cost=by_save_cost, by_window=tuple(by_window))


def goodput_in_hindsight(
    available: BoolArray, intervals_s: FloatArray, *, tick_s: float, save_cost_s: float, restart_s: float
) -> FloatArray:
    """Return the share of spot time that would have become durable work in a stretch of capacity, for each interval.

    Args:
        available: (ticks,) each stretch of capacity is used to its end, and the last is not interrupted.
        intervals_s: Work between two saves.
        tick_s: Seconds a tick.
        save_cost_s: Seconds for which training stands still for a save.
        restart_s: Seconds spent at the beginning of each stretch.

    Returns:
        One share an interval. All are NaN where there is no capacity.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], available.astype(np.int8), [0]])))
    lengths_s = (edges[1::2] - edges[::2]) * tick_s
    if not len(lengths_s):
        return np.full(len(intervals_s), np.nan)
    working_s = np.maximum(0.0, lengths_s - restart_s)
    cycles_s = intervals_s[:, None] + save_cost_s
    cycles = np.floor(working_s[None, :] / cycles_s)
    durable_s = cycles * intervals_s[:, None]
    if available[-1]:
        rest_s = working_s[-1] - cycles[:, -1] * cycles_s[:, 0]
        durable_s[:, -1] += np.minimum(rest_s, intervals_s)
    return np.asarray(durable_s.sum(axis=1) / lengths_s.sum(), dtype=np.float64)


def pooled_regret(found: Iterable[IntervalRegret]) -> dict[str, Any]:
    """Return the mean over zones and save costs, and the figures behind it."""
    regrets = list(found)
    by_zone = {
        regret.zone: {f"{cost_s:g}s": round(share, 4) for cost_s, share in regret.by_save_cost.items()}
        for regret in regrets
    }
    shares = [share for regret in regrets for share in regret.by_save_cost.values()]
    every = [share for regret in regrets for share in regret.by_window]
    return {
        "mean": round(float(np.mean(shares)), 4),
        "lowest": round(min(shares), 4),
        "by_zone_and_save_cost": by_zone,
        "window_by_window_mean": round(float(np.mean(every)), 4),
        "n": len(every),
    }


def _holds(expected: Distribution, happened: float) -> bool:
    rounding = 1e-6 * max(1.0, abs(happened))
    return bool(expected.p10 - rounding <= happened <= expected.p90 + rounding)
