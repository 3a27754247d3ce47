"""The numbers about runs that the dashboard adds up. Pure.

A number is the difference between two versions of a run item, so the function that wrote a change counts it, once. The
metrics carry the deployment's name and nothing else. So their number and cost do not grow with runs, owners or
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Cost, Pool, Run


class RunMetric(StrEnum):
    """The names, as CloudWatch has them."""

    # Counted by the function that changes a run.
    RUNS_COMPLETED = "RunsCompleted"
    RUNS_FAILED = "RunsFailed"
    RUNS_STOPPED = "RunsStopped"
    INTERRUPTIONS = "Interruptions"
    LOST_TIME = "LostTime"
    """Instance seconds of steps trained twice, and of the downloading and loading that restarts repeat."""
    WAITED_TIME = "WaitedTime"
    """Seconds without capacity, of attempts that are over."""
    BILLED_USD = "BilledUsd"
    SAVED_USD = "SavedUsd"
    """Against a clean on-demand run. Below zero where interruptions cost more than the discount."""
    IDLE_POOL_USD = "IdlePoolUsd"
    """The part of the bill for warm pools in which nothing ran."""

    # Seen by each pass of the controller.
    RUNS_LAUNCHING = "RunsLaunching"
    RUNS_WAITING = "RunsWaiting"
    RUNS_TRAINING = "RunsTraining"
    RUNS_INTERRUPTED = "RunsInterrupted"
    RUNS_STOPPING = "RunsStopping"
    POOLS_IDLE = "PoolsIdle"
    POOLS_IDLE_USD_PER_HOUR = "PoolsIdleUsdPerHour"


RunMetrics = Mapping[RunMetric, float]

UNITS: Final[Mapping[RunMetric, str]] = {
    RunMetric.LOST_TIME: "Seconds",
    RunMetric.WAITED_TIME: "Seconds",
    RunMetric.BILLED_USD: "None",
    RunMetric.SAVED_USD: "None",
    RunMetric.IDLE_POOL_USD: "None",
    RunMetric.POOLS_IDLE_USD_PER_HOUR: "None",
}
"""CloudWatch's unit of each. Count where nothing is said."""

_ENDINGS: Final = {
    RunState.COMPLETED: RunMetric.RUNS_COMPLETED,
    RunState.FAILED: RunMetric.RUNS_FAILED,
    RunState.STOPPED: RunMetric.RUNS_STOPPED,
}
IN_FLIGHT: Final = {
    RunState.LAUNCHING: RunMetric.RUNS_LAUNCHING,
    RunState.WAITING: RunMetric.RUNS_WAITING,
    RunState.TRAINING: RunMetric.RUNS_TRAINING,
    RunState.INTERRUPTED: RunMetric.RUNS_INTERRUPTED,
    RunState.STOPPING: RunMetric.RUNS_STOPPING,
}
"""The metric of each state that is not an ending."""


def happened_between(before: Run, after: Run) -> RunMetrics:
    """Return the numbers that a change of a run item adds to the sums.

    Args:
        before: The run item that the change was decided on.
        after: The run item as it was written.

    Returns:
        The numbers that are not zero.
    """
    sums = {RunMetric.INTERRUPTIONS: float(after.interruptions - before.interruptions)}
    if after.state.ended and not before.state.ended:
        sums[_ENDINGS[after.state]] = 1.0
    costs_before, costs_after = _of_cost(before.cost), _of_cost(after.cost)
    sums |= {metric: costs_after[metric] - costs_before[metric] for metric in costs_after}
    return {metric: value for metric, value in sums.items() if value}


def in_flight_now(states: Iterable[RunState], pools: Iterable[Pool]) -> RunMetrics:
    """Return the number of runs in each state, as a pass saw them.

    States with no run are in it, too, so that a line falls back to zero.

    Args:
        states: The state of each run.
        pools: The number of warm pools.
    """
    seen = dict.fromkeys(IN_FLIGHT.values(), 0.0)
    for state in states:
        if state in IN_FLIGHT:
            seen[IN_FLIGHT[state]] += 1
    kept = list(pools)
    rates = [(pool.usd_per_hour or 0.0) * pool.traits.instance_count for pool in kept]
    return seen | {RunMetric.POOLS_IDLE: float(len(kept)), RunMetric.POOLS_IDLE_USD_PER_HOUR: sum(rates)}


def total(parts: Iterable[RunMetrics]) -> RunMetrics:
    """Return the sum of several changes."""
    sums: dict[RunMetric, float] = {}
    for part in parts:
        for metric, value in part.items():
            sums[metric] = sums.get(metric, 0.0) + value
    return sums


def _of_cost(cost: Cost | None) -> dict[RunMetric, float]:
    if cost is None:
        return dict.fromkeys(_COST_METRICS, 0.0)
    values = (
        (cost.redone_seconds or 0.0) + cost.restart_overhead_seconds,
        cost.waited_seconds,
        cost.billed_usd or 0.0,
        cost.saved_usd or 0.0,
        cost.idle_pool_usd or 0.0,
    )
    return dict(zip(_COST_METRICS, values, strict=True))


_COST_METRICS: Final = (
    RunMetric.LOST_TIME,
    RunMetric.WAITED_TIME,
    RunMetric.BILLED_USD,
    RunMetric.SAVED_USD,
    RunMetric.IDLE_POOL_USD,
)
