"""The next state of a run's record, given SageMaker's answer. Pure, so the same facts give the same record.

An event is only a hint that a job changed. Events come twice, late, out of order or not at all. DescribeTrainingJob
gives the fact. `decide` compares the fact with the record and answers with the missing changes, each one transaction.
Their result is one record and one set of notifications, for any order of events and any number of callers (I4).

This module holds the kinds of changes, and their order. Each limit of a live job has its own module, such as
`steering`, `max_cost`, `waiting` and `log_alerts`. The consequences of an attempt's end are in `ending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from spotkeep_jobs.backends.job_phases import (
    count_interruptions,
    first_on_instances,
    has_lost_its_capacity,
    instance_time,
)
from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, WAITING_PHASES, JobPhase, JobView
from spotkeep_jobs.backends.sagemaker.request import is_same_launch
from spotkeep_jobs.pools.warm_pool import kept_entry, pool_left_by, with_idle_time
from spotkeep_jobs.record.record import (
    Attempt,
    LastReconciliation,
    Notification,
    Run,
    RunChange,
    TimelineEntry,
    in_utc_milliseconds,
)
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.runs.ending import close_attempt, ended_with_job, ended_without_job, without_repeats
from spotkeep_jobs.runs.facts import Held, JobFacts, RunFacts
from spotkeep_jobs.runs.log_alerts import hold_to_hangs, hold_to_log, hold_to_whole_log
from spotkeep_jobs.runs.max_cost import hold_to_max_cost
from spotkeep_jobs.runs.on_the_way import resume_entries, show_phases
from spotkeep_jobs.runs.steering import steer
from spotkeep_jobs.runs.waiting import hold_to_max_run, hold_to_queue, hold_to_waits, hold_to_waits_without_a_job
from spotkeep_jobs.with_changes import with_changes

VANISHED_AFTER: Final = timedelta(minutes=10)
"""A job that SageMaker accepted this long ago and does not know (any more) is gone."""


# DynamoDB takes 100 writes in a transaction; run item, attempt, checkpoint prefix and notifications need their share.
_ENTRIES_AT_ONCE: Final = 20
_RULES: Final[tuple[Callable[[JobFacts], Held], ...]] = (
    steer,
    hold_to_max_cost,
    hold_to_waits,
    hold_to_queue,
    hold_to_max_run,
    hold_to_log,
)
"""The rules for a run with a live job, applied one after the other. Each rule sees the changes of the earlier rules."""


def decide(facts: RunFacts) -> list[RunChange]:
    """Return the changes that are missing in the record.

    Args:
        facts: The known facts, without a job if the backend knows no job of the attempt.

    Returns:
        The changes in order, each one transaction on the version that the one before it leaves. Empty if the record is
        up to date, if the run has ended (an ending is final), or if the job is not the run's.
    """
    run, attempt = facts.run, facts.attempt
    if run.state.ended or attempt.state.ended or run.attempt != attempt.attempt:
        return []
    if not isinstance(facts, JobFacts):
        return _without_job(facts)
    if not _is_of(attempt, facts.job) or facts.job.phase_count < attempt.recorded_transitions:
        # A stranger's job of the same name, or an answer older than the record.
        return []
    return list(_changes(facts))


def _changes(facts: JobFacts) -> Iterator[RunChange]:
    """Yield the changes in order. The timeline comes first, in portions, and the last portion carries the state."""
    job, recorded = facts.job, facts
    facts, created = _launched(facts)
    while job.phase_count - facts.attempt.recorded_transitions > _ENTRIES_AT_ONCE:
        facts, entries, notifications = _shown(facts, upto=facts.attempt.recorded_transitions + _ENTRIES_AT_ONCE)
        yield _portion(facts, [*created, *entries], notifications)
        facts, created = _written(facts), []
    resumes = resume_entries(facts.attempt, log=facts.log) if job.ended else []
    while len(resumes) > _ENTRIES_AT_ONCE:
        portion, resumes = resumes[:_ENTRIES_AT_ONCE], resumes[_ENTRIES_AT_ONCE:]
        yield _portion(facts, [*created, *portion])
        facts, created = _written(facts), []
    facts, entries, notifications = _shown(facts, upto=job.phase_count)
    for rule in (hold_to_hangs, hold_to_whole_log):
        held = rule(facts)
        facts = replace(facts, run=held.run)
        entries, notifications = [*entries, *held.timeline], [*notifications, *held.notifications]
    facts = replace(facts, run=with_changes(facts.run, progress=facts.log.progress or facts.run.progress))
    change = (_ended if job.ended else _alive)(facts, [*created, *entries, *resumes], notifications)
    if not _says_nothing_new(change, recorded):
        yield change


def _shown(facts: JobFacts, *, upto: int) -> tuple[JobFacts, list[TimelineEntry], list[Notification]]:
    """Return the facts with more of the job's transitions recorded, and the new timeline entries and notifications."""
    job, attempt = facts.job, facts.attempt
    # Those that no function saw while they were listed are counted, and not shown.
    new = range(max(attempt.recorded_transitions, job.earlier_phases.count), upto)
    attempt = with_changes(
        attempt,
        recorded_transitions=upto,
        interruptions=count_interruptions(job, upto=upto),
        started_at=attempt.started_at or first_on_instances(job),
        # Of several types SageMaker takes the first with capacity, and bills that one.
        place=with_changes(attempt.place, instance_type=job.instance_type or attempt.place.instance_type),
        training_jobs=job.training_jobs,
    )
    facts = replace(facts, run=_with_attempt(facts, attempt), attempt=attempt)
    return facts, *show_phases(facts, positions=new)


