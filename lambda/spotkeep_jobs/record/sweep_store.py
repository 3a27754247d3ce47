"""Sweeps and their trials in the run table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from spotkeep_jobs.errors import (
    DeploymentIsBeingDeletedError,
    IdReservedError,
    RunTableError,
    UnreadableRecordError,
    in_words,
)
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import format_time
from spotkeep_jobs.record.shared_stores import ClaimStore, DeploymentStore, NotificationStore
from spotkeep_jobs.record.sweep import Sweep, SweepChange, Trial
from spotkeep_jobs.record.table_client import (
    BY_CREATED_INDEX,
    IN_FLIGHT_INDEX,
    Item,
    TableClient,
    TransactionCancelled,
    Unreadable,
    epoch_seconds,
    fields_of,
    readable,
    record_of,
    record_of_text,
    to_dynamodb,
)

MOST_TRIALS_A_CHANGE: Final = 90
"""The most trials in one change.

DynamoDB takes 100 items in a transaction, which has the sweep and a few notifications, too.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
"""
SWEEPS: Final = "sweep"
SWEEP_IN_FLIGHT: Final = "sweep"


class SweepExistsError(RunTableError):
    """The sweep's id is taken by a request with another token."""

    def __init__(self, sweep: str) -> None:
        super().__init__(f"sweep {sweep!r} exists already, from another request. Leave `run` out or choose another id")
        self.sweep = sweep


class SweepChangedError(RunTableError):
    """Another function changed the sweep since it was read. The caller reads it again and decides again."""

    def __init__(self, sweep: str) -> None:
        super().__init__(f"sweep {sweep!r} was changed by another function meanwhile. Read it again, decide again")
        self.sweep = sweep


