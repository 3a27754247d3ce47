"""Schedules in the run table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spotkeep_jobs.errors import DeploymentIsBeingDeletedError, RunChangedError, RunTableError
from spotkeep_jobs.record.record import Notification, format_time
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.shared_stores import DeploymentStore, NotificationStore
from spotkeep_jobs.record.table_client import (
    BY_CREATED_INDEX,
    Item,
    TableClient,
    TransactionCancelled,
    Unreadable,
    fields_of,
    readable,
    to_dynamodb,
)

SCHEDULES: Final = "schedule"


class ScheduleExistsError(RunTableError):
    """The schedule's id is taken by a request with another token."""

    def __init__(self, schedule: str) -> None:
        super().__init__(f"schedule {schedule!r} exists already, from another request. Choose another id")
        self.schedule = schedule


@dataclass(frozen=True, kw_only=True)
class ScheduleStore:
    """Schedules: an item each, which is there until the schedule is removed.

    Attributes:
        table: The run table.
        notifications: The outbox.
        deployment: The deployment's own items.
    """

    table: TableClient
    notifications: NotificationStore
    deployment: DeploymentStore

    def open(self, schedule: Schedule) -> tuple[Schedule, bool]:
        """Record a new schedule.

        Returns:
            Its item, and whether the same token recorded it before (nothing was written).

        Raises:
            ScheduleExistsError: Its id is taken, by a request with another token.
            DeploymentIsBeingDeletedError: No schedule begins any more.
            RunChangedError: Another transaction was under way: try again.
        """
        item = self.table.put(self._item(schedule), condition="attribute_not_exists(pk)")
        try:
            self.table.transact([item, self.deployment.unless_being_deleted()])
        except TransactionCancelled as cancelled:
            if cancelled.refused(1) and not cancelled.refused(0):
                raise DeploymentIsBeingDeletedError from cancelled
            if not cancelled.refused(0):
                raise RunChangedError(schedule.schedule) from cancelled
        else:
            return schedule, False
        known = self.get(schedule.schedule)
        if known is None or known.token != schedule.token:
            raise ScheduleExistsError(schedule.schedule)
        return known, True

    def keep_firing(self, schedule: Schedule, *, notifications: Sequence[Notification] = ()) -> None:
        """Write the outcome of a firing, with its notifications, in one transaction.

        Nothing is written of a schedule that was removed meanwhile or made anew, and no notification a second time.

        Raises:
            RunChangedError: Another transaction was at it. Nothing was written.
        """
        # Only what is made anew has another time: to the millisecond, of which an id has one.
        same = {":made": format_time(schedule.created_at)}
        writes = [self.table.put(self._item(schedule), condition="created_at = :made", values=same)]
        writes += self.notifications.writes(notifications)
        try:
            self.table.transact(writes)
        except TransactionCancelled as cancelled:
            if not any(cancelled.refused(position) for position in range(len(writes))):
                raise RunChangedError(schedule.schedule) from cancelled

    def get(self, schedule: str) -> Schedule | None:
        """Return the item of a schedule (strongly consistent), or None."""
        return self.table.read(Schedule, f"schedule#{schedule}", "item")

    def list(self, *, unreadable: Unreadable | None = None) -> Sequence[Schedule]:
        """Return all schedules, newest first (eventually consistent)."""
        items = self.table.query_index(BY_CREATED_INDEX, "listing", SCHEDULES, forward=False)
        return list(readable(Schedule, items, unreadable=unreadable))

    def ids(self) -> Sequence[str]:
        """Return the ids of all schedules, readable or not (eventually consistent)."""
        items = self.table.query_index(BY_CREATED_INDEX, "listing", SCHEDULES, forward=False)
        return [str(item["schedule"]) for item in items]

    def forget(self, schedule: str) -> None:
        """Remove the item of a schedule. A later firing of it does nothing."""
        key = to_dynamodb({"pk": f"schedule#{schedule}", "sk": "item"})
        self.table.dynamodb.delete_item(TableName=self.table.name, Key=key)

    @staticmethod
    def _item(schedule: Schedule) -> Item:
        return fields_of(schedule) | {"pk": f"schedule#{schedule.schedule}", "sk": "item", "listing": SCHEDULES}