def _portion(
    facts: JobFacts, entries: Sequence[TimelineEntry], notifications: Sequence[Notification] = ()
) -> RunChange:
    return RunChange(
        run=facts.run, attempt=facts.attempt, timeline=without_repeats(entries), notifications=tuple(notifications)
    )


def _written(facts: JobFacts) -> JobFacts:
    return replace(facts, run=with_changes(facts.run, version=facts.run.version + 1))


def _ended(facts: JobFacts, entries: list[TimelineEntry], notifications: list[Notification]) -> RunChange:
    """Return the end of the attempt."""
    attempt = ended_with_job(facts)
    pool = pool_left_by(
        run=facts.run,
        attempt=attempt,
        job=facts.job,
        usd_per_hour=facts.deployment.prices.get(attempt.place.instance_type),
        chain_since=facts.chain_since,
        now=facts.now,
    )
    if pool is not None:
        attempt = with_idle_time(attempt, pool)
        entries = [*entries, kept_entry(pool)]
    facts = replace(facts, attempt=attempt, metrics=facts.log.metrics or facts.metrics)
    return close_attempt(facts, timeline=entries, notifications=notifications, pool=pool)


def _alive(facts: JobFacts, entries: list[TimelineEntry], notifications: list[Notification]) -> RunChange:
    """Return the present phase of a live job, and the results of the rules for its run."""
    state = _live_state(facts)
    facts = replace(
        facts,
        run=with_changes(facts.run, state=state),
        attempt=with_changes(facts.attempt, state=state),
    )
    due_again_at = []
    for rule in _RULES:
        held = rule(facts)
        facts = replace(facts, run=held.run, attempt=held.attempt)
        entries += held.timeline
        notifications += held.notifications
        if held.due_again_at is not None:
            due_again_at.append(in_utc_milliseconds(held.due_again_at))
    seen_at = facts.job.last_modified_at
    attempt = with_changes(
        facts.attempt,
        last_reconciled=LastReconciliation(
            job_modified_at=seen_at and in_utc_milliseconds(seen_at), again_at=min(due_again_at, default=None)
        ),
    )
    return RunChange(
        run=facts.run,
        attempt=attempt,
        timeline=without_repeats(entries),
        notifications=tuple(notifications),
        metrics=facts.log.metrics if facts.log.metrics != facts.metrics else None,
    )


def _launched(facts: JobFacts) -> tuple[JobFacts, list[TimelineEntry]]:
    """Return the facts with the job's ARN in the attempt, and a timeline entry if the ARN is new."""
    job, attempt = facts.job, facts.attempt
    if attempt.job_id is not None:
        return facts, []
    # The function that created the job has not recorded it yet, or was cut short: its ARN is recorded here.
    launched = with_changes(attempt, job_id=job.job_id, launched_at=job.created_at)
    return replace(facts, attempt=launched), [attempt.job_created_entry(job_id=job.job_id, at=job.created_at)]


def _with_attempt(facts: JobFacts, attempt: Attempt) -> Run:
    """Return the run with the values that follow from its attempt and its job."""
    run, job = facts.run, facts.job
    return with_changes(
        run,
        job_id=attempt.job_id,
        quota_wait=None,
        place=attempt.place,
        volume=job.volume or run.volume,
        training_job=attempt.training_jobs.listed[-1].name if attempt.training_jobs.listed else None,
        waits_because=job.waits_because,
        instance_time=instance_time(job),
        started_at=run.started_at or attempt.started_at,
        interruptions=sum(before.interruptions for before in facts.earlier) + attempt.interruptions,
        updated_at=facts.now,
    )


def _live_state(facts: JobFacts) -> RunState:
    run, phase = facts.run, facts.job.phase
    if phase is JobPhase.STOPPING or run.asked_to_end is not None:
        return RunState.STOPPING
    if phase in ON_INSTANCES_PHASES:
        return RunState.TRAINING
    if phase in WAITING_PHASES or run.state is RunState.LAUNCHING:
        return RunState.INTERRUPTED if has_lost_its_capacity(facts.job) else RunState.WAITING
    return run.state


def _without_job(facts: RunFacts) -> list[RunChange]:
    attempt = facts.attempt
    if attempt.job_id is None:
        # Not launched yet, or the launch was cut short, or it waits for its time: LaunchCompletion creates the job.
        held = hold_to_waits_without_a_job(facts)
        if not held.notifications:
            return []
        run = with_changes(held.run, updated_at=facts.now)
        return [RunChange(run=run, attempt=held.attempt, notifications=tuple(held.notifications))]
    if facts.now - (attempt.launched_at or attempt.created_at) < VANISHED_AFTER:
        return []
    return [ended_without_job(facts, reason=EndReason.JOB_VANISHED)]


def _is_of(attempt: Attempt, job: JobView) -> bool:
    if attempt.job_id is not None:
        return job.job_id == attempt.job_id
    # Not confirmed yet. The name alone says little: a run id may have been used before, by a run long forgotten.
    return attempt.job_request is not None and is_same_launch(
        environment=job.environment, parameters=attempt.job_request
    )


def _says_nothing_new(change: RunChange, recorded: RunFacts) -> bool:
    same_run = with_changes(change.run, updated_at=recorded.run.updated_at) == recorded.run
    return same_run and change.attempt == recorded.attempt and not change.notifications and change.metrics is None
