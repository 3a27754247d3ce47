"""What the timeline and the users are shown of a job on its way: each of its phases, once. Pure.

The record counts the phases that it has. What is new is a range of positions in what the backend lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_phases import count_interruptions, interruption_before
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.notifications.texts.on_the_way import (
    Moment,
    interruption_notification,
    on_demand_notification,
    resume_notification,
)
from spotkeep_jobs.record.record import Attempt, Notification, Run, TimelineEntry
from spotkeep_jobs.record.states import NotificationKind, TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.progress.job_log import JobLog

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


def phase_notifications(
    run: Run,
    *,
    attempt: Attempt,
    earlier: Sequence[Attempt],
    job: JobView,
    positions: range,
    deployment: str,
    now: datetime,
) -> Iterator[Notification]:
    """Yield the notifications that the run asked for about a job's phases: interrupted, resumed, at the full price.

    Args:
        run: The run item.
        attempt: The attempt that the job works on.
        earlier: The attempts before it.
        job: What its backend says of it.
        positions: The positions of the phases in `job.transitions`.
        deployment: The deployment's name.
        now: When the notifications are written.
    """
    for position in positions:
        transition = job.transitions[position]
        moment = Moment(
            run=run,
            attempt=attempt,
            deployment=deployment,
            nth=count_interruptions(job.transitions[: position + 1]),
            happened_at=transition.started_at,
            created_at=now,
        )
        if transition.phase is JobPhase.INTERRUPTED and NotificationKind.INTERRUPTED in run.notify:
            yield interruption_notification(moment)
        if transition.phase is not JobPhase.TRAINING:
            continue
        interrupted = interruption_before(job, position)
        if interrupted and NotificationKind.RESUMED in run.notify:
            away = transition.started_at - interrupted.started_at
            yield resume_notification(moment, away_seconds=away.total_seconds())
        asked = NotificationKind.ON_DEMAND in run.notify
        if asked and not interrupted and _begins_dearer(attempt, earlier=earlier, job=job, position=position):
            yield on_demand_notification(
                run=run,
                attempt=attempt,
                deployment=deployment,
                happened_at=transition.started_at,
                now=now,
            )


def _begins_dearer(attempt: Attempt, *, earlier: Sequence[Attempt], job: JobView, position: int) -> bool:
    """Say whether the training that begins here is the attempt's first, on demand, of a run that wanted spot."""
    first = all(entry.phase is not JobPhase.TRAINING for entry in job.transitions[:position])
    looked_for_spot = any(before.capacity == "spot" for before in earlier)
    return first and looked_for_spot and attempt.capacity == "on-demand"
