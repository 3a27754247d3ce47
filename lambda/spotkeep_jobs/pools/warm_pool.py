"""The record of a warm pool, as it must become by SageMaker's description of the pool's job. Pure.

No event reports that a pool was reused, ended or expired, so the controller asks (`pool_reconciler`). The same facts
lead to the same record and to one set of notifications (I4), at every wake-up. While a pool waits it is known and
bounded (I6). Its cost comes onto the bill of its own run (I8).

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html

One-time schedules reconcile a pool. Names are made of the pool's job and the time, so the same plan made twice is one
set of schedules. An extended pool has new ones beside the old ones. The old ones then find that the pool is not over
yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.backends.sagemaker.training_job import is_same_launch
from spotkeep_jobs.cost.run_cost import bill
from spotkeep_jobs.document.deployment_facts import PoolRules
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.notifications.texts.pools import (
    pool_expiring_notification,
    pool_over_notification,
    words_of_pool,
)
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Attempt, Pool, PoolChange, Run, TimelineEntry, format_time
from spotkeep_jobs.record.states import EndReason, NotificationKind, PoolEndReason, PoolState, TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobView
    from spotkeep_jobs.document.deployment_facts import DeploymentPolicy

LONGEST_CHAIN: Final = timedelta(days=28)
"""The longest time for which instances may be handed on from job to job.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html (Maximum warm pool duration)"""
_RETAINING: Final = frozenset(
    {
        EndReason.COMPLETED,
        EndReason.PAUSED,
        EndReason.STOPPED_BY_USER,
        EndReason.MAX_COST,
        EndReason.SCRIPT_FAILED,
    }
)
"""The endings after which SageMaker keeps a pool. DescribeTrainingJob has precedence over this list."""
_CLOCKS_DIFFER: Final = timedelta(seconds=60)
"""A pool that ended this shortly before the computed expiry has expired, because SageMaker's clock is its own."""
_SEEN_EVERYWHERE_AFTER: Final = timedelta(minutes=10)
"""A job that ended this long ago and that SageMaker does not know is gone. Before, the answer may be an old one."""
_SECONDS_PER_HOUR: Final = 3600


def pool_left_by(
    *,
    run: Run,
    attempt: Attempt,
    job: JobView,
    usd_per_hour: float | None,
    chain_since: datetime | None,
    now: datetime,
) -> Pool | None:
    """Return the warm pool of an ended job, as SageMaker describes it.

    Args:
        run: Its run.
        attempt: The job's attempt, with its end.
        job: SageMaker's description of the job.
        usd_per_hour: On-demand price of one of its instances, if it is known.
        chain_since: The creation time of the first job whose instances were handed on until this one, or None for new
            instances.
        now: The time of the decision.

    Returns:
        None when the job asked for no pool, or ended in a way without a pool.
    """
    if not job.keep_alive_seconds or job.pool_traits is None or job.training_seconds is None:
        return None
    if job.warm_pool is None and attempt.end_reason not in _RETAINING:
        return None
    since = attempt.ended_at or now
    pool = Pool(
        run=run.run,
        attempt=attempt.attempt,
        name=run.name,
        owner=run.owner,
        job_name=attempt.job_name,
        traits=job.pool_traits,
        kept_since=since,
        keep_alive_seconds=job.keep_alive_seconds,
        kept_until=since + timedelta(seconds=job.keep_alive_seconds),
        chain_since=chain_since or job.created_at,
        usd_per_hour=usd_per_hour,
    )
    return _as_found(pool, job, now=now)


@dataclass(frozen=True, kw_only=True)
class PoolFacts:
    """The facts for a decision about a pool. Made once for each reading of it.

    Attributes:
        run: The pool's run.
        attempts: All attempts of the run, first to last.
        pool: The pool.
        deployment: Names, prices and the rules for pools.
        now: The time of the decision.
    """

    run: Run
    attempts: Sequence[Attempt]
    pool: Pool
    deployment: DeploymentPolicy
    now: datetime

    @property
    def attempt(self) -> Attempt | None:
        """The attempt of the job that the pool comes from. None when its record has expired."""
        return next((each for each in self.attempts if each.attempt == self.pool.attempt), None)


