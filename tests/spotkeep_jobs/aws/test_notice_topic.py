"""The SNS adapter: what it sends reaches a subscriber of the local AWS, filter policy included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.aws.notice_topic import NoticeNotSentError, SnsNoticeTopic
from spotkeep_jobs.decisions.notices.endings import ending_notice
from spotkeep_jobs.facts.record import Notice
from spotkeep_jobs.facts.states import EndReason, RunState


@pytest.fixture
def notice(make: Any) -> Notice:
    run = make.run(state=RunState.COMPLETED, end_reason=EndReason.COMPLETED, ended_at=make.noon)
    told = ending_notice(run=run, deployment="spotkeep", created_at=make.noon)
    assert told is not None
    return told


def test_a_subscriber_gets_the_notice_if_its_filter_policy_lets_it_through(local_aws: Any, notice: Notice) -> None:
    session = local_aws.session()
    sns, sqs = session.client("sns"), session.client("sqs")
    topic = sns.create_topic(Name="notices")["TopicArn"]
    queues = {}
    for owner in ("ada", "bob"):
        queues[owner] = sqs.create_queue(QueueName=f"notices-{owner}")["QueueUrl"]
        queue = sqs.get_queue_attributes(QueueUrl=queues[owner], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"owner": [owner], "status": ["completed", "failed"]})
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"FilterPolicy": policy})
    message_id = SnsNoticeTopic(sns, topic_arn=topic).publish(notice)
    [received] = sqs.receive_message(QueueUrl=queues["ada"], WaitTimeSeconds=5)["Messages"]
    envelope = json.loads(received["Body"])
    assert (envelope["MessageId"], envelope["Subject"]) == (message_id, notice.subject)
    document = json.loads(envelope["Message"])
    assert (document["version"], document["text"], document["owner"]) == (1, notice.body, "ada")
    assert document["facts"]["checkpoint_uri"] == "s3://bucket/runs/digits-1a2b3c4d/checkpoints/"
    assert envelope["MessageAttributes"]["notice_id"]["Value"] == notice.notice_id
    assert "Messages" not in sqs.receive_message(QueueUrl=queues["bob"])


def test_what_sns_does_not_take_is_said_with_its_reason(make: Any, notice: Notice) -> None:
    class Refusing:
        def __init__(self, fault: Exception) -> None:
            self._fault = fault

        def publish(self, **request: Any) -> None:
            raise self._fault

    for fault in (make.error("Publish", "Throttled"), EndpointConnectionError(endpoint_url="https://sns")):
        with pytest.raises(NoticeNotSentError, match="stays in the outbox"):
            SnsNoticeTopic(Refusing(fault), topic_arn="arn").publish(notice)  # type: ignore[arg-type]


def test_people_get_text_programs_json_and_channels_what_amazon_q_shows(notice: Notice) -> None:
    sent: dict[str, Any] = {}

    class Keeping:
        def publish(self, **request: Any) -> dict[str, str]:
            sent.update(request)
            return {"MessageId": "m"}

    SnsNoticeTopic(Keeping(), topic_arn="arn").publish(notice)  # type: ignore[arg-type]
    assert sent["MessageStructure"] == "json"
    bodies = json.loads(sent["Message"])
    assert bodies["default"] == notice.body
    assert bodies["sqs"] == bodies["lambda"]
    chat = json.loads(bodies["https"])
    assert (chat["version"], chat["source"], chat["content"]["title"]) == ("1.0", "custom", notice.subject)
    assert len(sent["Message"].encode()) < 256 * 1024
