"""The next state of a run's record, given SageMaker's answer. Pure, so the same facts give the same record.

An event is only a hint that a job changed. Events come twice, late, out of order or not at all. DescribeTrainingJob
gives the fact. `decide` compares the fact with the record and answers with the missing changes, each one transaction.
Their result is one record and one set of notifications, for any order of events and any number of callers (I4).

This module holds the kinds of changes, and their order. The limits of a live job are in `rules` and `steering`. The
consequences of an attempt's end are in `ending`.

The phases of a job are shown once each in the timeline and in the users' notifications. The record counts the phases
that it has. The new ones are a range of positions in the backend's list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from spotkeep_fleet.printable_text import printable
from spotkeep_jobs.backends.backend import (
    ON_INSTANCES_PHASES,
    WAITING_PHASES,
    JobPhase,
    JobView,
    count_interruptions,
    first_on_instances,
    has_lost_its_capacity,
    has_trained,
    instance_time,
    interruption_before,
)
from spotkeep_jobs.backends.sagemaker.training_job import is_same_launch
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.on_the_way import (
    interruption_notification,
    on_demand_notification,
    resume_notification,
)
from spotkeep_jobs.pools.warm_pool import kept_entry, pool_left_by, with_idle_time
from spotkeep_jobs.progress.job_log import JobLog, Resumed
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import (
    Attempt,
    LastReconciliation,
    Notification,
    Run,
    RunChange,
    TimelineEntry,
    in_utc_milliseconds,
)
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.ending import close_attempt, ended_with_job, ended_without_job, without_repeats
from spotkeep_jobs.runs.rules import (
    JobFacts,
    RuleResult,
    RunFacts,
    hold_to_hangs,
    hold_to_log,
    hold_to_max_cost,
    hold_to_max_run,
    hold_to_queue,
    hold_to_waits,
    hold_to_waits_without_a_job,
    hold_to_whole_log,
)
from spotkeep_jobs.runs.steering import steer

VANISHED_AFTER: Final = timedelta(minutes=10)
"""A job that SageMaker accepted this long ago and does not know (any more) is gone."""


# DynamoDB takes 100 writes in a transaction; run item, attempt, checkpoint prefix and notifications need their share.
_ENTRIES_AT_ONCE: Final = 20
_RULES: Final[tuple[Callable[[JobFacts], RuleResult], ...]] = (
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
        # Another fleet of the same launch, where the nodes are looked for now.
        return replace(facts, attempt=with_changes(attempt, job_id=job.job_id)), []
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
        nodes=job.nodes,
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
    if attempt.job_id is not None and (attempt.place.backend != "ec2" or job.job_id == attempt.job_id):
        return job.job_id == attempt.job_id
    # Not confirmed yet, or another fleet of its nodes. The name alone says little: a run id may have been used before,
    # by a run long forgotten.
    return attempt.job_request is not None and is_same_launch(
        environment=job.environment, parameters=attempt.job_request
    )


def _says_nothing_new(change: RunChange, recorded: RunFacts) -> bool:
    same_run = with_changes(change.run, updated_at=recorded.run.updated_at) == recorded.run
    return same_run and change.attempt == recorded.attempt and not change.notifications and change.metrics is None


_LONGEST_TRAINING: Final = 100
_TIMELINE: Final = {
    JobPhase.WAITING: TimelineKind.STARTING,
    JobPhase.LOADING: TimelineKind.DOWNLOADING,
    JobPhase.TRAINING: TimelineKind.TRAINING,
    JobPhase.INTERRUPTED: TimelineKind.INTERRUPTED,
    JobPhase.UPLOADING: TimelineKind.UPLOADING,
    JobPhase.STOPPING: TimelineKind.STOPPING,
}


def show_phases(facts: JobFacts, *, positions: range) -> tuple[list[TimelineEntry], list[Notification]]:
    """Return the timeline's entries about a job's phases, and the notifications that the run's users asked for.

    A notification says that the run was interrupted, was resumed, or begins to train at the full price.

    Args:
        facts: The known facts.
        positions: The positions of the phases among all of the job's.
    """
    entries, notifications = [], []
    for position in positions:
        phase = facts.job.transitions[position - facts.job.earlier_phases.count]
        trains = phase.phase is JobPhase.TRAINING
        interrupted = interruption_before(facts.job, position) if trains else None
        if phase.phase in _TIMELINE:
            kind, text = (TimelineKind.RESUMED, "Trains again") if interrupted else (_TIMELINE[phase.phase], phase.text)
            entries.append(
                TimelineEntry(
                    run=facts.run.run,
                    attempt=facts.attempt.attempt,
                    at=phase.started_at,
                    kind=kind,
                    text=f"{text} ({phase.detail})" if phase.detail else text,
                    error_of_aws=phase.error_of_aws,
                )
            )
        moment = Moment(
            run=facts.run,
            attempt=facts.attempt.attempt,
            deployment=facts.deployment.name,
            nth=count_interruptions(facts.job, upto=position + 1),
            happened_at=phase.started_at,
            created_at=facts.now,
        )
        asked = facts.run.notify
        if phase.phase is JobPhase.INTERRUPTED and NotificationKind.INTERRUPTED in asked:
            notifications.append(interruption_notification(moment, error_of_aws=phase.error_of_aws, lost=phase.detail))
        elif interrupted and NotificationKind.RESUMED in asked:
            away = phase.started_at - interrupted.started_at
            notifications.append(resume_notification(moment, away_seconds=away.total_seconds()))
        elif trains and not interrupted and NotificationKind.ON_DEMAND in asked and _begins_dearer(facts, position):
            notifications.append(on_demand_notification(replace(moment, nth=0)))
    return entries, notifications


def _begins_dearer(facts: JobFacts, position: int) -> bool:
    """Return True if this is the attempt's first training, on demand, of a run that wanted spot."""
    first = not has_trained(facts.job, before=position)
    looked_for_spot = any(before.place.capacity == "spot" for before in facts.earlier)
    return first and looked_for_spot and facts.attempt.place.capacity == "on-demand"


def resume_entries(attempt: Attempt, *, log: JobLog) -> list[TimelineEntry]:
    """Return the entries about the step at which the script continued, from the log of its ended job."""
    entries = [
        _resume_entry(attempt, at=resumed.at, step=resumed.step, text=_resumed_text(resumed)) for resumed in log.resumes
    ]
    if log.resumes_left_out:
        text = f"The script had taken up its work {log.resumes_left_out:,} times before, which is not listed"
        before_all = min(resumed.at for resumed in log.resumes) - 0.001
        entries.insert(0, _resume_entry(attempt, at=max(0.0, before_all), step=None, text=text))
    return entries


def _resumed_text(resumed: Resumed) -> str:
    if resumed.training is None:
        what, of = "", ""
    else:
        named = printable(resumed.training[:_LONGEST_TRAINING])
        what, of = f" {named}", f" of {named}"
    if resumed.step:
        return f"The script went on from step {resumed.step:,}{of}"
    return f"The script began{what} from the beginning"


def _resume_entry(attempt: Attempt, *, at: float, step: int | None, text: str) -> TimelineEntry:
    return TimelineEntry(
        run=attempt.run,
        attempt=attempt.attempt,
        at=datetime.fromtimestamp(at, tz=UTC),
        kind=TimelineKind.STEP_RESUMED,
        text=text,
        step=step,
    )
