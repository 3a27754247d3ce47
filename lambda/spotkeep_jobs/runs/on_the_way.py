"""The phases of a job, shown once each in the timeline and in the users' notifications. Pure.

The record counts the phases that it has. The new ones are a range of positions in the backend's list.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from spotkeep_jobs.backends.job_phases import count_interruptions, has_trained, interruption_before
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.notifications.texts.composition import Moment
from spotkeep_jobs.notifications.texts.on_the_way import (
    interruption_notification,
    on_demand_notification,
    resume_notification,
)
from spotkeep_jobs.printable_text import printable
from spotkeep_jobs.progress.job_log import JobLog, Resumed
from spotkeep_jobs.record.record import Attempt, Notification, TimelineEntry
from spotkeep_jobs.record.states import NotificationKind, TimelineKind
from spotkeep_jobs.runs.facts import JobFacts

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
            notifications.append(interruption_notification(moment, error_of_aws=phase.error_of_aws))
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
