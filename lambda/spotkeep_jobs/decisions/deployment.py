"""What a decision needs to know of the deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.decisions.pool_rules import PoolRules

if TYPE_CHECKING:
    pass

DEFAULT_LONG_WAIT: Final = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What a decision needs to know of the deployment.

    Attributes:
        name: For the notifications.
        prices: On-demand US dollars per instance and hour, by instance type.
        long_wait: A wait for capacity that is worth a notification.
        pool_rules: What it wants of warm pools.
    """

    name: str
    prices: Mapping[str, float]
    long_wait: timedelta = DEFAULT_LONG_WAIT
    pool_rules: PoolRules = field(default_factory=PoolRules)
