"""SNS and SQS in memory, as far as notifications need them; spelled as boto3's clients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from spotkeep_jobs.record.states import NotificationKind
from tests.models.faults import Called, Model


@dataclass(frozen=True, kw_only=True)
class Published:
    """A notification as a subscriber got it."""

    notification_id: str
    kind: NotificationKind
    subject: str
    body: str


class Topic(Model):
    """An SNS client, and a topic that keeps what is published.

    Attributes:
        messages: What was published, in its order, as the client was given it.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.messages: list[dict[str, Any]] = []

    def publish(self, **message: Any) -> dict[str, str]:
        answer: dict[str, str] = self._call("Publish", lambda: self._publish(message))
        return answer

    @property
    def published(self) -> list[Published]:
        """The notifications, in their order."""
        return [_published(message) for message in self.messages]

    def _publish(self, message: dict[str, Any]) -> dict[str, str]:
        self.messages.append(message)
        return {"MessageId": f"message-{len(self.messages)}"}


class SqsQueue(Model):
    """An SQS client, and a queue that keeps what is sent to it until it is deleted.

    Attributes:
        hidden: The receipts of the messages that a reader has received, and not given back.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.hidden: set[str] = set()
        self._bodies: dict[str, str] = {}
        self._sent = 0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies, in their order."""
        return [json.loads(body) for body in self._bodies.values()]

    @property
    def visible(self) -> list[dict[str, Any]]:
        """The bodies of the messages that the next reader receives."""
        return [json.loads(body) for receipt, body in self._bodies.items() if receipt not in self.hidden]

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:  # noqa: N803
        self._call("SendMessage", lambda: self._send(MessageBody))

    def receive_message(self, *, QueueUrl: str, MaxNumberOfMessages: int, **_seconds: int) -> dict[str, Any]:  # noqa: N803
        answer: dict[str, Any] = self._call("ReceiveMessage", lambda: self._receive(MaxNumberOfMessages))
        return answer

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:  # noqa: N803
        self._call("DeleteMessage", lambda: self._bodies.pop(ReceiptHandle, None))

    def change_message_visibility(self, *, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> None:  # noqa: N803
        assert VisibilityTimeout == 0
        self._call("ChangeMessageVisibility", lambda: self.hidden.discard(ReceiptHandle))

    def _send(self, body: str) -> None:
        self._sent += 1
        self._bodies[f"receipt-{self._sent}"] = body

    def _receive(self, most: int) -> dict[str, Any]:
        found = [receipt for receipt in self._bodies if receipt not in self.hidden][:most]
        self.hidden.update(found)
        return {"Messages": [{"MessageId": each, "ReceiptHandle": each, "Body": self._bodies[each]} for each in found]}


def _published(message: dict[str, Any]) -> Published:
    bodies = json.loads(message["Message"])
    document = json.loads(bodies["sqs"])
    return Published(
        notification_id=document["notification_id"],
        kind=NotificationKind(document["notification_id"].split("/")[1]),
        subject=message["Subject"],
        body=bodies["default"],
    )
