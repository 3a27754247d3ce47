"""Notifications in the run table.

A notification is claimed for one delivery, and then sent, released or given up. Each step is conditional on the one
before it, so that two deliverers never send the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.record.record import Notification, format_time
from spotkeep_jobs.record.states import NotificationState
from spotkeep_jobs.record.table_client import IN_FLIGHT_INDEX, Item, TableClient, Unreadable, Write, fields_of, readable
from spotkeep_jobs.with_changes import with_changes

_NOTIFICATION_IN_FLIGHT: Final = "notification"
_NOTIFICATION_DEAD: Final = "dead-notification"


@dataclass(frozen=True, kw_only=True)
class NotificationStore:
    """The outbox.

    Attributes:
        table: The run table.
    """

    table: TableClient

    def claim(self, notification: Notification, *, now: datetime, stale_after: timedelta) -> Notification | None:
        """Claim a notification for one delivery.

        Args:
            notification: As it was read.
            now: The time of the claim.
            stale_after: A claim older than this belongs to a deliverer that died.

        Returns:
            The claimed notification, or None when it is sent or claimed by another function.
        """
        claimed = with_changes(
            notification, state=NotificationState.SENDING, claimed_at=now, deliveries=notification.deliveries + 1
        )
        stale = (
            notification.state is NotificationState.SENDING
            and notification.claimed_at is not None
            and notification.claimed_at + stale_after <= now
        )
        if notification.state is not NotificationState.PENDING and not stale:
            return None
        return claimed if self._replace(claimed, seen=notification) else None

    def mark_sent(self, notification: Notification, *, message_id: str, now: datetime) -> bool:
        """Record that a claimed notification went out.

        Returns:
            False when another function claimed it meanwhile (the claim had become stale).
        """
        sent = with_changes(notification, state=NotificationState.SENT, sent_at=now, message_id=message_id)
        return self._replace(sent, seen=notification)

    def release(self, notification: Notification, *, problem: str | None = None) -> bool:
        """Give a claimed notification back after a failed delivery, so that the next deliverer need not wait.

        Args:
            notification: As it was claimed.
            problem: The reason of the failure.

        Returns:
            False when another function claimed it meanwhile.
        """
        given_back = with_changes(notification, state=NotificationState.PENDING, problem=problem)
        return self._replace(given_back, seen=notification)

    def give_up(self, notification: Notification, *, problem: str) -> Notification | None:
        """Put a claimed notification aside. No function tries to send it any more.

        Args:
            notification: As it was claimed.
            problem: The reason why sending it failed.

        Returns:
            The dead notification, or None when another function claimed it meanwhile.
        """
        dead = with_changes(notification, state=NotificationState.DEAD, problem=problem)
        return dead if self._replace(dead, seen=notification) else None

    def mark_queued(self, notification: Notification, *, now: datetime) -> bool:
        """Record that a dead notification was put into the dead-letter queue.

        Returns:
            False when it is not dead any more: a user has asked for it meanwhile.
        """
        return self._replace(with_changes(notification, queued_at=now), seen=notification)

    def revive(self, notification: Notification) -> bool:
        """Put a dead notification into the outbox again, as if it had never been tried.

        Args:
            notification: As it was read.

        Returns:
            False when it is not dead, or not any more: it is sent once, however many people ask.
        """
        if notification.state is not NotificationState.DEAD:
            return False
        again = with_changes(
            notification, state=NotificationState.PENDING, deliveries=0, claimed_at=None, queued_at=None
        )
        return self._replace(again, seen=notification)

    def dead(self, *, limit: int = 500, unreadable: Unreadable | None = None) -> list[Notification]:
        """Return notifications that no function tries to send any more, oldest first (eventually consistent)."""
        return self._oldest(_NOTIFICATION_DEAD, limit=limit, unreadable=unreadable)

    def unsent(self, *, limit: int = 100, unreadable: Unreadable | None = None) -> list[Notification]:
        """Return notifications that are not sent yet, of all runs, oldest first (eventually consistent)."""
        return self._oldest(_NOTIFICATION_IN_FLIGHT, limit=limit, unreadable=unreadable)

    def of_run(self, run: str, *, unreadable: Unreadable | None = None) -> list[Notification]:
        """Return the notifications of a run, sent or not, in the order of their events."""
        items = self.table.query_run(f"run#{run}", "notification#")
        return sorted(readable(Notification, items, unreadable=unreadable), key=Notification.order)

    def _oldest(self, part: str, *, limit: int, unreadable: Unreadable | None) -> list[Notification]:
        items = self.table.query_index(IN_FLIGHT_INDEX, "in_flight", part, forward=True)
        return list(readable(Notification, items, unreadable=unreadable, at_most=limit))

    def writes(self, notifications: Iterable[Notification]) -> Iterator[Write]:
        """Yield the writes of new notifications. The transaction is refused where one is in the outbox already."""
        for each in notifications:
            yield self.table.put(self.item(each), condition="attribute_not_exists(pk)")

    def item(self, notification: Notification) -> Item:
        """Return the item of a notification."""
        item = fields_of(notification) | {
            "pk": f"run#{notification.subject_id}",
            "sk": _sort_key(notification),
            "updated_at": format_time(notification.claimed_at or notification.created_at),
            "expires_at": self.table.outlives_run(notification.created_at),
        }
        if notification.state is not NotificationState.SENT:
            item["in_flight"] = (
                _NOTIFICATION_DEAD if notification.state is NotificationState.DEAD else _NOTIFICATION_IN_FLIGHT
            )
        return item

    def _replace(self, notification: Notification, *, seen: Notification) -> bool:
        return self.table.put_if(
            self.item(notification),
            "#state = :state AND deliveries = :deliveries",
            names={"#state": "state"},
            values={":state": seen.state.value, ":deliveries": seen.deliveries},
        )


def _sort_key(notification: Notification) -> str:
    nth = f"-{notification.nth}" if notification.nth else ""
    return f"notification#{notification.kind}#{notification.attempt:04d}{nth}"