def decide_pool(facts: PoolFacts, job: JobView | None) -> PoolChange | None:
    """Decide the missing part of the record of a pool that was available when it was last reconciled.

    Args:
        facts: The known facts.
        job: SageMaker's description of its job, or None when it knows no such job.

    Returns:
        The next change, or None when the record is complete.
    """
    pool, attempt, now = facts.pool, facts.attempt, facts.now
    if pool.state is not PoolState.AVAILABLE or attempt is None:
        return None
    if job is not None and not _is_of(attempt, job):
        job = None
    if job is not None and not job.ended:
        return None  # An answer older than the record.
    if job is None and now - pool.kept_since < _SEEN_EVERYWHERE_AFTER:
        return None
    if job is None:
        gone = with_changes(pool, state=PoolState.ENDED, end_reason=PoolEndReason.JOB_GONE, ended_at=now)
        return _over(facts, attempt, gone)
    found = _as_found(pool, job, now=now)
    if found.state is not PoolState.AVAILABLE:
        return _over(facts, attempt, found)
    return _still_there(facts, attempt, keep_alive_seconds=job.keep_alive_seconds)


def waits_as_recorded(facts: PoolFacts) -> bool:
    """Say whether nothing is to be done about a pool, if SageMaker says that it is there and it was not changed.

    Args:
        facts: The known facts.
    """
    pool, attempt = facts.pool, facts.attempt
    if pool.state is not PoolState.AVAILABLE or pool.asked_to_end is not None or attempt is None:
        return False
    if facts.now >= pool.kept_until - _CLOCKS_DIFFER:
        return False  # It is over in a moment, or a user has extended it.
    return _still_there(facts, attempt, keep_alive_seconds=pool.keep_alive_seconds) is None


def stop_requested(*, run: Run, attempt: Attempt, pool: Pool, reason: PoolEndReason, now: datetime) -> PoolChange:
    """Record that a pool is to end. The next reconciliation ends it."""
    because = "a user asked for it" if reason is PoolEndReason.STOPPED_BY_USER else "it has been idle too long"
    return PoolChange(
        run=run,
        attempt=attempt,
        pool=pool.to_end(reason, at=now),
        timeline=(_entry(pool, TimelineKind.POOL_STOP_REQUESTED, f"Its warm pool is to end: {because}", at=now),),
    )


def idle_seconds(pool: Pool, *, now: datetime) -> float:
    """Return how long a pool has waited, wall-clock, so far or in all."""
    if pool.idle_seconds is not None:
        return pool.idle_seconds
    return max(0.0, ((pool.ended_at or now) - pool.kept_since).total_seconds())


def idle_usd(pool: Pool, *, now: datetime) -> float | None:
    """Return the cost of a pool's waiting, so far or in all, over its instances. None where the price is not known."""
    if pool.usd_per_hour is None:
        return None
    return idle_seconds(pool, now=now) * pool.traits.instance_count * pool.usd_per_hour / _SECONDS_PER_HOUR


def kept_entry(pool: Pool) -> TimelineEntry:
    """Return the timeline entry for a pool that begins, or does not."""
    if pool.state is PoolState.NOT_KEPT:
        return _entry(pool, TimelineKind.POOL_NOT_KEPT, words_of_pool(pool).timeline, at=pool.kept_since)
    text = f"Its instances stay warm for {format_duration(pool.keep_alive_seconds)}, until {_clock(pool.kept_until)}"
    return _entry(pool, TimelineKind.POOL_KEPT, text, at=pool.kept_since)


def with_idle_time(attempt: Attempt, pool: Pool) -> Attempt:
    """Return the attempt with its pool's waiting on its account, when that is over."""
    if pool.idle_seconds is None or attempt.usage is None:
        return attempt
    return with_changes(attempt, usage=with_changes(attempt.usage, pool_idle_seconds=pool.idle_seconds))


