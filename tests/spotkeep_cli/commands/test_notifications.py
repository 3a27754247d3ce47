"""`spotkeep notifications`: what has not been sent is seen, and sent again on demand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.notifications.texts.endings import ending_notification
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.states import NotificationState
from spotkeep_jobs.schedules.scheduled_launches import refused_firing_notification


def put_aside(deployment: Any, *runs: str) -> None:
    """Put a message about the ending of each run into the dead-letter queue."""
    for run in runs:
        body = json.dumps({"notification_id": f"{run}/completed/1", "subject_id": run})
        deployment.dead_letter_queue.send_message(QueueUrl="queue", MessageBody=body)


def runs_of(messages: list[dict[str, Any]]) -> list[str]:
    return [message["subject_id"] for message in messages]


@pytest.fixture
def notified(deployment: Any, make: Any) -> Any:
    """A deployment with a notification that was sent, one that waits, and two that could not be sent."""
    states = {
        "digits-1a2b3c4d": NotificationState.SENT,
        "digits-22222222": NotificationState.PENDING,
        "digits-33333333": NotificationState.DEAD,
        "digits-44444444": NotificationState.DEAD,
    }
    for run, state in states.items():
        run_item = make.completed(run)
        notification = ending_notification(run=run_item, deployment="spotkeep", created_at=make.now)
        assert notification is not None
        notification = notification.model_copy(update={"state": state, "deliveries": 25})
        deployment.dynamodb.add(run_item, notifications=[notification])
    deployment.answers["replay-notifications"] = {
        "ok": True,
        "run": "r",
        "notifications": ["digits-33333333/completed/1"],
    }
    return deployment


def test_without_a_run_it_lists_what_was_not_sent_dead_ones_first(spotkeep: Any, notified: Any) -> None:
    shown = spotkeep("notifications", "ls")
    rows = [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("digits")]
    assert rows == ["digits-33333333", "digits-44444444", "digits-22222222"]
    assert "could not be sent" in shown.stdout
    assert "notifications replay digits-33333333" in shown.stdout + shown.stderr


def test_of_a_run_it_lists_everything(spotkeep: Any, notified: Any) -> None:
    [notification] = json.loads(spotkeep("notifications", "ls", "digits-1a", "--json").stdout)
    assert (notification["subject_id"], notification["state"]) == ("digits-1a2b3c4d", "sent")


def test_of_a_schedule_it_leads_to_the_schedules(spotkeep: Any, deployment: Any, make: Any) -> None:
    schedule = Schedule(
        schedule="nightly", name="digits", expression="rate(1 day)", timezone="UTC", created_at=make.now,
        begins_at=make.now, token="token", document={},
    )  # fmt: skip
    notification = refused_firing_notification(
        schedule=schedule, fired_at=make.now, refusal="max_cost: is too high", next_firing=None, deployment="spotkeep",
        now=make.now,
    )  # fmt: skip
    deployment.dynamodb.add(make.completed("digits-1a2b3c4d"), notifications=[notification])
    shown = spotkeep("notifications", "ls")
    assert "nightly" in shown.stdout
    assert "spotkeep schedules ls" in shown.stdout + shown.stderr


def test_nothing_to_tell_is_said(spotkeep: Any, deployment: Any) -> None:
    assert "Everything has been sent" in spotkeep("notifications", "ls").stdout
    assert "nothing that could not be sent" in spotkeep("notifications", "replay", "--all").stdout


def test_replay_asks_the_launcher_once_for_each_run_and_takes_its_messages_out_of_the_dead_letter_queue(
    spotkeep: Any, notified: Any
) -> None:
    put_aside(notified, "digits-33333333", "digits-44444444", "digits-33333333")
    done = spotkeep("notifications", "replay", "digits-33333333", "--yes")
    assert notified.invocations == [{"action": "replay-notifications", "run": "digits-33333333"}]
    assert "1 notification: out again" in done.stdout
    assert runs_of(notified.dead_letter_queue.visible) == ["digits-44444444"]
    done = spotkeep("notifications", "replay", "--all", "--yes", "--json")
    assert [call["run"] for call in notified.invocations[1:]] == ["digits-33333333", "digits-44444444"]
    assert json.loads(done.stdout)["messages_removed"] == 1
    assert notified.dead_letter_queue.messages == []


def test_a_message_about_what_the_table_does_not_list_is_asked_for_and_removed(spotkeep: Any, deployment: Any) -> None:
    deployment.answers["replay-notifications"] = {"ok": True, "run": "r", "notifications": []}
    put_aside(deployment, "digits-55555555")
    done = spotkeep("notifications", "replay", "--all")
    assert deployment.invocations == [{"action": "replay-notifications", "run": "digits-55555555"}]
    assert "held messages of 1 notification that had gone out since" in " ".join(done.stdout.split())
    assert deployment.dead_letter_queue.messages == []


def test_a_launcher_that_fails_loses_no_message(spotkeep: Any, deployment: Any) -> None:
    deployment.answers["replay-notifications"] = {"ok": False, "error": "refused", "problems": []}
    put_aside(deployment, "digits-55555555", "digits-66666666")
    assert spotkeep("notifications", "replay", "digits-55555555").exit_code != 0
    assert runs_of(deployment.dead_letter_queue.messages) == ["digits-55555555", "digits-66666666"]
    assert runs_of(deployment.dead_letter_queue.visible) == ["digits-66666666"]


def test_replay_needs_to_know_what(spotkeep: Any, notified: Any) -> None:
    assert spotkeep("notifications", "replay").exit_code == ExitCode.USAGE
    assert notified.invocations == []
