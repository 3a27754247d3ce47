"""The notice topic in SNS: the only module that publishes.

Source: https://docs.aws.amazon.com/sns/latest/api/API_Publish.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

    from spotkeep_jobs.record import Notice


class NoticeNotSentError(SpotkeepJobsError):
    """SNS did not take a notice; it stays in the outbox and is tried again."""

    def __init__(self, *, notice_id: str, reason: str) -> None:
        super().__init__(
            f"notice {notice_id} was not sent: {reason}. It stays in the outbox; the reconciler tries again"
        )
        self.notice_id = notice_id


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
        try:
            answer = self._client.publish(
                TopicArn=self._topic_arn,
                Subject=notice.subject,
                Message=notice.body,
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
                },
            )
        except (ClientError, BotoCoreError) as error:
            raise NoticeNotSentError(notice_id=notice.notice_id, reason=str(error)) from error
        return answer["MessageId"]
