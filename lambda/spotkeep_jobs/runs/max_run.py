"""How long an attempt in a queue may train: max_run, over all training jobs that AWS Batch makes for it. Pure.

SageMaker holds each training job to it alone, and after a preemption the next one would begin to count anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotkeep_jobs.backends.job_phases import seconds_on_instances
from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, JobPhase
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.record.record import Attempt, Run, TimelineEntry
from spotkeep_jobs.record.states import TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView


def hold_to_max_run(run: Run, *, attempt: Attempt, job: JobView, now: datetime) -> tuple[Attempt, list[TimelineEntry]]:
    """Have a live job end that has trained for as long as it may, over all its training jobs.

    Args:
        run: The run item.
        attempt: Its attempt.
        job: What its backend says of its job.
        now: The time.
    """
    left = _left(attempt, job, now=now)
    ends = attempt.fallback_left_at or run.stop_requested_at or job.phase is JobPhase.STOPPING
    if left is None or left > timedelta(0) or ends or job.phase is JobPhase.UPLOADING:
        return attempt, []
    text = f"Has trained the {format_duration(_max_run_seconds(attempt))} that it may: its job is asked to end"
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
    return attempt.model_copy(update={"fallback_left_at": now, "max_run_is_over": True}), [entry]


def max_run_due_again_at(attempt: Attempt, *, job: JobView, now: datetime) -> datetime | None:
    """Return when a live job will have trained for as long as it may; None where SageMaker ends it, or it waits.

    Args:
        attempt: Its attempt.
        job: What its backend says of its job.
        now: The time.
    """
    left = _left(attempt, job, now=now)
    if left is None or attempt.fallback_left_at is not None or job.phase not in ON_INSTANCES_PHASES:
        return None
    return now + max(left, timedelta(0))


def _left(attempt: Attempt, job: JobView, *, now: datetime) -> timedelta | None:
    if len(job.training_jobs) <= 1 or attempt.job_request is None:
        return None
    return timedelta(seconds=_max_run_seconds(attempt) - seconds_on_instances(job, now=now))


def _max_run_seconds(attempt: Attempt) -> int:
    request = attempt.job_request or {}
    return int(request["StoppingCondition"]["MaxRuntimeInSeconds"])
