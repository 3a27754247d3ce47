"""Compares spot with a warm pool for a job, in cost and time. Pure.

Spot bills the work at spot's share of the price, and waits for a new host at every job. A warm pool bills the work and
the time between two jobs in full. It starts the next job on the host that is there. So a pool is bought for time, not
to save money. It is the cheaper one only where spot's interruptions eat its discount. The judgement comes from earlier
runs of the same name. Facts that they do not show are not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.lists import is_rehearsal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotkeep_jobs.record.record import Cost, Run

NEW_HOST_START_SECONDS: Final = 176.0
KEPT_HOST_START_SECONDS: Final = 70.0
"""Start-up with data in File mode, at the 90th percentile, as AWS measured it.
Source: https://aws.amazon.com/blogs/machine-learning/best-practices-for-amazon-sagemaker-training-managed-warm-pools/"""

DEFAULT_KEEP_ALIVE_SECONDS: Final = 1800
MOST_RUNS: Final = 500
"""Number of newest runs that are searched for those of the job's name."""

_FEWEST_RUNS: Final = 2
_NEWEST: Final = 20
_SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, kw_only=True)
class Habits:
    """The typical figures of a name's runs, for the next one.

    Attributes:
        runs: Number of runs that were read.
        work_seconds: Median working time of a run in seconds, without work that interruptions repeated.
        gap_seconds: Median seconds from the end of one run to the launch of the next.
        spot_share: Cost on spot as a share of the on-demand cost of the same work, over all of them. None without a
            spot run.
    """

    runs: int
    work_seconds: float
    gap_seconds: float
    spot_share: float | None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The cheaper choice, and the difference. Instance seconds are at the on-demand price, for one job.

    Attributes:
        cheaper: Spot or pool, or None where no spot run shows the cost of spot.
        habits: The figures behind the advice.
        keep_alive_seconds: Seconds that the pool would be kept.
        spot_seconds: Cost of a job on spot in instance seconds, or None when not known.
        pool_seconds: Cost of a job with a pool in instance seconds, including the wait for the next.
        sooner_seconds: Seconds by which the next job starts sooner on a pool.
        usd_per_second: Price in USD of an instance second. None when not known.
    """

    cheaper: Literal["spot", "pool"] | None
    habits: Habits
    keep_alive_seconds: int
    spot_seconds: float | None
    pool_seconds: float
    sooner_seconds: float
    usd_per_second: float | None

    def __str__(self) -> str:
        gap = quantities.duration(self.habits.gap_seconds)
        by = (
            f"{quantities.duration(self.habits.work_seconds)} of work, {gap} until the next, by {self.habits.runs} runs"
        )
        sooner = f"the next job starts about {quantities.duration(self.sooner_seconds)} sooner"
        if not self.sooner_seconds:
            sooner = f"the next job comes too late for a pool of {quantities.duration(self.keep_alive_seconds)}"
        pool = self._amount(self.pool_seconds)
        if self.spot_seconds is None:
            return f"a job with a pool costs {pool} ({by}), and {sooner}; no spot run says what spot costs"
        spot = self._amount(self.spot_seconds)
        if self.cheaper == "pool":
            return f"the pool is cheaper: {pool} a job, on spot {spot} ({by}); and {sooner}"
        if not self.sooner_seconds:
            return f"spot is cheaper: {spot} a job, with a pool {pool} ({by}); {sooner}"
        more = self._amount(self.pool_seconds - self.spot_seconds)
        return f"spot is cheaper: {spot} a job, with a pool {pool} ({by}). For {more} more, {sooner}"

    def as_document(self) -> dict[str, Any]:
        """Return the advice for programs."""
        price = self.usd_per_second
        return {
            "cheaper": self.cheaper,
            "because": str(self),
            "runs": self.habits.runs,
            "work_seconds": self.habits.work_seconds,
            "gap_seconds": self.habits.gap_seconds,
            "spot_share": self.habits.spot_share,
            "spot_seconds": self.spot_seconds,
            "pool_seconds": self.pool_seconds,
            "spot_usd": None if price is None or self.spot_seconds is None else round(self.spot_seconds * price, 6),
            "pool_usd": None if price is None else round(self.pool_seconds * price, 6),
            "sooner_seconds": self.sooner_seconds,
        }

    def _amount(self, seconds: float) -> str:
        if self.usd_per_second is not None:
            return quantities.dollars(seconds * self.usd_per_second)
        return f"{quantities.duration(seconds)} of instance time"


def habits_of(runs: Sequence[Run], *, name: str) -> Habits | None:
    """Return the typical figures of a name's runs, for the next one.

    Args:
        runs: Any runs, in any order.
        name: The job's name.

    Returns:
        None when too few of them have ended for figures.
    """
    same = sorted((run for run in runs if run.name == name and not is_rehearsal(run)), key=lambda run: run.created_at)[
        -_NEWEST:
    ]
    done = [run for run in same if run.ended_at is not None and run.cost is not None]
    gaps = [
        max(0.0, (after.created_at - before.ended_at).total_seconds())
        for before, after in pairwise(same)
        if before.ended_at is not None
    ]
    works = [run.cost.clean_on_demand_seconds / _instances_of(run, run.cost) for run in done if run.cost is not None]
    works = [seconds for seconds in works if seconds > 0]
    if len(same) < _FEWEST_RUNS or not gaps or not works:
        return None
    spot = [run.cost for run in done if run.cost is not None and run.place.capacity == "spot"]
    clean = sum(cost.clean_on_demand_seconds for cost in spot)
    return Habits(
        runs=len(same),
        work_seconds=median(works),
        gap_seconds=median(gaps),
        spot_share=sum(cost.billed_seconds for cost in spot) / clean if clean else None,
    )


def _instances_of(run: Run, cost: Cost) -> float:
    """Return the number of instances that worked at a time, as a mean of a run whose jobs had other numbers."""
    if run.changed_instances and cost.worked_seconds:
        return cost.training_seconds / cost.worked_seconds
    return run.place.instance_count


def advise(habits: Habits, *, keep_alive_seconds: int, instance_count: int, usd_per_hour: float | None) -> Advice:
    """Compare spot with a warm pool for the next job.

    Args:
        habits: The figures of such jobs.
        keep_alive_seconds: Seconds that the pool would be kept. 0 for half an hour.
        instance_count: Number of instances of a job.
        usd_per_hour: On-demand price of one instance in USD an hour, if it is known.
    """
    keep = keep_alive_seconds or DEFAULT_KEEP_ALIVE_SECONDS
    in_time = habits.gap_seconds <= keep
    spot = None if habits.spot_share is None else habits.work_seconds * habits.spot_share * instance_count
    pool = (habits.work_seconds + min(habits.gap_seconds, keep)) * instance_count
    cheaper: Literal["spot", "pool"] | None = None
    if spot is not None:
        cheaper = "pool" if pool < spot else "spot"
    return Advice(
        cheaper=cheaper,
        habits=habits,
        keep_alive_seconds=keep,
        spot_seconds=spot,
        pool_seconds=pool,
        sooner_seconds=NEW_HOST_START_SECONDS - KEPT_HOST_START_SECONDS if in_time else 0.0,
        usd_per_second=None if usd_per_hour is None else usd_per_hour / _SECONDS_PER_HOUR,
    )


def advice_for(request: Mapping[str, Any], *, usd_per_hour: float | None, runs: Sequence[Run]) -> Advice | None:
    """Return the advice for a judged job. None when its name has no history, or it is on EC2, without pools.

    Args:
        request: The job with its defaults. A refused job's is empty, and gets no advice.
        usd_per_hour: The on-demand price of one instance, where the deployment knows it.
        runs: The deployment's newest runs.
    """
    habits = None if request.get("backend") == "ec2" else habits_of(runs, name=str(request.get("name", "")))
    if habits is None:
        return None
    return advise(
        habits,
        keep_alive_seconds=int(request.get("keep_alive") or 0),
        instance_count=int(request.get("instance_count") or 1),
        usd_per_hour=usd_per_hour,
    )
