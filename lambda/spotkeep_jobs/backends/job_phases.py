"""What the phases of a job say: since when it waits or trains, what it lost, when it ended. Pure, without the record.

A backend lists the phases in order of time. One that it does not list is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, WAITING_PHASES, JobPhase
from spotkeep_jobs.record.record import InstanceTime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from spotkeep_jobs.backends.job_view import JobView, PhaseChange

STOPS_WITHIN_SECONDS: Final = 120
"""What SageMaker gives a job that is stopped to save in, while its instances are billed.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
"""
_NOT_UNDER_WAY: Final = frozenset({JobPhase.ENDED, JobPhase.UNKNOWN})
"""In these a job does nothing that could end later than it began."""


def count_interruptions(transitions: Sequence[PhaseChange]) -> int:
    """Return how often a job lost its capacity."""
    return sum(transition.phase is JobPhase.INTERRUPTED for transition in transitions)


def first_on_instances(job: JobView) -> datetime | None:
    """Return when the job first had capacity; None where it never had."""
    return next(
        (entry.started_at for entry in job.transitions if entry.phase in ON_INSTANCES_PHASES),
        job.training_started_at,
    )


def waiting_since(job: JobView) -> datetime | None:
    """Return when the wait that the job is in began; None when it has capacity."""
    if job.phase not in WAITING_PHASES:
        return None
    since = job.created_at
    for entry in job.transitions:
        if entry.phase in ON_INSTANCES_PHASES:
            since = entry.ended_at or entry.started_at
    return since


def on_instances_since(job: JobView, *, now: datetime) -> datetime | None:
    """Return since when the job has had the capacity it is on; None where it is on none.

    Args:
        job: What its backend says of it.
        now: The time: what is returned where no phase says since when.
    """
    if job.phase not in ON_INSTANCES_PHASES:
        return None
    since = now
    for entry in reversed(job.transitions):
        if entry.phase not in ON_INSTANCES_PHASES:
            break
        since = entry.started_at
    return since


def training_since(job: JobView) -> datetime | None:
    """Return since when the job trains; None where it does not, or no phase says since when."""
    if job.phase is not JobPhase.TRAINING:
        return None
    return next((entry.started_at for entry in reversed(job.transitions) if entry.phase is JobPhase.TRAINING), None)


def has_lost_its_capacity(job: JobView) -> bool:
    """Return whether the job was interrupted since it last had capacity."""
    for entry in reversed(job.transitions):
        if entry.phase is JobPhase.INTERRUPTED:
            return True
        if entry.phase in ON_INSTANCES_PHASES:
            return False
    return job.phase is JobPhase.INTERRUPTED


def interruption_before(job: JobView, position: int) -> PhaseChange | None:
    """Return the interruption that the training at this position ends, if it ends one."""
    for entry in reversed(job.transitions[:position]):
        if entry.phase is JobPhase.INTERRUPTED:
            return entry
        if entry.phase is JobPhase.TRAINING:
            return None
    return None


def seconds_on_instances(job: JobView, *, now: datetime) -> float:
    """Return for how long the job has had capacity, over all its interruptions.

    Args:
        job: What its backend says of it.
        now: The time, until which the phase counts that the job is in.
    """
    total = 0.0
    for entry, following in zip(job.transitions, [*job.transitions[1:], None], strict=False):
        if entry.phase in ON_INSTANCES_PHASES:
            until = entry.ended_at or (following.started_at if following is not None else now)
            total += max(0.0, (until - entry.started_at).total_seconds())
    return total


def instance_time(job: JobView) -> InstanceTime:
    """Return for how long the job has been billed, as far as its phases say, and never less.

    A job that is stopped, or of which is not known where it is, keeps the instances that it had. Of a training job that
    AWS Batch preempted, the phases end where it was asked to stop.

    Args:
        job: What its backend says of it.
    """
    seconds = float(STOPS_WITHIN_SECONDS * sum(each.preempted for each in job.training_jobs))
    since = None
    for entry in job.transitions:
        if entry.phase in ON_INSTANCES_PHASES:
            since = since or entry.started_at
        elif since is not None and (entry.phase in WAITING_PHASES or entry.phase is JobPhase.ENDED):
            seconds += (entry.started_at - since).total_seconds()
            since = None
    if since is not None and job.ended:
        seconds += ((end_of(job) or since) - since).total_seconds()
        since = None
    return InstanceTime(seconds=round(seconds, 3), since=since)


def end_of(job: JobView) -> datetime | None:
    """Return when an ended job ended; None where its backend does not say."""
    if job.training_ended_at is not None:
        return job.training_ended_at
    if job.transitions:
        last = job.transitions[-1]
        return last.started_at if last.phase in _NOT_UNDER_WAY else last.ended_at or job.last_modified_at
    return job.last_modified_at
