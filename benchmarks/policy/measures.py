"""The measurements themselves: each takes a task and gives figures; none prints."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.policy import setting
from benchmarks.policy.optimum import optimal_costs
from spotkeep_planner.checkpoint_interval import INTERVALS_S, PRIOR_WORTH_ENDINGS, advise_interval
from spotkeep_planner.forecast import Distribution, fitted_models, forecast
from spotkeep_planner.policies.survival import survival
from spotkeep_planner.replay import Windows, replay
from spotkeep_planner.traces.capacity_trace import BoolArray, FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """How one policy did on one task at one deadline.

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
    """In how many held-out windows what happened lay within the 80% interval of its forecast."""

    windows: int
    within: dict[str, int]


def forecast_coverage(task: setting.PolicyTask, *, windows: int = 30, futures: int = 100) -> Coverage:
    """Forecast each window from what is past, then compare it with what happened."""
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
        by_save_cost: Over all windows of the zone together, by the cost of a save in seconds: one interval is best for
            the zone, and the advice, made anew for each window from what was past, is held against it.
        by_window: Window by window, each against the interval that happened to fit its few runs best.
    """

    zone: str
    by_save_cost: dict[float, float]
    by_window: tuple[float, ...]


def interval_regret(task: setting.PolicyTask) -> IntervalRegret:
    """Advise an interval from what is past, then find the one that would have been best."""
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
        available: (ticks,) every run of it is used to its end; the last is not interrupted.
        intervals_s: Work between two saves.
        tick_s: Seconds a tick.
        save_cost_s: How long training stands still for a save.
        restart_s: Spent at the beginning of every run.

    Returns:
        One share an interval; all are NaN where there is no capacity.
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
    """Return the mean over zones and save costs, and what there is to see behind it."""
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