@dataclass(frozen=True, kw_only=True)
class SweepStore:
    """Sweeps: an item each, and an item for each trial.

    Attributes:
        table: The run table.
        notifications: The outbox.
        claims: The claims of ids.
        deployment: The deployment's own items.
    """

    table: TableClient
    notifications: NotificationStore
    claims: ClaimStore
    deployment: DeploymentStore

    def open(self, sweep: Sweep) -> tuple[Sweep, bool]:
        """Record a new sweep.

        Returns:
            The sweep's item, and whether the same token recorded it before (nothing was written).

        Raises:
            SweepExistsError: Its id is taken, by a request with another token.
            IdReservedError: A run has its id, or one of its trials'. Or the id is another sweep's or a schedule's.
            DeploymentIsBeingDeletedError: No sweep begins any more.
            SweepChangedError: Another transaction was under way: try again.
        """
        writes = [
            self.table.put(self.item(sweep), condition="attribute_not_exists(pk)"),
            *self.claims.take_sweep_id(sweep.sweep, schedule=sweep.schedule, created_at=sweep.created_at),
        ]
        try:
            self.table.transact([*writes, self.deployment.unless_being_deleted()])
        except TransactionCancelled as cancelled:
            if cancelled.refused(len(writes)) and not cancelled.refused(0):
                raise DeploymentIsBeingDeletedError from cancelled
            if not cancelled.refused(0):
                if any(cancelled.refused(position) for position in range(1, len(writes))):
                    raise IdReservedError(sweep.sweep) from cancelled
                raise SweepChangedError(sweep.sweep) from cancelled
            known = self.get(sweep.sweep)
            if known is None or known.token != sweep.token:
                raise SweepExistsError(sweep.sweep) from cancelled
            return known, True
        return sweep, False

    def commit(self, change: SweepChange, *, goes_on: bool = False) -> Sweep:
        """Write a change of a sweep and its trials in one transaction.

        Args:
            change: The change, with the version that the decision was made on in `sweep.version`. At most
                `MOST_TRIALS_A_CHANGE` trials.
            goes_on: True when it lets a sweep go on that had ended.

        Returns:
            The sweep's item as written.

        Raises:
            SweepChangedError: Another function changed the sweep meanwhile. Nothing was written.
            DeploymentIsBeingDeletedError: No sweep goes on any more.
        """
        written = with_changes(change.sweep, version=change.sweep.version + 1)
        try:
            self.table.transact(
                [
                    self.table.put(
                        self.item(written), condition="version = :seen", values={":seen": change.sweep.version}
                    ),
                    *(self.table.put(self.trial_item(trial, written)) for trial in change.trials),
                    *self.notifications.writes(change.notifications),
                    *([self.deployment.unless_being_deleted()] if goes_on else []),
                ]
            )
        except TransactionCancelled as cancelled:
            last = len(change.trials) + len(change.notifications) + 1
            if goes_on and cancelled.refused(last) and not cancelled.refused(0):
                raise DeploymentIsBeingDeletedError from cancelled
            raise SweepChangedError(change.sweep.sweep) from cancelled
        return written

    def get(self, sweep: str) -> Sweep | None:
        """Return the item of a sweep (strongly consistent), or None."""
        return self.table.read(Sweep, f"sweep#{sweep}", "item")

    def with_trials(self, sweep: str, *, unreadable: Unreadable | None = None) -> tuple[Sweep | None, list[Trial]]:
        """Return a sweep's item (strongly consistent) and its trials in the order of their numbers, in one query.

        Args:
            sweep: Its id.
            unreadable: Takes the trials that cannot be read. None to raise at the first.
        """
        item: Sweep | None = None
        trials: list[Trial] = []
        for found in self.table.query(
            KeyConditionExpression="pk = :pk AND sk >= :first",
            ExpressionAttributeValues=to_dynamodb({":pk": f"sweep#{sweep}", ":first": "item"}),
            ConsistentRead=True,
        ):
            if found["sk"] == "item":
                item = record_of(Sweep, found)
                continue
            try:
                trials.append(record_of_text(Trial, found, "trial"))
            except UnreadableRecordError as error:
                if unreadable is None:
                    raise
                unreadable[error.what] = in_words(error)
        return item, trials

    def in_flight(self) -> Iterator[str]:
        """Yield ids of the sweeps that have not ended, or that have an incomplete bill (eventually consistent).

        The longest untouched come first.
        """
        for item in self.table.query_index(IN_FLIGHT_INDEX, "in_flight", SWEEP_IN_FLIGHT, forward=True):
            yield str(item["sweep"])

    def list(
        self, *, owner: str | None = None, limit: int = 50, unreadable: Unreadable | None = None
    ) -> Sequence[Sweep]:
        """Return sweeps, newest first (eventually consistent).

        Args:
            owner: Only this owner's.
            limit: At most so many.
            unreadable: Takes those that cannot be read. None to raise at the first.
        """
        found: list[Sweep] = []
        items = self.table.query_index(BY_CREATED_INDEX, "listing", SWEEPS, forward=False)
        for sweep in readable(Sweep, items, unreadable=unreadable):
            if owner is None or sweep.owner == owner:
                found.append(sweep)
            if len(found) >= limit:
                break
        return found

    def item(self, sweep: Sweep) -> Item:
        """Return the item of a sweep."""
        item = fields_of(sweep) | {"pk": f"sweep#{sweep.sweep}", "sk": "item", "listing": SWEEPS}
        if sweep.state.ended:
            item["expires_at"] = epoch_seconds((sweep.ended_at or sweep.updated_at) + self.table.retention)
        if not sweep.state.ended or sweep.awaits_pools:
            item["in_flight"] = SWEEP_IN_FLIGHT
        return item

    def trial_item(self, trial: Trial, sweep: Sweep) -> Item:
        """Return the item of a trial, which is one text. All trials of a sweep are read at each of its steps."""
        return {
            "pk": f"sweep#{trial.sweep}",
            "sk": f"trial#{trial.number:06d}",
            "trial": json.dumps(trial.model_dump(mode="json")),
            "form": Trial.FORM,
            "updated_at": format_time(sweep.updated_at),
            "expires_at": self.table.outlives_run(sweep.updated_at),
        }
