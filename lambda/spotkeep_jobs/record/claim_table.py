"""Claims of runs in the run table, on a token, on a checkpoint prefix (its lock) and on a slot for runs in flight.

A claim outlives the process that made it. It is written and deleted in the transaction that opens or ends its run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table_errors import CheckpointPrefixTakenError, RunsInFlightError
from spotkeep_jobs.record.table_client import Item, TableClient, Write, to_dynamodb

_SLOTS: Final = "in-flight"


class ClaimTable(TableClient):
    """Tokens, checkpoint locks and slots."""

    def checkpoint_lock_owner(self, checkpoint_uri: str) -> str | None:
        """Return the live run that owns a checkpoint prefix, or None."""
        item = self._get_item(f"checkpoint-lock#{checkpoint_uri}", "claim")
        return None if item is None else str(item["run"])

    def slots_taken(self) -> int:
        """Return how many slots for runs in flight are taken (strongly consistent)."""
        return sum(1 for _ in self._query_run(_SLOTS, "slot#"))

    def _free_slots(self, count: int, *, limit: int) -> Sequence[int]:
        """Return free slots for runs. The transaction that claims them finds out about other claims.

        One run at a time claims a slot. So there are never more runs than slots, however many launches race. In a
        deployment with a lowered limit, some runs hold slots above the new limit. These runs count, too. As many fewer
        of the low slots are given out.

        Raises:
            RunsInFlightError: There are not so many free slots.
        """
        taken = {int(str(item["sk"]).removeprefix("slot#")) for item in self._query_run(_SLOTS, "slot#")}
        free = [slot for slot in range(limit) if slot not in taken][: max(0, limit - len(taken))]
        if len(free) < count:
            raise RunsInFlightError(in_flight=len(taken), limit=limit)
        return random.sample(free, count)

    def _run_of_token(self, run: Run) -> str | None:
        """Return the run that a run's token launched, or None. Of several that were launched as one, the first."""
        item = self._get_item(_partition_of_token(run), "claim")
        return None if item is None else str(item["run"])

    def _claim_token(self, run: Run, *, expires_at: int) -> Write:
        return self._put(
            {"pk": _partition_of_token(run), "sk": "claim", "run": run.run, "expires_at": expires_at},
            condition="attribute_not_exists(pk)",
        )

    def _take_checkpoint_lock(self, run: Run) -> Write:
        return self._put(
            {**_lock_key(run), "run": run.run},
            condition="attribute_not_exists(pk)",
        )

    def _release_checkpoint_lock(self, run: Run) -> Write:
        return self._delete_claim(_lock_key(run), run.run)

    def _claim_slot(self, run: Run) -> Iterator[Write]:
        if run.slot is not None:
            claim = {"pk": _SLOTS, "sk": _slot_key(run.slot), "run": run.run}
            yield self._put(claim, condition="attribute_not_exists(pk)")

    def _release_slot(self, run: Run) -> Iterator[Write]:
        if run.slot is not None:
            yield self._delete_claim({"pk": _SLOTS, "sk": _slot_key(run.slot)}, run.run)

    def _delete_claim(self, key: Item, owner: str) -> Write:
        return {
            "Delete": {
                "TableName": self._table,
                "Key": to_dynamodb(key),
                "ConditionExpression": "attribute_not_exists(pk) OR run = :run",
                "ExpressionAttributeValues": to_dynamodb({":run": owner}),
            }
        }

    def _checkpoint_prefix_taken(self, run: Run) -> CheckpointPrefixTakenError:
        owner = self.checkpoint_lock_owner(run.checkpoint_uri)
        return CheckpointPrefixTakenError(checkpoint_uri=run.checkpoint_uri, owned_by=owner or "another run")


def _partition_of_token(run: Run) -> str:
    # The tokens of trials, of what schedules launch and of adopted jobs follow from what every user reads. A user's own
    # token has no #, so it never claims one of these.
    kinds = {"trial": run.trial is not None, "firing": run.schedule is not None, "adopted": run.adopted}
    return "#".join(["token", *(kind for kind, is_one in kinds.items() if is_one), run.token])


def _lock_key(run: Run) -> Item:
    # A run without a checkpoint prefix locks its own name, which no other run asks for.
    return {"pk": f"checkpoint-lock#{run.checkpoint_uri or run.run}", "sk": "claim"}


def _slot_key(slot: int) -> str:
    return f"slot#{slot:04d}"
