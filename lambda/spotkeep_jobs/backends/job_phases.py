"""Facts from the phases of a job, such as its waiting and training time, its losses and its end. Pure.

A backend lists the phases in order of time. For a job with very many interruptions it lists the last ones, with the
sums of those before them. A position counts from the first phase of all.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, WAITING_PHASES, JobPhase
from spotkeep_jobs.record.record import EarlierPhases, InstanceTime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime

    from spotkeep_jobs.backends.job_view import JobView, PhaseChange

STOPS_WITHIN_SECONDS: Final = 120
"""The time in seconds that SageMaker gives a stopped job to save. Its instances are billed meanwhile.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
"""
_NOT_UNDER_WAY: Final = frozenset({JobPhase.ENDED, JobPhase.UNKNOWN})
"""The phases in which a job does nothing that could end later than it began."""
_WITHOUT_INSTANCES: Final = WAITING_PHASES | {JobPhase.ENDED}


def with_phases(earlier: EarlierPhases, phases: Sequence[PhaseChange], *, until: datetime) -> EarlierPhases:
    """Add phases to the sums of those before them.

    Args:
        earlier: The sums.
        phases: The phases that follow.
        until: The end of the last of them, where it has none of its own.
    """
    time = dict(earlier.time)
    loading_again, had_instances = earlier.loading_again, earlier.had_instances
    interruptions, first_at = earlier.interruptions, earlier.first_on_instances_at
    for entry, lasted in _lasted(phases, until=until):
        time[entry.phase] = time.get(entry.phase, timedelta(0)) + lasted
        interruptions += entry.phase is JobPhase.INTERRUPTED
        if entry.phase in ON_INSTANCES_PHASES:
            had_instances = had_instances or not interruptions
            first_at = first_at or entry.started_at
        if entry.phase is JobPhase.LOADING and interruptions:
            loading_again += lasted
    return EarlierPhases(
        count=earlier.count + len(phases),
        interruptions=interruptions,
        time=time,
        loading_again=loading_again,
        had_instances=had_instances,
        first_on_instances_at=first_at,
    )


def time_in(job: JobView, phases: Collection[JobPhase], *, until: datetime) -> timedelta:
    """Return the time that a job spent in phases of some kinds.

    Args:
        job: Its backend's description of it.
        phases: The kinds.
        until: The end of its present phase.
    """
    earlier = sum((lasted for phase, lasted in job.earlier_phases.time.items() if phase in phases), timedelta(0))
    listed = (lasted for entry, lasted in _lasted(job.transitions, until=until) if entry.phase in phases)
    return sum(listed, earlier)


def time_loading_again(job: JobView, *, continues: bool, until: datetime) -> timedelta:
    """Return the time that a job spent on loading data again.

    Args:
        job: Its backend's description of it.
        continues: True where an attempt before it had loaded all of it. Otherwise time counts from the first
            interruption on, if the job had instances before that.
        until: The end of the job.
    """
    if continues:
        return time_in(job, {JobPhase.LOADING}, until=until)
    all_of_it = with_phases(job.earlier_phases, job.transitions, until=until)
    return all_of_it.loading_again if all_of_it.had_instances else timedelta(0)


def _lasted(phases: Sequence[PhaseChange], *, until: datetime) -> Iterator[tuple[PhaseChange, timedelta]]:
    """Yield the duration of each phase. It lasts until the next one began, where it has no end of its own."""
    for entry, following in zip_longest(phases, phases[1:]):
        end = entry.ended_at or (until if following is None else following.started_at)
        yield entry, max(timedelta(0), end - entry.started_at)


def count_interruptions(job: JobView, *, upto: int | None = None) -> int:
    """Return the number of times that a job lost its capacity.

    Args:
        job: Its backend's description of it.
        upto: The number of its first phases that count. None for all.
    """
    listed = job.transitions if upto is None else job.transitions[: max(0, upto - job.earlier_phases.count)]
    return job.earlier_phases.interruptions + sum(entry.phase is JobPhase.INTERRUPTED for entry in listed)


def has_trained(job: JobView, *, before: int | None = None) -> bool:
    """Return True if a job has been in training.

    Args:
        job: Its backend's description of it.
        before: Only the phases before this position count. None for all.
    """
    listed = job.transitions if before is None else job.transitions[: max(0, before - job.earlier_phases.count)]
    return JobPhase.TRAINING in job.earlier_phases.time or any(entry.phase is JobPhase.TRAINING for entry in listed)


def first_on_instances(job: JobView) -> datetime | None:
    """Return the time at which the job first had capacity. None where it never had."""
    return job.earlier_phases.first_on_instances_at or next(
        (entry.started_at for entry in job.transitions if entry.phase in ON_INSTANCES_PHASES),
        job.training_started_at,
    )


def waiting_since(job: JobView) -> datetime | None:
    """Return the start of the job's present wait. None when it has capacity."""
    if job.phase not in WAITING_PHASES:
        return None
    since = job.created_at
    for entry in job.transitions:
        if entry.phase in ON_INSTANCES_PHASES:
            since = entry.ended_at or entry.started_at
    return since


def on_instances_since(job: JobView, *, now: datetime) -> datetime | None:
    """Return the time from which the job has had its present capacity. None where it has none.

    Args:
        job: Its backend's description of it.
        now: The time. It is returned where no phase gives a start.
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
    """Return the time from which the job trains. None where it does not, or no phase gives a start."""
    if job.phase is not JobPhase.TRAINING:
        return None
    return next((entry.started_at for entry in reversed(job.transitions) if entry.phase is JobPhase.TRAINING), None)


def has_lost_its_capacity(job: JobView) -> bool:
    """Return True if the job was interrupted since it last had capacity."""
    for entry in reversed(job.transitions):
        if entry.phase is JobPhase.INTERRUPTED:
            return True
        if entry.phase in ON_INSTANCES_PHASES:
            return False
    return job.phase is JobPhase.INTERRUPTED


def interruption_before(job: JobView, position: int) -> PhaseChange | None:
    """Return the interruption that the training at this position ends, if it ends one."""
    for entry in reversed(job.transitions[: position - job.earlier_phases.count]):
        if entry.phase is JobPhase.INTERRUPTED:
            return entry
        if entry.phase is JobPhase.TRAINING:
            return None
    return None


def instance_time(job: JobView) -> InstanceTime:
    """Return the time for which the job has been billed, as far as its phases say, and never less.

    A job that is stopped, or in an unknown phase, keeps the instances that it had. The phases of a training job that
    AWS Batch preempted end with the request to stop.

    Args:
        job: Its backend's description of it.
    """
    earlier = (lasted for phase, lasted in job.earlier_phases.time.items() if phase not in _WITHOUT_INSTANCES)
    seconds = sum(earlier, timedelta(0)).total_seconds()
    jobs = job.training_jobs
    preempted = sum(each.preempted for each in jobs.listed) + jobs.earlier.phases.interruptions
    seconds += float(STOPS_WITHIN_SECONDS * preempted)
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
    """Return the end of an ended job. None where its backend does not say."""
    if job.training_ended_at is not None:
        return job.training_ended_at
    if job.transitions:
        last = job.transitions[-1]
        return last.started_at if last.phase in _NOT_UNDER_WAY else last.ended_at or job.last_modified_at
    return job.last_modified_at
