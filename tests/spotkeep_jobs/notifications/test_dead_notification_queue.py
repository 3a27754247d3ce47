"""The SQS adapter: what it puts aside can be sent again, and says why it was not."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.notifications.outbox import DeadNotificationQueue, NotificationNotQueuedError
from spotkeep_jobs.notifications.texts.endings import ending_notification
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import EndReason, NotificationState, RunState
from tests.models.notifications import SqsQueue


@pytest.fixture
def dead(make: Any) -> Notification:
    run = make.run(state=RunState.COMPLETED, end_reason=EndReason.COMPLETED, ended_at=make.noon)
    notification = ending_notification(run=run, deployment="spotkeep", created_at=make.noon)
    return notification.model_copy(
        update={"state": NotificationState.DEAD, "deliveries": 24, "problem": "KMSDisabled: the key"}
    )


def test_a_message_holds_the_notification_and_why_it_was_refused(local_aws: Any, dead: Notification) -> None:
    sqs = local_aws.session().client("sqs")
    url = sqs.create_queue(QueueName=f"dead-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    made: list[Any] = []
    queue = DeadNotificationQueue(lambda: made.append(sqs) or sqs, queue_url=url)  # type: ignore[func-returns-value]
    assert made == [], "no client is made before one is needed"
    queue.put(dead)
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    body = json.loads(message["Body"])
    assert (body["notification_id"], body["subject_id"]) == (dead.notification_id, dead.subject_id)
    assert (body["text"], body["status"], body["owner"]) == (dead.body, "completed", "ada")
    assert (body["deliveries"], body["problem"]) == (24, "KMSDisabled: the key")


def test_what_sqs_does_not_take_is_said_with_its_reason(make: Any, dead: Notification) -> None:
    for fault in (make.error("SendMessage", "Throttled"), EndpointConnectionError(endpoint_url="https://sqs")):
        refusing: Any = SqsQueue()
        refusing.refuse(fault)
        with pytest.raises(NotificationNotQueuedError, match="next pass tries again"):
            DeadNotificationQueue(lambda refusing=refusing: refusing, queue_url="url").put(dead)  # type: ignore[misc]
