"""Notifications of a run that goes on: interrupted, resumed, waiting, on a fallback, on demand, checkpoint stale."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spotkeep_jobs.document.fallbacks import NextJob
from spotkeep_jobs.notifications.texts.composition import compose
from spotkeep_jobs.notifications.texts.run_summary import goes_on, resumable
from spotkeep_jobs.notifications.texts.wording import (
    clock,
    ordinal,
    quoted_reason,
    spoken_duration,
    wrapped,
)
from spotkeep_jobs.progress.checkpoint_alert import Freshness
from spotkeep_jobs.record.record import Attempt, Notification, Run
from spotkeep_jobs.record.states import NotificationKind


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A loss of capacity, or the return from one.

    Attributes:
        run: The run item.
        attempt: The attempt whose job it happened to.
        deployment: The deployment's name.
        nth: Which loss of the attempt, from 1.
        happened_at: When.
        created_at: When the notification is written.
    """

    run: Run
    attempt: Attempt
    deployment: str
    nth: int
    happened_at: datetime
    created_at: datetime


def _taken(attempt: Attempt) -> str:
    if attempt.queue is None:
        return "AWS took the capacity back."
    return f"AWS Batch gave it to another job of the queue {attempt.queue.queue}."


def _waits_for(attempt: Attempt) -> str:
    return "new capacity" if attempt.queue is None else "its next turn"


def interruption_notification(moment: Moment) -> Notification:
    """Compose the notification that a run lost its capacity and waits for new."""
    run, attempt = moment.run, moment.attempt
    in_attempt = f" in attempt {attempt.attempt}" if attempt.attempt > 1 else ""
    return _notification_on_the_way(
        moment,
        kind=NotificationKind.INTERRUPTED,
        subject="was interrupted",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} lost its {attempt.instance_type} at {clock(moment.happened_at)}: "
                f"{_taken(attempt)} There is nothing to do: the job waits for {_waits_for(attempt)}, "
                f"then {goes_on(run)}."
            ),
            *wrapped(f"This was {ordinal(moment.nth)} interruption{in_attempt}."),
            *(["", "Checkpoints", f"  {run.checkpoint_uri}"] if resumable(run) else []),
        ],
        commands=[(f"spotkeep describe {run.run}", "where it stands")],
    )


def resume_notification(moment: Moment, *, away_seconds: float) -> Notification:
    """Compose the notification that a run has capacity again and trains.

    Args:
        moment: When it trained again.
        away_seconds: From the interruption until then.
    """
    run = moment.run
    return _notification_on_the_way(
        moment,
        kind=NotificationKind.RESUMED,
        subject="trains again",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has capacity again and trains since {clock(moment.happened_at)}, "
                f"{spoken_duration(away_seconds)} after it was interrupted. There is nothing to do."
            ),
        ],
        commands=[(f"spotkeep logs {run.run} -f", "from which step it goes on")],
    )


def next_fallback_notification(
    *, run: Run, left: Attempt, job: NextJob, deployment: str, happened_at: datetime, created_at: datetime
) -> Notification:
    """Compose the notification that a run found no capacity, and tries its next fallback.

    Args:
        run: The run item, before the next attempt.
        left: The attempt that found none.
        job: The one that follows.
        deployment: The deployment's name.
        happened_at: When it was decided.
        created_at: When the notification is written.
    """
    dearer = left.capacity == "spot" and job.fallback.capacity == "on-demand"
    types = " or ".join(job.fallback.instance_types)
    what = f"looks for {types} on demand now, at the full price" if dearer else f"looks for {job.fallback} now"
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.NEXT_FALLBACK,
        attempt=left.attempt + 1,
        happened_at=happened_at,
        created_at=created_at,
        subject="goes on demand" if dearer else "looks elsewhere for capacity",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} {what} ({clock(happened_at)}): {job.because}. There is nothing to do: with "
                f"capacity it {goes_on(run)}."
            ),
        ],
        commands=[(f"spotkeep describe {run.run}", "where it stands"), (f"spotkeep stop {run.run}", "end it instead")],
    )


def long_wait_notification(
    *,
    run: Run,
    attempt: Attempt,
    deployment: str,
    nth: int,
    waited_seconds: float,
    because: str | None,
    happened_at: datetime,
) -> Notification:
    """Compose the notification that a run has been waiting for capacity for long, and waits on.

    Args:
        run: The run item.
        attempt: Its attempt.
        deployment: The deployment's name.
        nth: After which interruption of the attempt it waits; 0 before its first capacity.
        waited_seconds: Since when.
        because: What AWS says of why; None where it says nothing.
        happened_at: When that was seen.
    """
    where, why = f"{attempt.capacity} {attempt.instance_type}", "AWS has none to spare"
    if attempt.queue is not None:
        where = f"its turn in the queue {attempt.queue.queue} ({where})"
        why = f"other jobs have the instances of share {attempt.queue.share}"
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.WAITING_TOO_LONG,
        attempt=attempt.attempt,
        nth=nth,
        happened_at=happened_at,
        created_at=happened_at,
        subject="is waiting long for capacity",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has been waiting for {where} for {spoken_duration(waited_seconds)} and waits on"
                f"{'.' if because else f': {why}.'} With capacity it "
                f"{goes_on(run) if nth or attempt.attempt > 1 else 'begins'}. Waiting costs nothing."
            ),
            *quoted_reason(because),
        ],
        commands=[
            (f"spotkeep describe {run.run}", "where it stands"),
            (f"spotkeep stop {run.run}", "end it, to look elsewhere"),
        ],
    )


