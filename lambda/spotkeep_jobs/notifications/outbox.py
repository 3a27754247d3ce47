"""Sends the notifications of the outbox, each once (I4).

A notification is written in the transaction that moves its run, so none is ever forgotten. A function claims it,
publishes it, and marks it sent. A notification that the topic refuses for hours is put aside as dead, and into the
dead-letter queue. Two functions cannot hold one notification, because the claim is conditional. One hole is left that
no protocol over SNS can close. A function may die between publishing and marking. Its claim gets stale, and the
notification goes out again. It carries the same notification id, by which a subscriber knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.notifications.notification_topic import (
    DeadNotificationQueue,
    NotificationNotQueuedError,
    NotificationNotSentError,
    NotificationTopic,
)
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import NotificationState

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import ControllerSettings

STALE_AFTER: Final = timedelta(minutes=15)
"""The age after which a claim is stale. It is longer than a function can live, so the claiming function is dead."""
FEWEST_TRIES: Final = 24
LONGEST_TRIED: Final = timedelta(hours=2)
"""The age at which a notification is put aside, once the topic has refused it `FEWEST_TRIES` times.

A pass of the controller comes every five minutes, and each pass tries again.
"""
MOST_AT_ONCE: Final = 10_000
"""The most notifications that one delivery for all runs reads. The next delivery reads on."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The outcome of a delivery.

    Attributes:
        sent: Ids of the notifications that went out.
        failures: Reasons for which the others stay in the outbox, still belong into the dead-letter queue, or cannot be
            read.
        dead: Ids of the notifications that were refused for the last time.
    """

    sent: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outbox:
    """Delivers notifications from the run table to the topic."""

    deployment: Deployment[ControllerSettings]

    @property
    def _topic(self) -> NotificationTopic:
        deployment = self.deployment
        return NotificationTopic(deployment.clients.sns, topic_arn=deployment.settings.notification_topic_arn)

    @property
    def _dead_letters(self) -> DeadNotificationQueue:
        deployment = self.deployment
        queue_url = deployment.settings.dead_notification_queue_url
        return DeadNotificationQueue(lambda: deployment.clients.sqs, queue_url=queue_url)

    def deliver_run(self, run: str) -> Delivery:
        """Send the notifications of one run, oldest first."""
        unreadable: dict[str, str] = {}
        delivery = self.deliver(self.deployment.table.notifications.of_run(run, unreadable=unreadable))
        return replace(delivery, failures=(*delivery.failures, *unreadable.values()))

    def deliver_all(self, *, has_time: Callable[[], bool] = lambda: True) -> Delivery:
        """Send the notifications of all runs, stale claims included, oldest first.

        A function may have ended after it put a notification aside and before it reached the dead-letter queue. Such a
        notification gets there, too.

        Args:
            has_time: Called before each notification. False ends the delivery, because a function that ends between
                sending and recording would send it twice.
        """
        unreadable: dict[str, str] = {}
        unsent = self.deployment.table.notifications.unsent(limit=MOST_AT_ONCE, unreadable=unreadable)
        oldest_first = sorted(unsent, key=Notification.order)
        delivery = self.deliver(oldest_first, has_time=has_time)
        unqueued = [
            notification
            for notification in self.deployment.table.notifications.dead(limit=MOST_AT_ONCE, unreadable=unreadable)
            if notification.queued_at is None
        ]
        failures = [why for notification in unqueued if has_time() and (why := self._queue(notification)) is not None]
        return replace(delivery, failures=(*delivery.failures, *failures, *unreadable.values()))

    def deliver(
        self, notifications: Iterable[Notification], *, has_time: Callable[[], bool] = lambda: True
    ) -> Delivery:
        """Send those notifications that are not sent yet, in the order they are given.

        Args:
            notifications: As they were read.
            has_time: Asked before each of them.
        """
        sent: list[str] = []
        failures: list[str] = []
        dead: list[str] = []
        for notification in notifications:
            if notification.state in (NotificationState.SENT, NotificationState.DEAD):
                continue
            if not has_time():
                break
            claimed = self.deployment.table.notifications.claim(
                notification, now=self.deployment.now(), stale_after=STALE_AFTER
            )
            if claimed is None:
                continue
            try:
                message_id = self._topic.publish(claimed)
            except NotificationNotSentError as error:
                failures.append(str(error))
                old = self.deployment.now() - claimed.created_at >= LONGEST_TRIED
                if not old or claimed.deliveries < FEWEST_TRIES:
                    self.deployment.table.notifications.release(claimed, problem=error.reason)
                elif (
                    given_up := self.deployment.table.notifications.give_up(claimed, problem=error.reason)
                ) is not None:
                    dead.append(given_up.notification_id)
                    if (why := self._queue(given_up)) is not None:
                        failures.append(why)
                continue
            self.deployment.table.notifications.mark_sent(claimed, message_id=message_id, now=self.deployment.now())
            sent.append(claimed.notification_id)
        return Delivery(sent=tuple(sent), failures=tuple(failures), dead=tuple(dead))

    def _queue(self, dead: Notification) -> str | None:
        """Put a dead notification into the dead-letter queue.

        It gets there twice if the function ends before the record.

        Returns:
            The reason why the queue did not take it. None when it did.
        """
        try:
            self._dead_letters.put(dead)
        except NotificationNotQueuedError as error:
            return str(error)
        self.deployment.table.notifications.mark_queued(dead, now=self.deployment.now())
        return None
