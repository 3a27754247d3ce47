"""The step after a run's last job. Either another job follows on one of its fallbacks, or the run ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.backends.sagemaker.job_status import is_internal_server_error
from spotkeep_jobs.document.capacity import (
    NextJob,
    affordable_seconds,
    fallbacks_of,
    longest_wait_without_a_job,
    on_demand_below,
    shortest_job_seconds,
)
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.record.record import Attempt, Cost
from spotkeep_jobs.record.states import EndReason

_FIRST_PAUSE_SECONDS: Final = 300
_LONGEST_PAUSE_SECONDS: Final = 3600
"""The pause before SageMaker is asked again doubles each time, up to this."""
_MOST_DOUBLINGS: Final = 10
_NO_CAPACITY: Final = frozenset({EndReason.CAPACITY, EndReason.MAX_WAIT_EXCEEDED, EndReason.QUOTA})


@dataclass(frozen=True, kw_only=True)
class NoMoreJobs:
    """The run ends here.

    Attributes:
        because: A sentence about the bound that stopped a next job, or None if none could follow.
        max_cost_is_spent: True if it was max_cost.
    """

    because: str | None = None
    max_cost_is_spent: bool = False


def next_job(
    *,
    request: JobRequest,
    attempts: Sequence[Attempt],
    cost: Cost | None,
    prices: Mapping[str, float],
    deadline_at: datetime | None = None,
) -> NextJob | NoMoreJobs:
    """Return the step after the run's last job, which has ended.

    The run may train until its deadline. Repeated work must not make the run end earlier.

    Args:
        request: The validated request.
        attempts: All attempts of the run, first to last, of which the last one has its end and its usage.
        cost: The cost of the attempts, or None if it is not known.
        prices: On-demand US dollars per instance and hour, by instance type.
        deadline_at: The time of the run's deadline, if it has one.
    """
    last = attempts[-1]
    fallbacks = fallbacks_of(request)
    position = min(last.fallback, len(fallbacks) - 1)
    trained = _trained_seconds(attempts)
    allowed = request.max_total_run or (request.max_run if deadline_at is None else None)
    trained_of_allowed = f"trained {format_duration(int(trained))}" + (
        "" if allowed is None else f" of {format_duration(allowed)}"
    )
    on_demand = on_demand_below(fallbacks, position)
    pause, no_capacity_since = 0, None
    match last.end_reason:
        case EndReason.DEADLINE if on_demand is not None:
            asked = last.asked_to_end
            position, because = on_demand, "the deadline asks for it" if asked is None else asked.text
        case EndReason.CAPACITY if position + 1 == len(fallbacks):
            again = _asked_again(attempts, request=request, deadline_at=deadline_at)
            if again is None:
                return NoMoreJobs(because=f"SageMaker had no capacity for {fallbacks[position]} in time")
            pause, no_capacity_since = again
            because = f"there was no capacity for {fallbacks[position]}, and SageMaker is asked again"
        case reason if reason in _NO_CAPACITY and len(fallbacks) > 1:
            if position + 1 == len(fallbacks):
                return NoMoreJobs(because=f"the ladder has no fallback below {fallbacks[position]}")
            because = f"there was {_WORDS[reason]} for {fallbacks[position]}"
            position += 1
        case EndReason.SCRIPT_FAILED if request.script_retries:
            failed = sum(attempt.end_reason is EndReason.SCRIPT_FAILED for attempt in attempts)
            if failed > request.script_retries:
                return NoMoreJobs(because=f"the script has failed {failed} times (script_retries)")
            because = f"the script failed and may be started again ({failed} of {request.script_retries})"
        case EndReason.PLATFORM_ERROR if is_internal_server_error(last.failure_reason):
            pause = _pause_after_errors_of_sagemaker(attempts)
            because = "SageMaker had an error of its own (InternalServerError)"
        case EndReason.MAX_RUNTIME_EXCEEDED if deadline_at and last.ended_at and last.ended_at >= deadline_at:
            return NoMoreJobs(because="its deadline has passed")
        case EndReason.MAX_RUNTIME_EXCEEDED if request.max_total_run or request.max_cost or deadline_at:
            because = f"the run has {trained_of_allowed}"
        case _:
            return NoMoreJobs()
    if len(attempts) >= request.max_attempts:
        return NoMoreJobs(because=f"the run has had its {request.max_attempts} jobs (max_attempts)")
    fallback = fallbacks[position]
    shortest = shortest_job_seconds(request)
    seconds = request.max_run if allowed is None else min(request.max_run, int(allowed - trained))
    if allowed is not None and seconds < shortest:
        return NoMoreJobs(because=f"the run has trained the {format_duration(allowed)} it may")
    if request.max_cost is not None:
        spent = None if cost is None else cost.billed_usd
        affordable = None if spent is None else affordable_seconds(request, fallback, spent_usd=spent, prices=prices)
        if spent is None or affordable is None:
            return NoMoreJobs(because="what the run has cost is not known, and max_cost bounds it")
        if affordable < shortest:
            return NoMoreJobs(
                because=f"the run has cost {spent:.2f} of the {request.max_cost:.2f} USD it may", max_cost_is_spent=True
            )
        seconds = min(seconds, affordable)
    return NextJob(
        position=position,
        fallback=fallback,
        max_run_seconds=seconds,
        because=because,
        pause_seconds=pause,
        no_capacity_since=no_capacity_since,
    )


def _asked_again(
    attempts: Sequence[Attempt], *, request: JobRequest, deadline_at: datetime | None
) -> tuple[int, datetime] | None:
    """Return the time to ask SageMaker again after it had no capacity for the run's last job.

    Returns:
        The seconds until then, and the time since when there has been no capacity. None if the run's longest wait is
        over.
    """
    last = attempts[-1]
    ended_at = last.ended_at or last.created_at
    since = ended_at
    if last.started_at is None:
        since = (last.retry and last.retry.no_capacity_since) or last.created_at
    refused = 0
    for attempt in reversed(attempts):
        if attempt.end_reason is not EndReason.CAPACITY or attempt.started_at is not None:
            break
        refused += 1
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** max(0, min(refused, _MOST_DOUBLINGS) - 1), _LONGEST_PAUSE_SECONDS)
    begins_at = ended_at + timedelta(seconds=pause)
    too_late = begins_at >= since + longest_wait_without_a_job(request)
    return None if too_late or (deadline_at is not None and begins_at >= deadline_at) else (pause, since)


def _pause_after_errors_of_sagemaker(attempts: Sequence[Attempt]) -> int:
    """Return the seconds that the next job waits. It waits only after two or more errors of SageMaker in a row."""
    in_a_row = 0
    for attempt in reversed(attempts):
        if not is_internal_server_error(attempt.failure_reason):
            break
        in_a_row += 1
    if in_a_row < 2:
        return 0
    doubled: int = _FIRST_PAUSE_SECONDS * 2 ** min(in_a_row - 2, _MOST_DOUBLINGS)
    return min(doubled, _LONGEST_PAUSE_SECONDS)


def _trained_seconds(attempts: Sequence[Attempt]) -> float:
    return sum(attempt.usage.training_seconds or 0.0 for attempt in attempts if attempt.usage is not None)


_WORDS: Final = {
    EndReason.CAPACITY: "no capacity",
    EndReason.MAX_WAIT_EXCEEDED: "no capacity in time",
    EndReason.QUOTA: "no quota",
}
