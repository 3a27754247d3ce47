"""The dead-letter queue of notifications in a real SQS: taken once, deleted, or given back."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeadLetters
from spotkeep_cli.errors import NoConnectionError
from spotkeep_jobs.notifications.outbox import DeadNotificationQueue
from spotkeep_jobs.notifications.texts.endings import ending_notification
from tests.models.faults import client_error
from tests.models.notifications import SqsQueue

OPTIONS = ConnectionOptions()


@pytest.fixture
def queue(local_aws: Any) -> tuple[Any, str]:
    client = local_aws.session().client("sqs")
    return client, client.create_queue(QueueName=f"dead-{uuid.uuid4().hex[:8]}")["QueueUrl"]


def test_all_of_many_are_taken_and_what_is_not_ours_is_left(queue: tuple[Any, str], make: Any) -> None:
    client, url = queue
    put_aside = DeadNotificationQueue(lambda: client, queue_url=url)
    for number in range(12):
        notification = ending_notification(
            run=make.completed(f"run-{number}"), deployment="spotkeep", created_at=make.now
        )
        assert notification is not None
        put_aside.put(notification)
    client.send_message(QueueUrl=url, MessageBody="a user tried the queue")
    letters = DeadLetters(client, queue_url=url, options=OPTIONS)
    taken = letters.take()
    assert {letter.subject_id for letter in taken} == {f"run-{number}" for number in range(12)}
    assert {letter.notification_id for letter in taken} == {f"run-{number}/completed/1" for number in range(12)}
    assert letters.take() == ()
    letters.delete(taken[:7])
    letters.give_back(taken[7:])
    assert len(letters.take()) == 5


def test_a_refusal_is_reported_in_a_users_words() -> None:
    refusing: Any = SqsQueue()
    refusing.refuse(client_error("ReceiveMessage", "AccessDenied", "no"))
    with pytest.raises(NoConnectionError, match="reading the dead-letter queue of notifications: AccessDenied"):
        DeadLetters(refusing, queue_url="url", options=OPTIONS).take()
