"""What is stored for each run, and for how long it has been: every version that the bucket still holds. Pure.

A replaced or deleted object is billed as long as the bucket keeps its version. What the bucket has let go since is not
seen any more, so a run's storage is at least what is counted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spotkeep_jobs.cost.storage_cost import storage_usd

if TYPE_CHECKING:
    from spotkeep_cli.aws.stored_objects import StoredVersion


@dataclass(frozen=True, kw_only=True)
class RunStorage:
    """What is stored for one run.

    Attributes:
        stored_bytes: Now, replaced and deleted versions included.
        byte_seconds: Each version's bytes times its age.
    """

    stored_bytes: int = 0
    byte_seconds: float = 0.0

    def usd(self, *, usd_per_gigabyte_month: float | None) -> float | None:
        """Return what it has cost; None when the price is not known."""
        return storage_usd(self.byte_seconds, usd_per_gigabyte_month=usd_per_gigabyte_month)


def storage_by_run(versions: Iterable[StoredVersion], *, now: datetime) -> dict[str, RunStorage]:
    """Add versions up.

    Args:
        versions: In any order.
        now: The time.
    """
    bytes_of: dict[str, int] = {}
    byte_seconds_of: dict[str, float] = {}
    for version in versions:
        age = max(0.0, (now - version.written_at).total_seconds())
        bytes_of[version.run] = bytes_of.get(version.run, 0) + version.size
        byte_seconds_of[version.run] = byte_seconds_of.get(version.run, 0.0) + version.size * age
    return {run: RunStorage(stored_bytes=total, byte_seconds=byte_seconds_of[run]) for run, total in bytes_of.items()}
