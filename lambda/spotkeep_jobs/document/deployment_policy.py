"""What a decision needs to know of the deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from spotkeep_jobs.document.spending_limits import NO_LIMITS, SpendingLimits

DEFAULT_LONG_WAIT: Final = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class PoolRules:
    """What a deployment wants of warm pools.

    Attributes:
        reminder_lead_seconds: How long before its expiry users are reminded of a pool; 0 for no reminder.
        idle_limit_seconds: A pool that has waited longer is stopped; None for no such limit.
    """

    reminder_lead_seconds: int = 600
    idle_limit_seconds: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeploymentPolicy:
    """What a decision needs to know of the deployment.

    Attributes:
        name: For the notifications.
        prices: On-demand US dollars per instance and hour, by instance type.
        long_wait: A wait for capacity that is worth a notification.
        pool_rules: What it wants of warm pools.
        limits: What a run may spend.
    """

    name: str
    prices: Mapping[str, float]
    long_wait: timedelta = DEFAULT_LONG_WAIT
    pool_rules: PoolRules = field(default_factory=PoolRules)
    limits: SpendingLimits = NO_LIMITS
