"""The dead-letter queue of notifications, in SQS.

Each message stands for one notification that could not be sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.aws.calls import translated_aws_errors

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from spotkeep_cli.aws.connection_options import ConnectionOptions

HIDDEN_SECONDS: Final = 300
"""Seconds that a taken message is hidden from other readers, unless it is given back.

They are more than a replay takes.
"""
_WAIT_SECONDS: Final = 1
"""A receive that does not wait asks a part of SQS's servers only.
Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""
_MESSAGES_A_CALL: Final = 10


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message of the queue.

    Attributes:
        notification_id: The notification it is about.
        subject_id: The run that the notification is about.
        receipt: The receipt handle, to delete it or give it back.
    """

    notification_id: str
    subject_id: str
    receipt: str


class DeadLetters:
    """The queue.

    Args:
        client: A boto3 client of SQS.
        queue_url: The queue.
        options: The user's options for the deployment, for hints.
    """

    def __init__(self, client: SQSClient, *, queue_url: str, options: ConnectionOptions) -> None:
        self._client = client
        self._queue_url = queue_url
        self._options = options

    def take(self) -> Sequence[DeadLetter]:
        """Return every message that no other reader holds, and hide them from others for some minutes.

        Raises:
            NoConnectionError: SQS refused or could not be reached.
        """
        found: dict[str, DeadLetter] = {}
        with translated_aws_errors("reading the dead-letter queue of notifications", options=self._options):
            for message in self._received():
                letter = _letter_of(message)
                if letter is not None:
                    found[message["MessageId"]] = letter
        return tuple(found.values())

    def delete(self, letters: Sequence[DeadLetter]) -> None:
        """Delete messages that were taken. One that is gone already is no error.

        Raises:
            NoConnectionError: SQS refused or could not be reached.
        """
        with translated_aws_errors("deleting from the dead-letter queue of notifications", options=self._options):
            for letter in letters:
                self._client.delete_message(QueueUrl=self._queue_url, ReceiptHandle=letter.receipt)

    def give_back(self, letters: Sequence[DeadLetter]) -> None:
        """Let other readers see messages again that were taken.

        Raises:
            NoConnectionError: SQS refused or could not be reached. They are seen again in some minutes.
        """
        with translated_aws_errors("giving back to the dead-letter queue of notifications", options=self._options):
            for letter in letters:
                self._client.change_message_visibility(
                    QueueUrl=self._queue_url, ReceiptHandle=letter.receipt, VisibilityTimeout=0
                )

    def _received(self) -> Iterator[Any]:
        while True:
            answer = self._client.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=_MESSAGES_A_CALL,
                VisibilityTimeout=HIDDEN_SECONDS,
                WaitTimeSeconds=_WAIT_SECONDS,
            )
            messages = answer.get("Messages", [])
            if not messages:
                return
            yield from messages


def _letter_of(message: Any) -> DeadLetter | None:
    """Return the message. None for a message that no function of ours wrote. It is left alone."""
    try:
        body = json.loads(message["Body"])
        return DeadLetter(
            notification_id=str(body["notification_id"]),
            subject_id=str(body["subject_id"]),
            receipt=message["ReceiptHandle"],
        )
    except (ValueError, KeyError, TypeError):
        return None
