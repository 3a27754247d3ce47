"""The subscriber reads what SNS delivers, whole and once from its queue."""

from __future__ import annotations

import json

import pytest

from spotkeep_cli.rehearsal.subscriber import Subscriber
from spotkeep_local.lifecycle import LocalAws


@pytest.mark.parametrize("about", ["run", "sweep"])
def test_a_subscriber_gets_subject_text_and_attributes(local_aws: LocalAws, about: str) -> None:
    session = local_aws.session()
    sns, sqs = session.client("sns"), session.client("sqs")
    topic = sns.create_topic(Name="notifications")["TopicArn"]
    subscriber = Subscriber.subscribe(sns=sns, sqs=sqs, topic_arn=topic, queue_name="mailbox")
    sns.publish(
        TopicArn=topic,
        Subject="digits-1 completed",
        Message=json.dumps({"text": "It is done."}),
        MessageAttributes={
            about: {"DataType": "String", "StringValue": "digits-1"},
            "status": {"DataType": "String", "StringValue": "completed"},
        },
    )
    (notification,) = subscriber.receive(wait_seconds=5)
    assert (notification.run, notification.status, notification.subject, notification.body) == (
        "digits-1",
        "completed",
        "digits-1 completed",
        "It is done.",
    )
    assert subscriber.receive(wait_seconds=0) == []
    subscriber.close()
    assert sqs.list_queues(QueueNamePrefix="mailbox").get("QueueUrls", []) == []