def _as_found(pool: Pool, job: JobView, *, now: datetime) -> Pool:
    """Return a pool as SageMaker describes it. It is over, or unchanged where it is there."""
    warm = job.warm_pool
    in_time = now < pool.kept_until - _CLOCKS_DIFFER
    if warm is None or (
        warm.status == "Terminated" and not warm.idle_seconds and in_time and pool.asked_to_end is None
    ):
        return with_changes(pool, state=PoolState.NOT_KEPT, ended_at=now, idle_seconds=0.0)
    if warm.status not in {"Reused", "Terminated"}:
        return pool
    until = min(now, pool.kept_until)
    idle_seconds = (
        float(warm.idle_seconds)
        if warm.idle_seconds is not None
        else max(0.0, (until - pool.kept_since).total_seconds())
    )
    over = with_changes(pool, ended_at=now, idle_seconds=idle_seconds)
    if warm.status == "Reused":
        return with_changes(over, state=PoolState.REUSED, reused_by=warm.reused_by)
    of_itself = PoolEndReason.ENDED_EARLY if in_time else PoolEndReason.EXPIRED
    reason = of_itself if pool.asked_to_end is None else pool.asked_to_end.reason
    return with_changes(over, state=PoolState.ENDED, end_reason=reason)


def _over(facts: PoolFacts, attempt: Attempt, pool: Pool) -> PoolChange:
    """Return the change that records that the pool is gone, with its new job or the reason, and its cost."""
    attempt = with_idle_time(attempt, pool)
    attempts = [attempt if each.attempt == attempt.attempt else each for each in facts.attempts]
    run = facts.run
    if run.state.ended and run.cost is not None:
        # The bill of a run that goes on is made when it ends, with this attempt's share in it.
        run = with_changes(run, cost=bill(attempts, prices=facts.deployment.prices) or run.cost)
    notifications = []
    if pool.state is not PoolState.REUSED and NotificationKind.POOL_EXPIRED in run.notify:
        notifications.append(
            pool_over_notification(run=run, pool=pool, deployment=facts.deployment.name, created_at=facts.now)
        )
    return PoolChange(
        run=run,
        attempt=attempt,
        pool=pool,
        timeline=(_over_entry(pool, now=facts.now),),
        notifications=tuple(notifications),
    )


def _still_there(facts: PoolFacts, attempt: Attempt, *, keep_alive_seconds: int) -> PoolChange | None:
    """Return the change of a pool that still waits, or None.

    A changed keep-alive period, a limit that is reached and a due reminder make a change.
    """
    pool, rules, now = facts.pool, facts.deployment.pool_rules, facts.now
    entries, notifications = [], []
    if keep_alive_seconds and keep_alive_seconds != pool.keep_alive_seconds:
        until = pool.kept_since + timedelta(seconds=keep_alive_seconds)
        pool = with_changes(pool, keep_alive_seconds=keep_alive_seconds, kept_until=until)
        text = f"Its warm pool is kept for {format_duration(keep_alive_seconds)} now, until {_clock(until)}"
        entries.append(_entry(pool, TimelineKind.POOL_EXTENDED, text, at=now))
    limit = rules.idle_limit_seconds
    if pool.asked_to_end is None and limit is not None and idle_seconds(pool, now=now) >= limit:
        reason = PoolEndReason.STOPPED_AT_LIMIT
        asked = stop_requested(run=facts.run, attempt=attempt, pool=pool, reason=reason, now=now)
        pool = asked.pool
        entries += asked.timeline
    if _is_to_remind(facts.run, pool, lead_seconds=rules.reminder_lead_seconds, now=now):
        notifications.append(
            pool_expiring_notification(
                run=facts.run,
                pool=pool,
                idle_usd=idle_usd(pool, now=now),
                deployment=facts.deployment.name,
                created_at=now,
            )
        )
        pool = with_changes(pool, reminded_for=pool.kept_until, reminders=pool.reminders + 1)
    if pool == facts.pool:
        return None
    return PoolChange(
        run=facts.run, attempt=attempt, pool=pool, timeline=tuple(entries), notifications=tuple(notifications)
    )


def _is_to_remind(run: Run, pool: Pool, *, lead_seconds: int, now: datetime) -> bool:
    due_at = reminder_due_at(pool, lead_seconds=lead_seconds)
    if due_at is None or now < due_at or pool.reminded_for == pool.kept_until or now >= pool.kept_until:
        return False
    return pool.asked_to_end is None and NotificationKind.POOL_EXPIRING in run.notify


