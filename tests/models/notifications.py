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


class Queue(Model):
    """An SQS client, and a queue that keeps what is sent to it.

    Attributes:
        messages: The bodies, in their order.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.messages: list[dict[str, Any]] = []

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:  # noqa: N803
        self._call("SendMessage", lambda: self.messages.append(json.loads(MessageBody)))


def _published(message: dict[str, Any]) -> Published:
    bodies = json.loads(message["Message"])
    document = json.loads(bodies["sqs"])
    return Published(
        notification_id=document["notification_id"],
        kind=NotificationKind(document["notification_id"].split("/")[1]),
        subject=message["Subject"],
        body=bodies["default"],
    )
