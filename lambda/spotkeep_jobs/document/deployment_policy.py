"""What a decision needs to know of the deployment, and what it lets a run spend at most. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

DEFAULT_LONG_WAIT: Final = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class SpendingLimits:
    """The ceilings of a deployment; each attribute is the setting of the same name. None: no ceiling.

    Attributes:
        allowed_instance_types: Shell patterns; a type of SageMaker or EC2 is allowed where one of them matches it.
        run_cost_limit_usd: What a run may cost in the worst case, over all its attempts.
        volume_size_limit_gb: Storage of each instance of a job, in GB, or of the volume of a run on EC2, in GiB.
        volume_iops_limit: Provisioned IOPS of the volume of a run on EC2.
        runs_in_flight_limit: How many runs of the deployment may be under way at a time.
    """

    allowed_instance_types: tuple[str, ...] = ("*",)
    run_cost_limit_usd: float | None = None
    volume_size_limit_gb: int | None = None
    volume_iops_limit: int | None = None
    runs_in_flight_limit: int | None = None


NO_LIMITS: Final = SpendingLimits()


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
