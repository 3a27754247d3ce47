"""A subscriber to the notifications: a queue on the topic, read as a program would read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spotkeep_cli.rehearsal.evidence import ReceivedNotification

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient


class Subscriber:
    """Receives every notification of a topic through a queue of its own.

    A queue sees duplicates that a mailbox would see too, which is what makes promise I4 checkable.
    """

    def __init__(self, *, sns: SNSClient, sqs: SQSClient, queue_url: str, subscription_arn: str) -> None:
        self._sns, self._sqs = sns, sqs
        self._queue_url, self._subscription_arn = queue_url, subscription_arn

    @classmethod
    def subscribe(cls, *, sns: SNSClient, sqs: SQSClient, topic_arn: str, queue_name: str) -> Subscriber:
        """Make a queue and subscribes it to a topic.

        Args:
            sns: Client of the topic's account.
            sqs: Client of the same account.
            topic_arn: The topic of the notifications.
            queue_name: A name for the queue, new or not.
        """
        queue_url = sqs.create_queue(QueueName=queue_name)["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]
        policy = _lets_deliver(queue_arn=attributes["QueueArn"], topic_arn=topic_arn)
        sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"Policy": json.dumps(policy)})
        subscription = sns.subscribe(
            TopicArn=topic_arn, Protocol="sqs", Endpoint=attributes["QueueArn"], ReturnSubscriptionArn=True
        )
        return cls(sns=sns, sqs=sqs, queue_url=queue_url, subscription_arn=subscription["SubscriptionArn"])

    def receive(self, *, wait_seconds: int) -> list[ReceivedNotification]:
        """Take the notifications that have arrived, waiting up to ``wait_seconds`` (0 to 20) for the first."""
        answer = self._sqs.receive_message(
            QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_seconds
        )
        notifications = []
        for message in answer.get("Messages", []):
            notifications.append(parse_notification(json.loads(message["Body"])))
            self._sqs.delete_message(QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"])
        return notifications

    def close(self) -> None:
        """End the subscription and delete the queue."""
        self._sns.unsubscribe(SubscriptionArn=self._subscription_arn)
        self._sqs.delete_queue(QueueUrl=self._queue_url)


def _lets_deliver(*, queue_arn: str, topic_arn: str) -> dict[str, Any]:
    """Return the policy of a queue that a topic delivers to: without one, SNS delivers nothing."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def parse_notification(envelope: Mapping[str, Any]) -> ReceivedNotification:
    """Read a notification from the JSON that SNS delivers to a queue: an envelope, and in it the one for programs.

    Source: https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
    """
    attributes = {name: value["Value"] for name, value in envelope.get("MessageAttributes", {}).items()}
    return ReceivedNotification(
        run=attributes.get("run") or attributes.get("sweep", ""),
        status=attributes.get("status", ""),
        subject=envelope.get("Subject", ""),
        body=json.loads(envelope["Message"])["text"],
        received_at=envelope["Timestamp"],
    )
