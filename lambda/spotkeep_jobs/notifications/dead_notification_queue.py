"""The dead-letter queue of notifications in SQS: where the outbox puts what it gives up on, for alarms and for people.

The run table says what is dead; a message is the sign of it. It may come twice, and it may outlive its notification:
who takes it asks the table, by the notification's id.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.notifications.notification_topic import document_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from spotkeep_jobs.record.record import Notification


class NotificationNotQueuedError(SpotkeepJobsError):
    """SQS did not take a dead notification; the table has it, and the next pass puts it into the queue."""

    def __init__(self, *, notification_id: str, reason: str) -> None:
        super().__init__(
            f"notification {notification_id} is put aside, and the dead-letter queue did not take it: {reason}. "
            "The next pass tries again"
        )


class DeadNotificationQueue:
    """Where the notifications go that are given up."""

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
    """Return a notification that was given up as a message: what programs would have got, and why they did not.

    Args:
        notification: The notification, as it was put aside.
    """
    return {
        **document_of(notification),
        "subject_id": notification.subject_id,
        "deliveries": notification.deliveries,
        "problem": notification.problem,
    }
