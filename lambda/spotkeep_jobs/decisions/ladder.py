"""The capacity ladder: where a run looks for capacity next when a job of it has ended. Pure.

Managed spot takes one instance type a job and never falls back to on-demand by itself. So a run may have rungs, each a
job of its own on the same checkpoints: when one finds no capacity, the next is tried. The same decision answers the
other endings that another job can mend: a script that may be retried, a job that used up its part of a longer run.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html (InstancePreferences are for
on-demand jobs only)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from spotkeep_jobs.decisions.cost import bill
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.limits import DEFAULT_LONGEST_WAIT_SECONDS
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.facts.record import Attempt, Capacity
from spotkeep_jobs.facts.states import EndReason

_SHORTEST_JOB_SECONDS: Final = 60
_NO_CAPACITY: Final = frozenset({EndReason.CAPACITY, EndReason.MAX_WAIT_EXCEEDED, EndReason.QUOTA})


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One place to look for capacity.

    Attributes:
        capacity: Spot or on-demand.
        instance_types: Best first. Spot has one; on-demand takes the first it can get.
        longest_wait_seconds: How long to wait for capacity at a time before the next rung; None where something else
            ends the waiting: AWS's own limit (max_wait), or the run's deadline.
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
        position: Its rung, from 0.
        rung: What that is.
        max_run_seconds: How long it may train.
        because: Why there is one, in a clause.
    """

    position: int
    rung: Rung
    max_run_seconds: int
    because: str


@dataclass(frozen=True, kw_only=True)
class NoMoreJobs:
    """The run ends here.

    Attributes:
        because: Which bound stopped a job that could have followed, in a sentence; None when none could.
    """

    because: str | None = None


def rungs_of(request: JobRequest) -> tuple[Rung, ...]:
    """The rungs of a validated request, first to last.

    Args:
        request: Its instance types are filled in.
    """
    if request.capacity != "auto":
        return (Rung(capacity=request.capacity, instance_types=request.types),)
    wait = request.longest_wait or DEFAULT_LONGEST_WAIT_SECONDS
    if request.ladder is None:
        spot = [Rung(capacity="spot", instance_types=(each,), longest_wait_seconds=wait) for each in request.types]
        on_demand = Rung(capacity="on-demand", instance_types=request.types, longest_wait_seconds=wait)
        return _until_the_deadline(request, spot if request.spot_only else [*spot, on_demand])
    rungs: list[Rung] = []
    for asked in request.ladder:
        groups = [(each,) for each in asked.types] if asked.capacity == "spot" else [asked.types]
        rungs += [
            Rung(capacity=asked.capacity, instance_types=types, longest_wait_seconds=asked.longest_wait or wait)
            for types in groups
        ]
    return _until_the_deadline(request, rungs)


