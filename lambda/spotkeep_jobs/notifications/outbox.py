"""Sends the notifications of the outbox, each once (I4).

A notification is written in the transaction that moves its run, so none is ever forgotten. A function claims it,
publishes it, and marks it sent. A notification that the topic refuses for hours is put aside as dead, and into the
dead-letter queue. Two functions cannot hold one notification, because the claim is conditional. One hole is left that
no protocol over SNS can close. A function may die between publishing and marking. Its claim gets stale, and the
notification goes out again. It carries the same notification id, by which a subscriber knows it again.

No other module publishes to the notification topic in SNS. People get a notification as text, and programs as JSON.
Chat channels get the form that Amazon Q Developer shows in them.

Sources:
    https://docs.aws.amazon.com/sns/latest/api/API_Publish.html

    https://docs.aws.amazon.com/sns/latest/dg/sns-send-custom-platform-specific-payloads-mobile-devices.html

    https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_fleet.printable_text import printable
from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.record.record import Notification, format_time
from spotkeep_jobs.record.states import NotificationState

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import ControllerSettings

DOCUMENT_VERSION = 1
_CHAT_DESCRIPTION_CHARACTERS = 6_000
"""Amazon Q Developer shows 8,000 characters of a custom notification's description."""


class NotificationNotSentError(SpotkeepJobsError):
    """SNS did not take a notification. It stays in the outbox and is tried again."""

    def __init__(self, *, notification_id: str, reason: str) -> None:
        super().__init__(
            f"notification {notification_id} was not sent: {reason}. It stays in the outbox; the controller tries again"
        )
        self.notification_id = notification_id
        self.reason = reason


class NotificationTopic:
    """The SNS topic for notifications."""

    def __init__(self, client: SNSClient, *, topic_arn: str) -> None:
        self._client = client
        self._topic_arn = topic_arn

    def publish(self, notification: Notification, /) -> str:
        """Publish a notification to the subscribers with a filter policy that lets it through. Return the message id.

        Raises:
            NotificationNotSentError: The topic did not take it, or it is not known if it did.
        """
        attributes = notification.attributes | {"notification_id": notification.notification_id}
        document = json.dumps(document_of(notification))
        bodies = {
            "default": printable(notification.body),
            "sqs": document,
            "lambda": document,
            "https": json.dumps(chat_message_of(notification)),
        }
        try:
            answer = self._client.publish(
                TopicArn=self._topic_arn,
                Subject=printable(notification.subject),
                Message=json.dumps(bodies),
                MessageStructure="json",
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
                },
            )
        except (ClientError, BotoCoreError) as error:
            raise NotificationNotSentError(notification_id=notification.notification_id, reason=str(error)) from error
        return answer["MessageId"]


def document_of(notification: Notification) -> dict[str, Any]:
    """Return a notification for programs, in the form for queues, functions and webhooks.

    Args:
        notification: The notification.
    """
    return {
        "version": DOCUMENT_VERSION,
        "notification_id": notification.notification_id,
        **notification.attributes,
        "attempt": notification.attempt,
        "happened_at": format_time(notification.happened_at),
        "facts": notification.facts,
        "subject": printable(notification.subject),
        "text": printable(notification.body),
    }


def chat_message_of(notification: Notification) -> dict[str, Any]:
    """Return a notification as a custom notification of Amazon Q Developer in chat applications.

    Args:
        notification: The notification.
    """
    return {
        "version": "1.0",
        "source": "custom",
        "id": notification.notification_id,
        "content": {
            "textType": "client-markdown",
            "title": chat_text(notification.subject),
            "description": f"```\n{_as_long_as_a_chat_takes(notification.body)}\n```",
            "keywords": [notification.kind.value],
        },
        "metadata": {
            "threadId": notification.subject_id,
            "summary": chat_text(notification.subject),
            "additionalContext": {name: chat_text(value) for name, value in notification.attributes.items()},
        },
    }


def _as_long_as_a_chat_takes(text: str) -> str:
    cut = chat_text(text)[:_CHAT_DESCRIPTION_CHARACTERS]
    return chat_text(cut)  # A cut within `@everyones` leaves a mention.


_LOOK_ALIKES: Final = str.maketrans({"`": "\u02cb", "<": "\u2039", ">": "\u203a"})
_LINK: Final = re.compile(r"\](?=[(\[:])")
_EVERYBODY: Final = re.compile(r"@(?=(?:channel|here|everyone|group|team|all)\b)", re.IGNORECASE)


def chat_text(text: str) -> str:
    """Return a text that ends no code block, places no link, mentions no person and steers no terminal.

    A bare address stays one, and a chat may make it clickable. Its target is its own text.
    """
    harmless = printable(text).translate(_LOOK_ALIKES)
    return _EVERYBODY.sub("\uff20", _LINK.sub("] ", harmless))


class NotificationNotQueuedError(SpotkeepJobsError):
    """SQS did not take a dead notification. The table has it, and the next pass puts it into the queue."""

    def __init__(self, *, notification_id: str, reason: str) -> None:
        super().__init__(
            f"notification {notification_id} is put aside, and the dead-letter queue did not take it: {reason}. "
            "The next pass tries again"
        )


class DeadNotificationQueue:
    """The SQS queue for notifications that are given up."""

    def __init__(self, client: Callable[[], SQSClient], *, queue_url: str) -> None:
        """Bind the queue.

        Args:
            client: Makes a client of SQS, when one is needed for the first time: seldom.
            queue_url: The queue.
        """
        self._client = client
        self._queue_url = queue_url

    def put(self, notification: Notification, /) -> None:
        """Put a dead notification into the queue.

        Raises:
            NotificationNotQueuedError: The queue did not take it, or it is not known whether it did.
        """
        try:
            self._client().send_message(QueueUrl=self._queue_url, MessageBody=json.dumps(dead_letter_of(notification)))
        except (ClientError, BotoCoreError) as error:
            raise NotificationNotQueuedError(notification_id=notification.notification_id, reason=str(error)) from error


def dead_letter_of(notification: Notification) -> dict[str, Any]:
    """Return a message for a notification that was given up, with its form for programs and the reason of the failure.

    Args:
        notification: The notification, as it was put aside.
    """
    return {
        **document_of(notification),
        "subject_id": notification.subject_id,
        "deliveries": notification.deliveries,
        "problem": notification.problem,
    }


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
