"""The warm pool of one job: its status, and since when it waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum


class PoolStatus(StrEnum):
    """WarmPoolStatus.Status."""

    IN_USE = "InUse"
    AVAILABLE = "Available"
    REUSED = "Reused"
    TERMINATED = "Terminated"


@dataclass(frozen=True, kw_only=True)
class WarmPool:
    """The pool of one job. Times are epoch seconds.

    Attributes:
        chain_since: When the first of the jobs that handed these instances on was created.
        kept_since: When its job ended; None while that runs.
        over_at: When the pool was reused or ended.
        reused_by: The job that took it over.
    """

    status: PoolStatus = PoolStatus.IN_USE
    chain_since: float
    kept_since: float | None = None
    over_at: float | None = None
    reused_by: str | None = None

    def idle_seconds(self, now: float) -> int:
        """ResourceRetainedBillableTimeInSeconds: how long it waited, or has waited by now."""
        if self.kept_since is None:
            return 0
        return math.ceil(round(max(0.0, (self.over_at or now) - self.kept_since), 6))

    def over(self, status: PoolStatus, *, now: float, reused_by: str | None = None) -> WarmPool:
        """Return the pool when it is gone."""
        return replace(self, status=status, over_at=now, reused_by=reused_by)