def _until_the_deadline(request: JobRequest, rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """With a deadline, a clock does not send a run on demand, nor end it there: the policy and the guard decide."""
    if request.deadline is None:
        return tuple(rungs)
    below = [*(rung.capacity for rung in rungs[1:]), "on-demand"]
    return tuple(
        replace(rung, longest_wait_seconds=None) if next_capacity == "on-demand" else rung
        for rung, next_capacity in zip(rungs, below, strict=True)
    )


def on_demand_below(rungs: Sequence[Rung], position: int) -> int | None:
    """The first rung on demand at or below a position; None where there is none."""
    return next((at for at in range(position, len(rungs)) if rungs[at].capacity == "on-demand"), None)


def first_job(
    request: JobRequest, *, prices: Mapping[str, float], spent_usd: float = 0.0, on_demand_because: str | None = None
) -> NextJob:
    """The run's first job, or the first after somebody resumed it.

    Args:
        request: The validated request.
        prices: On-demand US dollars per instance and hour, by instance type.
        spent_usd: What the run has cost so far.
        on_demand_because: Why spot is not even tried; None where it is.

    Returns:
        Its `max_run_seconds` are below `shortest_job_seconds` when max_cost pays for no more.
    """
    rungs = rungs_of(request)
    position = (on_demand_below(rungs, 0) or 0) if on_demand_because is not None else 0
    rung = rungs[position]
    affordable = _affordable_seconds(request, rung, spent_usd=spent_usd, prices=prices)
    seconds = request.max_run if affordable is None else min(request.max_run, affordable)
    because = on_demand_because or "the run was asked for"
    return NextJob(position=position, rung=rung, max_run_seconds=seconds, because=because)


def next_job(
    *,
    request: JobRequest,
    attempts: Sequence[Attempt],
    prices: Mapping[str, float],
    deadline_at: datetime | None = None,
) -> NextJob | NoMoreJobs:
    """Say what follows the run's last job, which has ended.

    Args:
        request: The validated request.
        attempts: All attempts of the run, first to last; the last one has its end and its usage.
        prices: On-demand US dollars per instance and hour, by instance type.
        deadline_at: When the run must be done, if so. It may train until then: work done twice must not cost it its
            end.
    """
    last = attempts[-1]
    rungs = rungs_of(request)
    position = min(last.rung, len(rungs) - 1)
    trained = _trained_seconds(attempts)
    allowed = request.max_total_run or (request.max_run if deadline_at is None else None)
    trained_of_allowed = f"trained {format_duration(int(trained))}" + (
        "" if allowed is None else f" of {format_duration(allowed)}"
    )
    on_demand = on_demand_below(rungs, position)
    match last.end_reason:
        case EndReason.DEADLINE if on_demand is not None:
            position, because = on_demand, last.left_spot_because or "the deadline asks for it"
        case reason if reason in _NO_CAPACITY and len(rungs) > 1:
            if position + 1 == len(rungs):
                return NoMoreJobs(because=f"the ladder has no rung below {rungs[position]}")
            because = f"there was {_WORDS[reason]} for {rungs[position]}"
            position += 1
        case EndReason.SCRIPT_FAILED if request.script_retries:
            failed = sum(attempt.end_reason is EndReason.SCRIPT_FAILED for attempt in attempts)
            if failed > request.script_retries:
                return NoMoreJobs(because=f"the script has failed {failed} times (script_retries)")
            because = f"the script failed and may be started again ({failed} of {request.script_retries})"
        case EndReason.MAX_RUNTIME_EXCEEDED if deadline_at and last.ended_at and last.ended_at >= deadline_at:
            return NoMoreJobs(because="its deadline has passed")
        case EndReason.MAX_RUNTIME_EXCEEDED if request.max_total_run or request.max_cost or deadline_at:
            because = f"the run has {trained_of_allowed}"
        case _:
            return NoMoreJobs()
    if len(attempts) >= request.max_attempts:
        return NoMoreJobs(because=f"the run has had its {request.max_attempts} jobs (max_attempts)")
    rung = rungs[position]
    shortest = shortest_job_seconds(request)
    seconds = request.max_run if allowed is None else min(request.max_run, int(allowed - trained))
    if allowed is not None and seconds < shortest:
        return NoMoreJobs(because=f"the run has trained the {format_duration(allowed)} it may")
    if request.max_cost is not None:
        cost = bill(attempts, prices=prices)
        spent = None if cost is None else cost.billed_usd
        affordable = None if spent is None else _affordable_seconds(request, rung, spent_usd=spent, prices=prices)
        if spent is None or affordable is None:
            return NoMoreJobs(because="what the run has cost is not known, and max_cost bounds it")
        if affordable < shortest:
            return NoMoreJobs(because=f"the run has cost {spent:.2f} of the {request.max_cost:.2f} USD it may")
        seconds = min(seconds, affordable)
    return NextJob(position=position, rung=rung, max_run_seconds=seconds, because=because)


def shortest_job_seconds(request: JobRequest) -> int:
    """What a job must be allowed to train for, to be worth its start."""
    return min(_SHORTEST_JOB_SECONDS, request.max_run)


def price_of(types: Sequence[str], *, prices: Mapping[str, float]) -> float | None:
    """On-demand US dollars per instance and hour: of several types the dearest; None when one is not known."""
    known = [prices[each] for each in types if each in prices]
    return max(known) if known and len(known) == len(types) else None


def _trained_seconds(attempts: Sequence[Attempt]) -> float:
    return sum(attempt.usage.training_seconds or 0.0 for attempt in attempts if attempt.usage is not None)


def _affordable_seconds(
    request: JobRequest, rung: Rung, *, spent_usd: float, prices: Mapping[str, float]
) -> int | None:
    """How long a rung may be paid for at its on-demand price; None when there is no bound, or no price.

    The warm pool that the job may leave is paid for as well.
    """
    price = price_of(rung.instance_types, prices=prices)
    if request.max_cost is None or price is None:
        return None
    # A whole second is not to be lost to the last bit of a quotient.
    return int((request.max_cost - spent_usd) * 3_600 / (price * request.instance_count) + 1e-6) - request.keep_alive


_WORDS: Final = {
    EndReason.CAPACITY: "no capacity",
    EndReason.MAX_WAIT_EXCEEDED: "no capacity in time",
    EndReason.QUOTA: "no quota",
}