def long_quota_wait_notification(*, run: Run, attempt: Attempt, deployment: str, happened_at: datetime) -> Notification:
    """Compose the notification that a run has been waiting for room in the account's quota for long, and waits on.

    Args:
        run: The run item; it waits for quota.
        attempt: Its attempt.
        deployment: The deployment's name.
        happened_at: When that was seen.
    """
    waited = 0.0 if run.quota_wait is None else (happened_at - run.quota_wait.since).total_seconds()
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.WAITING_TOO_LONG,
        attempt=attempt.attempt,
        nth=attempt.interruptions,
        happened_at=happened_at,
        created_at=happened_at,
        subject="is waiting long for quota",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} has been waiting for {spoken_duration(waited)} and waits on: other jobs use up "
                f"the account's quota for {attempt.capacity} {attempt.instance_type}. When one of them ends, the run "
                "that waits longest is next. Waiting costs nothing. You can request a larger quota in the Service "
                "Quotas console."
            ),
            *quoted_reason(None if run.quota_wait is None else run.quota_wait.reason),
        ],
        commands=[
            (f"spotkeep describe {run.run}", "where it stands"),
            ("spotkeep ps", "which runs are in flight"),
            (f"spotkeep stop {run.run}", "end it, to look elsewhere"),
        ],
    )


def stale_checkpoint_notification(
    *, run: Run, attempt: Attempt, freshness: Freshness, nth: int, deployment: str, now: datetime
) -> Notification:
    """Compose the notification that a run trains and has not saved for longer than it should.

    Args:
        run: The run item.
        attempt: Its attempt.
        freshness: How old its newest checkpoint is.
        nth: Which notification of that of the attempt, from 1.
        deployment: The deployment's name.
        now: When it was seen.
    """
    age = spoken_duration((now - freshness.counted_from).total_seconds())
    newest = freshness.newest_at
    if newest is None:
        text = f"trains, and has reported no checkpoint since {clock(freshness.counted_from)}, {age} ago"
    elif newest < freshness.counted_from:
        text = f"trains since {clock(freshness.counted_from)}, {age} ago, and has not saved since then"
    else:
        text = f"trains, and its newest checkpoint is of {clock(newest)}, {age} ago"
    if freshness.interval_s is not None:
        text += f"; it saves every {spoken_duration(freshness.interval_s)} otherwise"
    stuck = "Newer ones are on the job's disk and do not reach S3. " if freshness.stuck_on_its_way else ""
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.CHECKPOINT_STALE,
        attempt=attempt.attempt,
        nth=nth,
        happened_at=now,
        created_at=now,
        subject="has not saved for long",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} {text}. {stuck}If its capacity went away now, the work since then would be "
                "done twice. You are notified once; the next checkpoint makes it fresh again."
            ),
        ],
        commands=[
            (f"spotkeep logs {run.run} -f", "whether it says why"),
            (f"spotkeep checkpoints ls {run.run}", "what is there"),
        ],
    )


def log_refused_notification(
    *, run: Run, attempt: Attempt, warning: str, deployment: str, now: datetime
) -> Notification:
    """Compose the notification that something in a job's log was not taken, or not all of it was read.

    Args:
        run: The run item.
        attempt: Its attempt.
        warning: What was not.
        deployment: The deployment's name.
        now: When it was seen.
    """
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.LOG_REFUSED,
        attempt=attempt.attempt,
        happened_at=now,
        created_at=now,
        subject="writes a log that is not all taken",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} goes on, but {warning}. What it says of itself there counts for nothing: the "
                "steps it trained twice, and how far it is, may not be known. You are notified once for each run."
            ),
        ],
        commands=[
            (f"spotkeep logs {run.run} --raw", "what it writes"),
            (f"spotkeep describe {run.run}", "where it stands"),
        ],
    )


def on_demand_notification(
    *, run: Run, attempt: Attempt, deployment: str, happened_at: datetime, now: datetime
) -> Notification:
    """Compose the notification that a run which asked for spot capacity trains on demand, at the full price.

    Args:
        run: The run item.
        attempt: The attempt that has the capacity.
        deployment: The deployment's name.
        happened_at: When it began to train.
        now: When the notification is written.
    """
    return compose(
        run=run,
        deployment=deployment,
        kind=NotificationKind.ON_DEMAND,
        attempt=attempt.attempt,
        happened_at=happened_at,
        created_at=now,
        subject="trains on demand",
        paragraphs=[
            *wrapped(
                f"Your run {run.name} trains on demand since {clock(happened_at)}, on {run.instance_count} x "
                f"{attempt.instance_type}, at the full price: there was no spot capacity for it. It will not be "
                "interrupted."
            ),
        ],
        commands=[(f"spotkeep describe {run.run}", "what it has cost so far"), (f"spotkeep stop {run.run}", "end it")],
    )


def _notification_on_the_way(
    moment: Moment, *, kind: NotificationKind, subject: str, paragraphs: list[str], commands: list[tuple[str, str]]
) -> Notification:
    return compose(
        run=moment.run,
        deployment=moment.deployment,
        kind=kind,
        attempt=moment.attempt.attempt,
        nth=moment.nth,
        happened_at=moment.happened_at,
        created_at=moment.created_at,
        subject=subject,
        paragraphs=paragraphs,
        commands=commands,
    )
