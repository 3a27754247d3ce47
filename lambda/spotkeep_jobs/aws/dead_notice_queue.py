"""The dead-letter queue of notices in SQS: where the outbox puts what it gives up on, for alarms and for people.

The run table says what is dead; a message is the sign of it. It may come twice, and it may outlive what it tells of:
whoever takes it asks the table, by the notice's id.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.aws.notice_topic import document_of
from spotkeep_jobs.errors import SpotkeepJobsError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from spotkeep_jobs.facts.record import Notice


class NoticeNotQueuedError(SpotkeepJobsError):
    """SQS did not take a dead notice; the table has it, and the next sweep puts it into the queue."""

    def __init__(self, *, notice_id: str, reason: str) -> None:
        super().__init__(
            f"notice {notice_id} is put aside, and the dead-letter queue did not take it: {reason}. "
            "The next sweep tries again"
        )


class DeadNoticeQueue(Protocol):
    """The seam: where the notices go that nobody tries to send any more."""

    def put(self, notice: Notice, /) -> None:
        """Put a dead notice into the queue.

        Raises:
            NoticeNotQueuedError: The queue did not take it, or nobody knows whether it did.
        """
        ...


class SqsDeadNoticeQueue:
    """The seam, on a boto3 client that is made when it is needed for the first time: seldom."""

    def __init__(self, client: Callable[[], SQSClient], *, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def put(self, notice: Notice, /) -> None:
        """Send a message; see `DeadNoticeQueue.put`."""
        try:
            self._client().send_message(QueueUrl=self._queue_url, MessageBody=json.dumps(dead_letter_of(notice)))
        except (ClientError, BotoCoreError) as error:
            raise NoticeNotQueuedError(notice_id=notice.notice_id, reason=str(error)) from error


def dead_letter_of(notice: Notice) -> dict[str, Any]:
    """A notice that was given up on: what programs would have got, and why they did not.

    Args:
        notice: The notice, as it was put aside.
    """
    return {
        **document_of(notice),
        "subject_id": notice.subject_id,
        "deliveries": notice.deliveries,
        "problem": notice.problem,
    }
