"""What the timeline and the users are shown of a job on its way: each of its phases, once. Pure.

The record counts the phases that it has. What is new is a range of positions in what the backend lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from spotkeep_jobs.backends.job_phases import count_interruptions, interruption_before
from spotkeep_jobs.backends.job_view import JobPhase, JobView
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.on_the_way import (
    interruption_notification,
    on_demand_notification,
    resume_notification,
)
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.record import Attempt, Notification, TimelineEntry
from spotkeep_jobs.record.states import NotificationKind, TimelineKind
from spotkeep_jobs.runs.facts import JobFacts

_TIMELINE: Final = {
    JobPhase.WAITING: TimelineKind.STARTING,
    JobPhase.LOADING: TimelineKind.DOWNLOADING,
    JobPhase.TRAINING: TimelineKind.TRAINING,
    JobPhase.INTERRUPTED: TimelineKind.INTERRUPTED,
    JobPhase.UPLOADING: TimelineKind.UPLOADING,
    JobPhase.STOPPING: TimelineKind.STOPPING,
}


def phase_entries(attempt: Attempt, *, job: JobView, positions: range) -> Iterator[TimelineEntry]:
    """Yield the entries of the timeline about a job's phases.

    Args:
        attempt: The attempt that the job works on.
        job: What its backend says of it.
        positions: The positions of the phases in `job.transitions`.
    """
    for position in positions:
        transition = job.transitions[position]
        if transition.phase not in _TIMELINE:
            continue
        kind, text = _TIMELINE[transition.phase], transition.text
        if kind is TimelineKind.TRAINING and interruption_before(job, position):
            kind, text = TimelineKind.RESUMED, "Trains again"
        yield TimelineEntry(
            run=attempt.run,
            attempt=attempt.attempt,
            at=transition.started_at,
            kind=kind,
            text=f"{text} ({transition.detail})" if transition.detail else text,
        )


def resume_entries(attempt: Attempt, *, log: JobLog) -> list[TimelineEntry]:
    """Return the entries about where the script took up its work, as the log of its ended job says."""
    entries = [
        _resume_entry(
            attempt,
            at=resumed.at,
            step=resumed.step,
            text=f"The script went on from step {resumed.step:,}"
            if resumed.step
            else "The script began from the beginning",
        )
        for resumed in log.resumes
    ]
    if log.resumes_left_out:
        text = f"The script had taken up its work {log.resumes_left_out:,} times before, which is not listed"
        before_all = min(resumed.at for resumed in log.resumes) - 0.001
        entries.insert(0, _resume_entry(attempt, at=max(0.0, before_all), step=None, text=text))
    return entries


def _resume_entry(attempt: Attempt, *, at: float, step: int | None, text: str) -> TimelineEntry:
    return TimelineEntry(
        run=attempt.run,
        attempt=attempt.attempt,
        at=datetime.fromtimestamp(at, tz=UTC),
        kind=TimelineKind.STEP_RESUMED,
        text=text,
        step=step,
    )


def phase_notifications(facts: JobFacts, *, positions: range) -> Iterator[Notification]:
    """Yield the notifications that the run asked for about a job's phases: interrupted, resumed, at the full price.

    Args:
        facts: What is known.
        positions: The positions of the phases in `job.transitions`.
    """
    run, job = facts.run, facts.job
    for position in positions:
        transition = job.transitions[position]
        moment = Moment(
            run=run,
            attempt=facts.attempt.attempt,
            deployment=facts.deployment.name,
            nth=count_interruptions(job.transitions[: position + 1]),
            happened_at=transition.started_at,
            created_at=facts.now,
        )
        if transition.phase is JobPhase.INTERRUPTED and NotificationKind.INTERRUPTED in run.notify:
            yield interruption_notification(moment)
        if transition.phase is not JobPhase.TRAINING:
            continue
        interrupted = interruption_before(job, position)
        if interrupted and NotificationKind.RESUMED in run.notify:
            away = transition.started_at - interrupted.started_at
            yield resume_notification(moment, away_seconds=away.total_seconds())
        if NotificationKind.ON_DEMAND in run.notify and not interrupted and _begins_dearer(facts, position=position):
            yield on_demand_notification(replace(moment, nth=0))


def _begins_dearer(facts: JobFacts, *, position: int) -> bool:
    """Say whether the training that begins here is the attempt's first, on demand, of a run that wanted spot."""
    first = all(entry.phase is not JobPhase.TRAINING for entry in facts.job.transitions[:position])
    looked_for_spot = any(before.capacity == "spot" for before in facts.earlier)
    return first and looked_for_spot and facts.attempt.capacity == "on-demand"
