"""The SNS adapter: what it sends reaches a subscriber of the local AWS, filter policy included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.notifications.notification_topic import NotificationNotSentError, NotificationTopic
from spotkeep_jobs.notifications.texts.endings import ending_notification
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import EndReason, RunState
from tests.models.granted import make_queue
from tests.models.notifications import Topic


@pytest.fixture
def notification(make: Any) -> Notification:
    run = make.run(state=RunState.COMPLETED, end_reason=EndReason.COMPLETED, ended_at=make.noon)
    notification = ending_notification(run=run, deployment="spotkeep", created_at=make.noon)
    assert notification is not None
    return notification


def test_a_subscriber_gets_the_notification_if_its_filter_policy_lets_it_through(
    local_aws: Any, notification: Notification
) -> None:
    session = local_aws.session()
    sns, sqs = session.client("sns"), session.client("sqs")
    topic = sns.create_topic(Name="notifications")["TopicArn"]
    queues = {}
    for owner in ("ada", "bob"):
        queues[owner], queue = make_queue(session, f"notifications-{owner}", service="sns.amazonaws.com")
        policy = json.dumps({"owner": [owner], "status": ["completed", "failed"]})
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"FilterPolicy": policy})
    message_id = NotificationTopic(sns, topic_arn=topic).publish(notification)
    [received] = sqs.receive_message(QueueUrl=queues["ada"], WaitTimeSeconds=5)["Messages"]
    envelope = json.loads(received["Body"])
    assert (envelope["MessageId"], envelope["Subject"]) == (message_id, notification.subject)
    document = json.loads(envelope["Message"])
    assert (document["version"], document["text"], document["owner"]) == (1, notification.body, "ada")
    assert document["facts"]["checkpoint_uri"] == "s3://bucket/runs/digits-1a2b3c4d/checkpoints/"
    assert envelope["MessageAttributes"]["notification_id"]["Value"] == notification.notification_id
    assert "Messages" not in sqs.receive_message(QueueUrl=queues["bob"])


def test_what_sns_does_not_take_is_said_with_its_reason(make: Any, notification: Notification) -> None:
    refusing: Any = Topic()
    for fault in (make.error("Publish", "Throttled"), EndpointConnectionError(endpoint_url="https://sns")):
        refusing.refuse(fault)
        with pytest.raises(NotificationNotSentError, match="stays in the outbox"):
            NotificationTopic(refusing, topic_arn="arn").publish(notification)


def test_people_get_text_programs_json_and_channels_what_amazon_q_shows(notification: Notification) -> None:
    topic: Any = Topic()
    NotificationTopic(topic, topic_arn="arn").publish(notification)
    [sent] = topic.messages
    assert sent["MessageStructure"] == "json"
    bodies = json.loads(sent["Message"])
    assert bodies["default"] == notification.body
    assert bodies["sqs"] == bodies["lambda"]
    chat = json.loads(bodies["https"])
    assert (chat["version"], chat["source"], chat["content"]["title"]) == ("1.0", "custom", notification.subject)
    assert len(sent["Message"].encode()) < 256 * 1024
