"""The warm pools that training jobs left, in the run table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from spotkeep_jobs.record.record import Pool, format_time
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.record.table_client import (
    IN_FLIGHT_INDEX,
    TableClient,
    Unreadable,
    Write,
    fields_of,
    readable,
    record_of,
)

POOL_IN_FLIGHT: Final = "pool"


class PoolTable(TableClient):
    """Warm pools, and since when instances have been handed on from pool to pool."""

    def pool(self, run: str, attempt: int) -> Pool | None:
        """Return the warm pool that an attempt's job left (strongly consistent), or None."""
        return self._read(Pool, f"run#{run}", f"pool#{attempt:04d}")

    def pools(self, run: str) -> Sequence[Pool]:
        """Return the warm pools that a run's jobs left, first to last."""
        return [record_of(Pool, item) for item in self._query_run(f"run#{run}", "pool#")]

    def kept_pools(self, *, unreadable: Unreadable | None = None) -> Iterator[Pool]:
        """Yield warm pools that were there when last reconciled, the first to expire first (eventually consistent)."""
        items = self._query_index(IN_FLIGHT_INDEX, "in_flight", POOL_IN_FLIGHT, forward=True)
        return readable(Pool, items, unreadable=unreadable)

    def chain_of(self, job_name: str) -> datetime | None:
        """Since when the instances that a training job took over have been handed on, or None."""
        item = self._get_item(f"reuse#{job_name}", "claim")
        return None if item is None else datetime.fromisoformat(str(item["chain_since"]))

    def _pool_writes(self, pool: Pool) -> Iterator[Write]:
        item = fields_of(pool) | {
            "pk": f"run#{pool.run}",
            "sk": f"pool#{pool.attempt:04d}",
            "updated_at": format_time(pool.kept_until),
            "expires_at": self._outlives_run(pool.kept_since),
        }
        if pool.state is PoolState.AVAILABLE:
            item["in_flight"] = POOL_IN_FLIGHT
        yield self._put(item)
        if pool.state is PoolState.REUSED and pool.reused_by is not None:
            yield self._put(
                {
                    "pk": f"reuse#{pool.reused_by}",
                    "sk": "claim",
                    "chain_since": format_time(pool.chain_since),
                    "expires_at": self._outlives_run(pool.kept_since),
                }
            )
