"""Each notification goes out once (I4), whatever fails on the way."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.notifications.dead_notification_queue import NotificationNotQueuedError
from spotkeep_jobs.notifications.notification_topic import NotificationNotSentError
from spotkeep_jobs.notifications.outbox import FEWEST_TRIES, LONGEST_TRIED, STALE_AFTER
from spotkeep_jobs.record.states import NotificationState

RUN = "digits-1a2b3c4d"


@pytest.fixture
def told(world: Any, make: Any) -> Any:
    """A world in which a run has just completed and its notification waits."""
    run = world.launch(make.run(), make.attempt())
    world.jobs.known[run.job_name] = make.job(("Training", 1.0), ("Completed", 2.0), status="Completed")
    world.runs.observe(run.run)
    return world


def refuse(operation: str) -> None:
    raise NotificationNotSentError(notification_id="n", reason="Throttled")


def die(operation: str) -> None:
    raise ConnectionError("the function is gone")


def is_refused_for_hours(world: Any) -> None:
    """To the last try but one."""
    world.topic.before_call = refuse
    for _ in range(FEWEST_TRIES):
        world.outbox.deliver_all()
    world.clock.pass_by(seconds=LONGEST_TRIED.total_seconds())


def states(world: Any) -> list[NotificationState]:
    return [notification.state for notification in world.table.notifications(RUN)]


def test_a_notification_goes_out_once_however_often_somebody_delivers(told: Any) -> None:
    assert told.outbox.deliver_run(RUN).sent == (f"{RUN}/completed/1",)
    assert told.outbox.deliver_run(RUN).sent == ()
    assert told.outbox.deliver_all().sent == ()
    assert len(told.topic.published) == 1
    [sent] = told.table.notifications(RUN)
    assert (sent.state, sent.message_id, sent.sent_at) == (NotificationState.SENT, "message-1", told.clock())


def test_what_the_topic_did_not_take_is_told_and_tried_again_at_once(told: Any) -> None:
    told.topic.before_call = refuse
    delivery = told.outbox.deliver_run(RUN)
    assert delivery.sent == ()
    assert "Throttled" in delivery.failures[0]
    assert states(told) == [NotificationState.PENDING]
    told.topic.before_call = lambda operation: None
    assert told.outbox.deliver_all().sent == (f"{RUN}/completed/1",)


def test_a_deliverer_that_died_before_publishing_costs_a_wait_not_the_notification(told: Any) -> None:
    told.topic.before_call = die
    with pytest.raises(ConnectionError):
        told.outbox.deliver_run(RUN)
    told.topic.before_call = lambda operation: None
    assert states(told) == [NotificationState.SENDING]
    assert told.outbox.deliver_all().sent == ()
    told.clock.pass_by(seconds=STALE_AFTER.total_seconds())
    assert told.outbox.deliver_all().sent == (f"{RUN}/completed/1",)


def test_a_deliverer_that_died_after_publishing_sends_again_with_the_same_id(told: Any) -> None:
    """The one duplicate that cannot be avoided; the id tells it."""

    def die_when_marking(operation: str) -> None:
        if operation == "PutItem" and told.topic.published:
            raise ConnectionError("the function is gone")

    told.dynamodb.before_call = die_when_marking
    with pytest.raises(ConnectionError):
        told.outbox.deliver_run(RUN)
    told.dynamodb.before_call = lambda operation: None
    told.clock.pass_by(seconds=STALE_AFTER.total_seconds())
    told.outbox.deliver_all()
    first, second = told.topic.published
    assert first.notification_id == second.notification_id
    assert (first.subject, first.body) == (second.subject, second.body)
    assert states(told) == [NotificationState.SENT]


def test_two_deliverers_at_once_send_it_once(told: Any) -> None:
    def another_comes(operation: str) -> None:
        told.topic.before_call = lambda operation: None
        told.outbox.deliver_all()

    told.topic.before_call = another_comes
    told.outbox.deliver_run(RUN)
    assert len(told.topic.published) == 1


def test_one_broken_notification_does_not_stop_the_others(world: Any, make: Any) -> None:
    for name in ("broken", "fine"):
        run = world.launch(make.run(name), make.attempt(name))
        world.jobs.known[run.job_name] = make.job(("Completed", 2.0), name=run.job_name, status="Completed")
        world.runs.observe(name)
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
    world.jobs.known[run.job_name] = make.job(*story, status="Completed")
    world.runs.observe(run.run)
    world.outbox.deliver_all()
    assert [notification.kind.value for notification in world.topic.published] == [
        "interrupted",
        "resumed",
        "completed",
    ]


def test_what_is_refused_for_hours_is_put_aside_and_goes_out_once_when_it_is_asked_for(told: Any) -> None:
    told.topic.before_call = refuse
    dead = [told.outbox.deliver_all().dead for _ in range(FEWEST_TRIES)]
    assert dead == [()] * FEWEST_TRIES
    told.clock.pass_by(seconds=LONGEST_TRIED.total_seconds())
    assert told.outbox.deliver_all().dead == (f"{RUN}/completed/1",)
    assert told.outbox.deliver_all().failures == ()
    assert states(told) == [NotificationState.DEAD]
    [notification] = told.table.dead_notifications()
    told.topic.before_call = lambda operation: None
    assert told.outbox.deliver_all().sent == ()
    assert [told.table.revive_notification(notification) for _ in range(3)] == [True, False, False]
    assert told.outbox.deliver_run(RUN).sent == (f"{RUN}/completed/1",)
    assert told.outbox.deliver_all().sent == ()
    assert not told.table.revive_notification(told.table.notifications(RUN)[0])
    assert told.table.dead_notifications() == []


def test_what_is_put_aside_is_put_into_the_dead_letter_queue_once(told: Any) -> None:
    is_refused_for_hours(told)
    assert told.dead_letters.messages == []
    for _ in range(3):
        told.outbox.deliver_all()
    [message] = told.dead_letters.messages
    assert (message.notification_id, message.state, message.problem) == (
        f"{RUN}/completed/1",
        NotificationState.DEAD,
        "Throttled",
    )
    [dead] = told.table.dead_notifications()
    assert dead.queued_at == told.clock()


def test_each_giving_up_has_a_message_of_its_own(told: Any) -> None:
    for times in (1, 2):
        is_refused_for_hours(told)
        told.outbox.deliver_all()
        assert len(told.dead_letters.messages) == times
        [dead] = told.table.dead_notifications()
        assert told.table.revive_notification(dead)
        assert told.table.notifications(RUN)[0].queued_at is None
    told.topic.before_call = lambda operation: None
    assert told.outbox.deliver_all().sent == (f"{RUN}/completed/1",)


def test_a_queue_that_takes_nothing_is_told_and_gets_the_notification_with_the_next_sweep(told: Any) -> None:
    def refuse_it(operation: str) -> None:
        raise NotificationNotQueuedError(notification_id="n", reason="AccessDenied")

    is_refused_for_hours(told)
    told.dead_letters.before_call = refuse_it
    first = told.outbox.deliver_run(RUN)
    assert first.dead == (f"{RUN}/completed/1",)
    assert "AccessDenied" in first.failures[1]
    [again] = told.outbox.deliver_all().failures
    assert "AccessDenied" in again
    told.dead_letters.before_call = lambda operation: None
    assert told.outbox.deliver_all().failures == ()
    assert len(told.dead_letters.messages) == 1


@pytest.mark.parametrize("times", [1, 2], ids=["before the message", "between the message and its record"])
def test_a_deliverer_that_dies_on_the_way_to_the_queue_doubles_a_message_and_loses_none(told: Any, times: int) -> None:
    is_refused_for_hours(told)
    if times == 1:
        told.dead_letters.before_call = die
    else:
        told.dynamodb.before_call = lambda operation: die(operation) if told.dead_letters.messages else None
    with pytest.raises(ConnectionError):
        told.outbox.deliver_run(RUN)
    told.dead_letters.before_call = told.dynamodb.before_call = lambda operation: None
    assert states(told) == [NotificationState.DEAD]
    told.outbox.deliver_all()
    told.outbox.deliver_all()
    assert len(told.dead_letters.messages) == times


def test_what_somebody_asks_for_while_it_is_put_aside_goes_out_all_the_same(told: Any) -> None:
    def somebody_asks(operation: str) -> None:
        [dead] = told.table.dead_notifications()
        assert told.table.revive_notification(dead)

    is_refused_for_hours(told)
    told.dead_letters.before_call = somebody_asks
    told.outbox.deliver_run(RUN)
    assert states(told) == [NotificationState.PENDING]
    told.topic.before_call = lambda operation: None
    assert told.outbox.deliver_all().sent == (f"{RUN}/completed/1",)
