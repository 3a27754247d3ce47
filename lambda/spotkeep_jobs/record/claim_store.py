"""Claims in the run table, on tokens, ids, checkpoint prefixes and slots for runs in flight.

A claim outlives the process that made it. It is written and deleted in the transaction that opens or ends its run.

A sweep's record reserves the ids of its trials. A schedule's record reserves the ids of its launches. Any other run may
be opened under an id of such a form. Its transaction checks that there is no such sweep and no such schedule, and
writes a claim. A sweep that is opened checks in its own transaction that there is no such claim. A schedule is recorded
first, and made when there is none. So of two that meet, one is refused, whichever comes first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spotkeep_jobs.record.ids import FiringId, firing_around, sweep_around
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table_errors import CheckpointPrefixTakenError, RunsInFlightError
from spotkeep_jobs.record.table_client import Item, TableClient, Write, to_dynamodb

_CLAIM: Final = "claim"
_SLOTS: Final = "in-flight"


@dataclass(frozen=True, kw_only=True)
class ClaimStore:
    """Tokens, ids, checkpoint locks and slots.

    Attributes:
        table: The run table.
    """

    table: TableClient

    def checkpoint_lock_owner(self, checkpoint_uri: str) -> str | None:
        """Return the live run that owns a checkpoint prefix, or None."""
        item = self.table.get_item(f"checkpoint-lock#{checkpoint_uri}", "claim")
        return None if item is None else str(item["run"])

    def slots_taken(self) -> int:
        """Return how many slots for runs in flight are taken (strongly consistent)."""
        return sum(1 for _ in self.table.query_run(_SLOTS, "slot#"))

    def free_slots(self, count: int, *, limit: int) -> Sequence[int]:
        """Return free slots for runs. The transaction that claims them finds out about other claims.

        One run at a time claims a slot. So there are never more runs than slots, however many launches race. In a
        deployment with a lowered limit, some runs hold slots above the new limit. These runs count, too. As many fewer
        of the low slots are given out.

        Raises:
            RunsInFlightError: There are not so many free slots.
        """
        taken = {int(str(item["sk"]).removeprefix("slot#")) for item in self.table.query_run(_SLOTS, "slot#")}
        free = [slot for slot in range(limit) if slot not in taken][: max(0, limit - len(taken))]
        if len(free) < count:
            raise RunsInFlightError(in_flight=len(taken), limit=limit)
        return random.sample(free, count)

    def run_of_token(self, run: Run) -> str | None:
        """Return the run that a run's token launched, or None. Of several that were launched as one, the first."""
        item = self.table.get_item(_partition_of_token(run), "claim")
        return None if item is None else str(item["run"])

    def claim_token(self, run: Run, *, expires_at: int) -> Write:
        """Return the write that claims a run's token."""
        return self.table.put(
            {"pk": _partition_of_token(run), "sk": "claim", "run": run.run, "expires_at": expires_at},
            condition="attribute_not_exists(pk)",
        )

    def take_checkpoint_lock(self, run: Run) -> Write:
        """Return the write that takes the lock of a run's checkpoint prefix."""
        return self.table.put(
            {**_lock_key(run), "run": run.run},
            condition="attribute_not_exists(pk)",
        )

    def release_checkpoint_lock(self, run: Run) -> Write:
        """Return the write that gives the lock of a run's checkpoint prefix back."""
        return self._delete_claim(_lock_key(run), run.run)

    def claim_slot(self, run: Run) -> Iterator[Write]:
        """Yield the write that claims a run's slot, or nothing for a run without one."""
        if run.slot is not None:
            claim = {"pk": _SLOTS, "sk": _slot_key(run.slot), "run": run.run}
            yield self.table.put(claim, condition="attribute_not_exists(pk)")

    def release_slot(self, run: Run) -> Iterator[Write]:
        """Yield the write that gives a run's slot back, or nothing for a run without one."""
        if run.slot is not None:
            yield self._delete_claim({"pk": _SLOTS, "sk": _slot_key(run.slot)}, run.run)

    def _delete_claim(self, key: Item, owner: str) -> Write:
        return {
            "Delete": {
                "TableName": self.table.name,
                "Key": to_dynamodb(key),
                "ConditionExpression": "attribute_not_exists(pk) OR run = :run",
                "ExpressionAttributeValues": to_dynamodb({":run": owner}),
            }
        }

    def checkpoint_prefix_taken(self, run: Run) -> CheckpointPrefixTakenError:
        """Return the error about the lock of a run's checkpoint prefix, with the run that owns it."""
        owner = self.checkpoint_lock_owner(run.checkpoint_uri)
        return CheckpointPrefixTakenError(checkpoint_uri=run.checkpoint_uri, owned_by=owner or "another run")

    def run_with_id_of_a_trial(self, sweep: str) -> str | None:
        """Return the newest run that took an id of this sweep's trials (strongly consistent), or None.

        The sweep's own trials do not count. A forgotten run counts for some weeks more.
        """
        item = self.table.get_item(_of_trials(sweep), _CLAIM)
        return None if item is None else str(item["run"])

    def ids_of_firings(self, schedule: str, *, now: datetime) -> list[FiringId]:
        """Return the ids that this schedule would launch under from now on, and that others have (strongly consistent).

        Args:
            schedule: The schedule.
            now: The time, aware.
        """
        taken = self.table.query(
            KeyConditionExpression="pk = :pk AND sk >= :first",
            ExpressionAttributeValues=to_dynamodb({":pk": _of_firings(schedule), ":first": f"{now:%Y%m%d}"}),
            ConsistentRead=True,
        )
        found = [firing_around(f"{schedule}-{item['sk']}", is_sweep=True) for item in taken]
        return [each for each in found if each is not None and each.over_at > now]

    def take_ids_of(self, run: Run) -> Iterator[Write]:
        """Yield the writes that give a run its id, or all runs of its group theirs. They are four at most.

        Another client has made the job of an adopted run, under any name. So an adopted run takes the id without a
        check.
        """
        if run.trial is not None:
            return  # Its sweep has it for it.
        name, expires_at = run.run if run.group is None else run.group.id, self.table.outlives_run(run.created_at)
        if not run.adopted:
            yield self.table.absent(f"sweep#{name}")
        if run.group is None:
            yield from self._take_id_of_trial(name, expires_at=expires_at, checked=not run.adopted)
        else:
            yield self._claim_id_of_trial(name, run=run.run, expires_at=expires_at)
        firing = list(self._take_id_of_firing(name, run.schedule, expires_at=expires_at, checked=not run.adopted))
        if run.group is not None and not firing and (sweep := sweep_around(name)) is not None:
            yield self.table.absent(f"sweep#{sweep}")  # No run has the name of the group; it would look like a trial.
        yield from firing

    def keep_ids_of(self, run: Run, *, now: datetime) -> Iterator[Write]:
        """Yield the writes that keep the id of a continued run claimed. The claim then expires later."""
        expires_at = self.table.outlives_run(now)
        yield from self._take_id_of_trial(run.run, expires_at=expires_at, checked=False)
        yield from self._take_id_of_firing(run.run, run.schedule, expires_at=expires_at, checked=False)

    def take_sweep_id(self, sweep: str, *, schedule: str | None, created_at: datetime) -> Iterator[Write]:
        """Yield the writes that give a sweep its id, and those of its trials."""
        yield self.table.absent(f"run#{sweep}")
        yield self.table.absent(_of_trials(sweep), _CLAIM)
        expires_at = self.table.outlives_run(created_at)
        yield from self._take_id_of_trial(sweep, expires_at=expires_at)
        yield from self._take_id_of_firing(sweep, schedule, expires_at=expires_at, is_sweep=True)

    def _take_id_of_trial(self, name: str, *, expires_at: int, checked: bool = True) -> Iterator[Write]:
        if (sweep := sweep_around(name)) is not None:
            if checked:
                yield self.table.absent(f"sweep#{sweep}")
            yield self._claim_id_of_trial(sweep, run=name, expires_at=expires_at)

    def _take_id_of_firing(
        self, name: str, schedule: str | None, *, expires_at: int, checked: bool = True, is_sweep: bool = False
    ) -> Iterator[Write]:
        firing = firing_around(name, is_sweep=is_sweep)
        if firing is not None and firing.schedule != schedule:
            if checked:
                yield self.table.absent(f"schedule#{firing.schedule}")
            key = {"pk": _of_firings(firing.schedule), "sk": firing.firing}
            yield self.table.put({**key, "run": name, "expires_at": expires_at})

    def _claim_id_of_trial(self, sweep: str, *, run: str, expires_at: int) -> Write:
        return self.table.put({"pk": _of_trials(sweep), "sk": _CLAIM, "run": run, "expires_at": expires_at})


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


def _of_trials(sweep: str) -> str:
    return f"trial-id#{sweep}"


def _of_firings(schedule: str) -> str:
    return f"firing-id#{schedule}"
