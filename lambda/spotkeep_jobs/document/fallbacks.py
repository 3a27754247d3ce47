"""The capacity ladder of a request: its fallbacks, and the job that a run begins with. Pure.

Managed spot takes one instance type a job and never falls back to on-demand by itself. So a run may have fallbacks,
each a job of its own on the same checkpoints: when one finds no capacity, the next is tried.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html (InstancePreferences are for
on-demand jobs only)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.record import Capacity

_SHORTEST_JOB_SECONDS: Final = 60
_DEFAULT_LONGEST_WAIT_SECONDS: Final = 3_600
_ON_DEMAND_WAITS: Final = timedelta(days=1)
"""As long as a job on spot waits whose document does not say how long."""


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """One kind of capacity to ask for.

    Attributes:
        capacity: Spot or on-demand.
        instance_types: Best first. Spot has one; on-demand takes the first it can get.
        longest_wait_seconds: How long to wait for capacity at a time before the next fallback; None where something
            else ends the waiting: AWS's own limit (max_wait), or the run's deadline.
    """

    capacity: Capacity
    instance_types: tuple[str, ...]
    longest_wait_seconds: int | None = None

    def __str__(self) -> str:
        return f"{self.capacity} {' or '.join(self.instance_types)}"


@dataclass(frozen=True, kw_only=True)
class NextJob:
    """Another job for the run.

    Attributes:
        position: Its fallback, from 0.
        fallback: What that is.
        max_run_seconds: How long it may train.
        because: Why there is one, in a clause.
        pause_seconds: How long to wait before it is created; SageMaker had no capacity a moment ago.
        no_capacity_since: Since when SageMaker has had none, over the jobs before it; None where it is not asked again.
    """

    position: int
    fallback: Fallback
    max_run_seconds: int
    because: str
    pause_seconds: int = 0
    no_capacity_since: datetime | None = None


def fallbacks_of(request: JobRequest) -> tuple[Fallback, ...]:
    """Return the fallbacks of a validated request, first to last.

    Args:
        request: Its instance types are filled in.
    """
    if request.capacity != "auto":
        wait = request.longest_wait
        return (Fallback(capacity=request.capacity, instance_types=request.types, longest_wait_seconds=wait),)
    wait = request.longest_wait or _DEFAULT_LONGEST_WAIT_SECONDS
    if request.ladder is None:
        spot = [Fallback(capacity="spot", instance_types=(each,), longest_wait_seconds=wait) for each in request.types]
        on_demand = Fallback(capacity="on-demand", instance_types=request.types, longest_wait_seconds=wait)
        return _until_the_deadline(request, spot if request.spot_only else [*spot, on_demand])
    fallbacks: list[Fallback] = []
    for asked in request.ladder:
        groups = [(each,) for each in asked.types] if asked.capacity == "spot" else [asked.types]
        fallbacks += [
            Fallback(capacity=asked.capacity, instance_types=types, longest_wait_seconds=asked.longest_wait or wait)
            for types in groups
        ]
    return _until_the_deadline(request, fallbacks)


def types_of(request: JobRequest) -> tuple[str, ...]:
    """Return the instance types of all fallbacks of a validated request, each once."""
    return tuple(dict.fromkeys(each for fallback in fallbacks_of(request) for each in fallback.instance_types))


def _until_the_deadline(request: JobRequest, fallbacks: Sequence[Fallback]) -> tuple[Fallback, ...]:
    """With a deadline, a clock does not send a run on demand, nor end it there: the policy and the guard decide."""
    if request.deadline is None:
        return tuple(fallbacks)
    below = [*(fallback.capacity for fallback in fallbacks[1:]), "on-demand"]
    return tuple(
        replace(fallback, longest_wait_seconds=None) if next_capacity == "on-demand" else fallback
        for fallback, next_capacity in zip(fallbacks, below, strict=True)
    )


def longest_wait_without_a_job(request: JobRequest) -> timedelta:
    """Return how long a run may wait for a job on its last fallback: for room in a quota, or for capacity that failed.

    On spot it is what `max_wait` leaves over `max_run`: a wait without a job counts as one with it.

    Args:
        request: The validated request.
    """
    longest = fallbacks_of(request)[-1].longest_wait_seconds
    if longest is not None:
        return timedelta(seconds=longest)
    if request.max_wait is not None:
        return timedelta(seconds=request.max_wait - request.max_run)
    return _ON_DEMAND_WAITS


def on_demand_below(fallbacks: Sequence[Fallback], position: int) -> int | None:
    """Return the first fallback on demand at or below a position; None where there is none."""
    return next((at for at in range(position, len(fallbacks)) if fallbacks[at].capacity == "on-demand"), None)


def first_job(
    request: JobRequest, *, prices: Mapping[str, float], spent_usd: float = 0.0, on_demand_because: str | None = None
) -> NextJob:
    """Return the run's first job, or the first after it was resumed.

    Args:
        request: The validated request.
        prices: On-demand US dollars per instance and hour, by instance type.
        spent_usd: What the run has cost so far.
        on_demand_because: Why spot is not even tried; None where it is.

    Returns:
        Its `max_run_seconds` are below `shortest_job_seconds` when max_cost pays for no more.
    """
    fallbacks = fallbacks_of(request)
    position = (on_demand_below(fallbacks, 0) or 0) if on_demand_because is not None else 0
    fallback = fallbacks[position]
    affordable = affordable_seconds(request, fallback, spent_usd=spent_usd, prices=prices)
    seconds = request.max_run if affordable is None else min(request.max_run, affordable)
    because = on_demand_because or "the run was asked for"
    return NextJob(position=position, fallback=fallback, max_run_seconds=seconds, because=because)


def shortest_job_seconds(request: JobRequest) -> int:
    """Return what a job must be allowed to train for, to be worth its start."""
    return min(_SHORTEST_JOB_SECONDS, request.max_run)


def price_of(types: Sequence[str], *, prices: Mapping[str, float]) -> float | None:
    """On-demand US dollars per instance and hour: of several types the dearest; None when one is not known."""
    known = [prices[each] for each in types if each in prices]
    return max(known) if known and len(known) == len(types) else None


def affordable_seconds(
    request: JobRequest, fallback: Fallback, *, spent_usd: float, prices: Mapping[str, float]
) -> int | None:
    """Return how long a fallback may be paid for at its on-demand price; None when there is no bound, or no price.

    The warm pool that the job may leave is paid for as well.
    """
    price = price_of(fallback.instance_types, prices=prices)
    if request.max_cost is None or price is None:
        return None
    # A whole second is not to be lost to the last bit of a quotient.
    return int((request.max_cost - spent_usd) * 3_600 / (price * request.instance_count) + 1e-6) - request.keep_alive