def _over_entry(pool: Pool, *, now: datetime) -> TimelineEntry:
    if pool.state is PoolState.NOT_KEPT:
        return kept_entry(pool)
    if pool.state is PoolState.REUSED:
        text = f"Its warm pool went to training job {pool.reused_by}"
        return _entry(pool, TimelineKind.POOL_REUSED, text, at=now)
    return _entry(pool, TimelineKind.POOL_ENDED, words_of_pool(pool).timeline, at=now)


def reminder_due_at(pool: Pool, *, lead_seconds: int) -> datetime | None:
    """Return when users are to be reminded of a pool.

    Returns:
        None when there is no reminder: it would come with, or before, the notification that the run has ended.
    """
    at = pool.kept_until - timedelta(seconds=lead_seconds)
    return at if lead_seconds > 0 and at > pool.kept_since else None


def _is_of(attempt: Attempt, job: JobView) -> bool:
    if attempt.job_id is not None and job.job_id != attempt.job_id:
        return False
    return attempt.job_request is None or is_same_launch(environment=job.environment, parameters=attempt.job_request)


def _entry(pool: Pool, kind: TimelineKind, text: str, *, at: datetime) -> TimelineEntry:
    return TimelineEntry(run=pool.run, attempt=pool.attempt, at=at, kind=kind, text=text)


def _clock(at: datetime) -> str:
    return f"{at:%H:%M} UTC"


SETTLES: Final = timedelta(seconds=5)
"""The time that SageMaker has to end an expired pool."""
RECONCILED_AGAIN_AFTER: Final = timedelta(seconds=30)

_HASH_DIGITS: Final = 24


class PoolFiring(StrEnum):
    """The reason why a pool is reconciled. The facts about it always come from SageMaker."""

    REMINDER = "reminder"
    EXPIRY = "expiry"
    AGAIN = "again"
    """Its time was over and it was still there."""


@dataclass(frozen=True, kw_only=True)
class PlannedSchedule:
    """A one-time schedule.

    Attributes:
        name: At most 64 of `[0-9a-zA-Z-_.]`.
        at: The time when it fires, which is a whole second in UTC.
        payload: The event that the controller receives.
    """

    name: str
    at: datetime
    payload: dict[str, Any]

    @property
    def expression(self) -> str:
        """The time as EventBridge Scheduler takes it, without zone and fraction.

        Source: https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html#one-time
        """
        return f"at({self.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})"


def plan_schedules(pool: Pool, *, rules: PoolRules, deployment: str, now: datetime) -> tuple[PlannedSchedule, ...]:
    """Plan the reconciliations that a pool still needs.

    Args:
        pool: The pool, as recorded.
        rules: When users are reminded.
        deployment: Prefix of the names.
        now: The time: nothing is planned for the past.
    """
    if pool.state is not PoolState.AVAILABLE:
        return ()
    planned: list[tuple[PoolFiring, datetime]] = []
    reminder_at = reminder_due_at(pool, lead_seconds=rules.reminder_lead_seconds)
    if reminder_at is not None and reminder_at > now and pool.reminded_for != pool.kept_until:
        planned.append((PoolFiring.REMINDER, reminder_at))
    expiry_at = pool.kept_until + SETTLES
    planned.append(
        (PoolFiring.EXPIRY, expiry_at) if expiry_at > now else (PoolFiring.AGAIN, now + RECONCILED_AGAIN_AFTER)
    )
    return tuple(_planned(pool, firing, at, deployment=deployment) for firing, at in planned)


def _planned(pool: Pool, firing: PoolFiring, at: datetime, *, deployment: str) -> PlannedSchedule:
    at = _whole(at, seconds=RECONCILED_AGAIN_AFTER.seconds if firing is PoolFiring.AGAIN else 1)
    mark = hashlib.sha256(f"{pool.job_name}\n{format_time(at)}".encode()).hexdigest()[:_HASH_DIGITS]
    return PlannedSchedule(
        name=f"{deployment}-{firing}-{mark}",
        at=at,
        payload={"run": pool.run, "attempt": pool.attempt, "firing": firing.value},
    )


def _whole(at: datetime, *, seconds: int) -> datetime:
    """Return the time, rounded up, so that two functions that plan at nearly the same time plan one schedule."""
    epoch = -(-at.timestamp() // seconds) * seconds
    return datetime.fromtimestamp(epoch, tz=UTC)
