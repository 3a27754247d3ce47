"""What a deployment wants of warm pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True)
class PoolRules:
    """What a deployment wants of warm pools.

    Attributes:
        reminder_lead_seconds: How long before its expiry users are reminded of a pool; 0 for no reminder.
        idle_limit_seconds: A pool that has waited longer is stopped; None for no such limit.
        idle_limit_usd: A pool whose waiting has cost more is stopped; None for no such limit. It can be kept only
            where the price of the instance type is known.
    """

    reminder_lead_seconds: int = 600
    idle_limit_seconds: int | None = None
    idle_limit_usd: float | None = None
