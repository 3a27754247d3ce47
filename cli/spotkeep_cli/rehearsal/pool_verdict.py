"""Decides the verdict on a rehearsed warm pool, in one pure function over the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spotkeep_cli.rehearsal.evidence import ReceivedNotification, RehearsalCheck
from spotkeep_jobs.record.record import Pool, Run
from spotkeep_jobs.record.states import NotificationKind, PoolEndReason, PoolState


@dataclass(frozen=True, kw_only=True)
class JobStart:
    """The start of a job up to its first step.

    Attributes:
        run: Its run.
        job_name: The training job.
        took_over: The job whose kept host it began on, as the local AWS reports it. None for a new host.
        seconds: Seconds from its creation until its script knew the point to continue from.
    """

    run: str
    job_name: str
    took_over: str | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PoolEvidence:
    """The evidence of a rehearsal of a warm pool.

    Attributes:
        first: The start of the first job.
        second: The start of the next job.
        first_pool: The pool that the first job left, at the end.
        second_pool: The pool that the second job left, at the end.
        first_run: The first run's record, with its bill.
        second_run: The second run's record, with its bill.
        extended_seconds: Seconds that the extension moved the second pool's expiry by.
        asked_seconds: Seconds of the requested extension.
        notifications: The notifications that the subscriber received, in the order of arrival.
    """

    first: JobStart
    second: JobStart
    first_pool: Pool
    second_pool: Pool
    first_run: Run
    second_run: Run
    extended_seconds: float
    asked_seconds: float
    notifications: Sequence[ReceivedNotification]


def judge_pool(evidence: PoolEvidence) -> list[RehearsalCheck]:
    """Judge a rehearsed pool, from the first job to the notification of expiry."""
    return list(_checks(evidence))


def _checks(evidence: PoolEvidence) -> Iterator[RehearsalCheck]:
    first, second = evidence.first, evidence.second
    ended = [
        notification
        for notification in evidence.notifications
        if notification.run == first.run and notification.status == "completed"
    ]
    complete = len(ended) == 1 and "Warm pool" in ended[0].body and f"--like {first.run}" in ended[0].body
    yield RehearsalCheck(
        expected="the first job's notification says until when its pool is warm, what it costs, and the commands",
        found=f"{len(ended)} notification of its end, {'with' if complete else 'without'} all that",
        passed=complete,
    )
    yield RehearsalCheck(
        expected=f"{second.job_name} takes the pool of {first.job_name}",
        found=f"recorded {evidence.first_pool.reused_by}, on the host of {second.took_over}",
        passed=evidence.first_pool.state is PoolState.REUSED
        and evidence.first_pool.reused_by == second.job_name
        and second.took_over == first.job_name,
    )
    yield RehearsalCheck(
        expected="the second job starts faster than the first",
        found=f"{second.seconds:.1f} s against {first.seconds:.1f} s",
        passed=second.seconds < first.seconds,
    )
    yield RehearsalCheck(
        expected=f"the extension moves the expiry by {evidence.asked_seconds:.0f} s",
        found=f"{evidence.extended_seconds:.0f} s",
        passed=evidence.extended_seconds == evidence.asked_seconds,
    )
    reminders, expiries = (
        _received(evidence, kind) for kind in (NotificationKind.POOL_EXPIRING, NotificationKind.POOL_EXPIRED)
    )
    yield RehearsalCheck(
        expected="the end of the second pool is announced once, before it comes",
        found=f"{len(reminders)} received",
        passed=[notification.run for notification in reminders] == [second.run]
        and evidence.notifications.index(reminders[0])
        < min(map(evidence.notifications.index, expiries), default=1_000_000),
    )
    pool = evidence.second_pool
    yield RehearsalCheck(
        expected="its expiry is notified once, and none of the first pool, which was taken",
        found=f"{len(expiries)} received, of {', '.join(each.run for each in expiries) or 'none'}; {pool.end_reason}",
        passed=[notification.run for notification in expiries] == [second.run]
        and pool.end_reason is PoolEndReason.EXPIRED,
    )
    idle = [run.cost.idle_pool_seconds if run.cost else 0.0 for run in (evidence.first_run, evidence.second_run)]
    yield RehearsalCheck(
        expected="the time both pools waited is on their runs' bills",
        found=" and ".join(f"{seconds:.0f} s" for seconds in idle),
        passed=all(seconds > 0 for seconds in idle),
    )


def _received(evidence: PoolEvidence, kind: NotificationKind) -> list[ReceivedNotification]:
    return [notification for notification in evidence.notifications if notification.status == kind]
