"""The plan of one-time schedules at which a warm pool is reconciled. Pure.

Names are made of the pool's job and the time, so the same plan made twice is one set of schedules. An extended pool has
new ones beside the old ones. The old ones then find that the pool is not over yet.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from spotkeep_jobs.document.deployment_facts import PoolRules
from spotkeep_jobs.pools.warm_pool import reminder_due_at
from spotkeep_jobs.record.record import Pool, format_time
from spotkeep_jobs.record.states import PoolState

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
        at: The time of its firing, a whole second in UTC.
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
