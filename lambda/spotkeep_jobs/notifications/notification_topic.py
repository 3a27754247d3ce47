"""The notification topic in SNS. No other module publishes to it.

People get a notification as text, and programs as JSON. Chat channels get the form that Amazon Q Developer shows in
them.

Sources:
    https://docs.aws.amazon.com/sns/latest/api/API_Publish.html

    https://docs.aws.amazon.com/sns/latest/dg/sns-send-custom-platform-specific-payloads-mobile-devices.html

    https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.printable_text import printable
from spotkeep_jobs.record.record import format_time

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

    from spotkeep_jobs.record.record import Notification


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
