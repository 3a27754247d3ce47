"""The notice topic in SNS: the only module that publishes.

People get a notice as text, programs as JSON, chat channels as what Amazon Q Developer shows in them.

Sources:
    https://docs.aws.amazon.com/sns/latest/api/API_Publish.html
    https://docs.aws.amazon.com/sns/latest/dg/sns-send-custom-platform-specific-payloads-mobile-devices.html
    https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.facts.record import format_time

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

    from spotkeep_jobs.facts.record import Notice

DOCUMENT_VERSION = 1
_CHAT_DESCRIPTION_CHARACTERS = 6_000
"""Amazon Q Developer shows 8,000 characters of a custom notification's description."""


class NoticeNotSentError(SpotkeepJobsError):
    """SNS did not take a notice; it stays in the outbox and is tried again."""

    def __init__(self, *, notice_id: str, reason: str) -> None:
        super().__init__(
            f"notice {notice_id} was not sent: {reason}. It stays in the outbox; the reconciler tries again"
        )
        self.notice_id = notice_id
        self.reason = reason


class NoticeTopic(Protocol):
    """The seam: where notices go."""

    def publish(self, notice: Notice, /) -> str:
        """Hand a notice to every subscriber whose filter policy lets it through.

        Returns:
            The message id.

        Raises:
            NoticeNotSentError: The topic did not take it, or nobody knows whether it did.
        """
        ...


class SnsNoticeTopic:
    """The seam, on a boto3 client."""

    def __init__(self, client: SNSClient, *, topic_arn: str) -> None:
        self._client = client
        self._topic_arn = topic_arn

    def publish(self, notice: Notice, /) -> str:
        """Publish a notice; see `NoticeTopic.publish`."""
        attributes = notice.attributes | {"notice_id": notice.notice_id}
        document = json.dumps(document_of(notice))
        bodies = {
            "default": notice.body,
            "sqs": document,
            "lambda": document,
            "https": json.dumps(chat_message_of(notice)),
        }
        try:
            answer = self._client.publish(
                TopicArn=self._topic_arn,
                Subject=notice.subject,
                Message=json.dumps(bodies),
                MessageStructure="json",
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
                },
            )
        except (ClientError, BotoCoreError) as error:
            raise NoticeNotSentError(notice_id=notice.notice_id, reason=str(error)) from error
        return answer["MessageId"]


def document_of(notice: Notice) -> dict[str, Any]:
    """A notice for programs: what queues, functions and webhooks get.

    Args:
        notice: The notice.
    """
    return {
        "version": DOCUMENT_VERSION,
        "notice_id": notice.notice_id,
        **notice.attributes,
        "attempt": notice.attempt,
        "happened_at": format_time(notice.happened_at),
        "facts": notice.facts,
        "subject": notice.subject,
        "text": notice.body,
    }


def chat_message_of(notice: Notice) -> dict[str, Any]:
    """A notice as a custom notification of Amazon Q Developer in chat applications.

    Args:
        notice: The notice.
    """
    return {
        "version": "1.0",
        "source": "custom",
        "id": notice.notice_id,
        "content": {
            "textType": "client-markdown",
            "title": notice.subject,
            "description": f"```\n{notice.body[:_CHAT_DESCRIPTION_CHARACTERS]}\n```",
            "keywords": [notice.kind.value],
        },
        "metadata": {"threadId": notice.subject_id, "summary": notice.subject, "additionalContext": notice.attributes},
    }
