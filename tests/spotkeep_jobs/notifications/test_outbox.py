"""Each notification goes out once (I4), whatever fails on the way.

The SNS adapter: what it sends reaches a subscriber of the local AWS, filter policy included.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.notifications.outbox import (
    FEWEST_TRIES,
    LONGEST_TRIED,
    STALE_AFTER,
    NotificationNotQueuedError,
    NotificationNotSentError,
    NotificationTopic,
)
from spotkeep_jobs.notifications.texts.endings import ending_notification
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import EndReason, NotificationState, RunState
from tests.models.faults import client_error
from tests.models.granted import make_queue
from tests.models.notifications import Topic

RUN = "digits-1a2b3c4d"


@pytest.fixture
def completed(world: Any, make: Any) -> Any:
    """A world in which a run has just completed and its notification waits."""
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Training", 1.0), ("Completed", 2.0))
    world.runs.reconcile(run.run)
    return world


def refuse(operation: str) -> None:
    raise client_error(operation, "Throttled")


def die(operation: str) -> None:
    raise ConnectionError("the function is gone")


def is_refused_for_hours(world: Any) -> None:
    """To the last try but one."""
    world.topic.before_call = refuse
    for _ in range(FEWEST_TRIES):
        world.outbox.deliver_all()
    world.clock.pass_by(seconds=LONGEST_TRIED.total_seconds())


def states(world: Any) -> list[NotificationState]:
    return [notification.state for notification in world.table.notifications.of_run(RUN)]


def test_a_notification_goes_out_once_however_often_it_is_delivered(completed: Any) -> None:
    assert completed.outbox.deliver_run(RUN).sent == (f"{RUN}/completed/1",)
    assert completed.outbox.deliver_run(RUN).sent == ()
    assert completed.outbox.deliver_all().sent == ()
    assert len(completed.topic.published) == 1
    [sent] = completed.table.notifications.of_run(RUN)
    assert (sent.state, sent.message_id, sent.sent_at) == (NotificationState.SENT, "message-1", completed.clock())


def test_a_deliverer_that_died_before_publishing_costs_a_wait_not_the_notification(completed: Any) -> None:
    completed.topic.before_call = die
    with pytest.raises(ConnectionError):
        completed.outbox.deliver_run(RUN)
    completed.topic.before_call = lambda operation: None
    assert states(completed) == [NotificationState.SENDING]
    assert completed.outbox.deliver_all().sent == ()
    completed.clock.pass_by(seconds=STALE_AFTER.total_seconds())
    assert completed.outbox.deliver_all().sent == (f"{RUN}/completed/1",)


def test_a_deliverer_that_died_after_publishing_sends_again_with_the_same_id(completed: Any) -> None:
    """The one duplicate that cannot be avoided; the id says so."""

    def die_when_marking(operation: str) -> None:
        if operation == "PutItem" and completed.topic.published:
            raise ConnectionError("the function is gone")

    completed.dynamodb.before_call = die_when_marking
    with pytest.raises(ConnectionError):
        completed.outbox.deliver_run(RUN)
    completed.dynamodb.before_call = lambda operation: None
    completed.clock.pass_by(seconds=STALE_AFTER.total_seconds())
    completed.outbox.deliver_all()
    first, second = completed.topic.published
    assert first.notification_id == second.notification_id
    assert (first.subject, first.body) == (second.subject, second.body)
    assert states(completed) == [NotificationState.SENT]


def test_two_deliverers_at_once_send_it_once(completed: Any) -> None:
    def another_comes(operation: str) -> None:
        completed.topic.before_call = lambda operation: None
        completed.outbox.deliver_all()

    completed.topic.before_call = another_comes
    completed.outbox.deliver_run(RUN)
    assert len(completed.topic.published) == 1


def test_one_broken_notification_does_not_stop_the_others(world: Any, make: Any) -> None:
    for name in ("broken", "fine"):
        run = world.launch(make.run(name), make.attempt(name))
        world.sagemaker.has_job(run.job_name, ("Completed", 2.0))
        world.runs.reconcile(name)
    world.outbox.deliver_run("none")

    def refuse_the_first(operation: str) -> None:
        world.topic.before_call = lambda operation: None
        refuse(operation)

    world.topic.before_call = refuse_the_first
    delivery = world.outbox.deliver_all()
    assert (len(delivery.sent), len(delivery.failures)) == (1, 1)


def test_oldest_happenings_go_out_first(world: Any, make: Any) -> None:
    run = world.launch(make.run(notify=("completed", "interrupted", "resumed")), make.attempt())
    story = [("Training", 1.0), ("Interrupted", 2.0), ("Training", 4.0), ("Completed", 5.0)]
    world.sagemaker.has_job(run.job_name, *story)
    world.runs.reconcile(run.run)
    world.outbox.deliver_all()
    sent = [notification.kind.value for notification in world.topic.published]
    assert sent == ["interrupted", "resumed", "completed"]


def test_what_is_refused_for_hours_is_put_aside_and_goes_out_once_when_it_is_asked_for(completed: Any) -> None:
    is_refused_for_hours(completed)
    assert states(completed) == [NotificationState.PENDING]
    assert completed.dead_letters.messages == []
    assert completed.outbox.deliver_all().dead == (f"{RUN}/completed/1",)
    assert completed.outbox.deliver_all().failures == ()
    assert states(completed) == [NotificationState.DEAD]
    [message] = completed.dead_letters.messages
    assert message["notification_id"] == f"{RUN}/completed/1"
    assert "Throttled" in message["problem"]
    [notification] = completed.table.notifications.dead()
    assert notification.queued_at == completed.clock()
    completed.topic.before_call = lambda operation: None
    assert completed.outbox.deliver_all().sent == ()
    assert [completed.table.notifications.revive(notification) for _ in range(3)] == [True, False, False]
    assert completed.outbox.deliver_run(RUN).sent == (f"{RUN}/completed/1",)
    assert completed.outbox.deliver_all().sent == ()
    assert not completed.table.notifications.revive(completed.table.notifications.of_run(RUN)[0])
    assert completed.table.notifications.dead() == []


def test_each_giving_up_has_a_message_of_its_own(completed: Any) -> None:
    for times in (1, 2):
        is_refused_for_hours(completed)
        completed.outbox.deliver_all()
        assert len(completed.dead_letters.messages) == times
        [dead] = completed.table.notifications.dead()
        assert completed.table.notifications.revive(dead)
        assert completed.table.notifications.of_run(RUN)[0].queued_at is None
    completed.topic.before_call = lambda operation: None
    assert completed.outbox.deliver_all().sent == (f"{RUN}/completed/1",)


def test_a_queue_that_takes_nothing_is_reported_and_gets_the_notification_with_the_next_sweep(completed: Any) -> None:
    def refuse_it(operation: str) -> None:
        raise NotificationNotQueuedError(notification_id="n", reason="AccessDenied")

    is_refused_for_hours(completed)
    completed.dead_letters.before_call = refuse_it
    first = completed.outbox.deliver_run(RUN)
    assert first.dead == (f"{RUN}/completed/1",)
    assert "AccessDenied" in first.failures[1]
    [again] = completed.outbox.deliver_all().failures
    assert "AccessDenied" in again
    completed.dead_letters.before_call = lambda operation: None
    assert completed.outbox.deliver_all().failures == ()
    assert len(completed.dead_letters.messages) == 1


@pytest.mark.parametrize("times", [1, 2], ids=["before the message", "between the message and its record"])
def test_a_deliverer_that_dies_on_the_way_to_the_queue_doubles_a_message_and_loses_none(
    completed: Any, times: int
) -> None:
    is_refused_for_hours(completed)
    if times == 1:
        completed.dead_letters.before_call = die
    else:
        completed.dynamodb.before_call = lambda operation: die(operation) if completed.dead_letters.messages else None
    with pytest.raises(ConnectionError):
        completed.outbox.deliver_run(RUN)
    completed.dead_letters.before_call = completed.dynamodb.before_call = lambda operation: None
    assert states(completed) == [NotificationState.DEAD]
    completed.outbox.deliver_all()
    completed.outbox.deliver_all()
    assert len(completed.dead_letters.messages) == times


def test_what_a_user_asks_for_while_it_is_put_aside_goes_out_all_the_same(completed: Any) -> None:
    def a_user_asks(operation: str) -> None:
        [dead] = completed.table.notifications.dead()
        assert completed.table.notifications.revive(dead)

    is_refused_for_hours(completed)
    completed.dead_letters.before_call = a_user_asks
    completed.outbox.deliver_run(RUN)
    assert states(completed) == [NotificationState.PENDING]
    completed.topic.before_call = lambda operation: None
    assert completed.outbox.deliver_all().sent == (f"{RUN}/completed/1",)


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
