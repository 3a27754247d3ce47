"""A training that hangs on the deployed app: its command starts again, and people read about it, on both backends."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from spotkeep_cli.rehearsal.engine import Subscriber
from spotkeep_jobs.record.states import NotificationKind, NotificationState, RunState, TimelineKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import DeployedApp, OnEc2

pytestmark = pytest.mark.long

COMMAND = "20 --hold-at 7 --hurry"
"""It saves every 5 steps and stands still in step 7, so that SIGTERM does not end it."""
STUCK = {"after": "1m", "restart": True}
ENVIRONMENT = {"SPOTKEEP_NOTICE_SECONDS": "3"}


@pytest.fixture
def mailbox(deployed_app: DeployedApp) -> Iterator[Subscriber]:
    subscriber = Subscriber.subscribe(
        sns=deployed_app.client("sns"),
        sqs=deployed_app.client("sqs"),
        topic_arn=deployed_app.as_a_user.notification_topic_arn,
        queue_name=f"stuck-{uuid.uuid4().hex[:8]}",
    )
    yield subscriber
    subscriber.close()


def test_a_training_that_hangs_starts_again_and_its_users_get_a_mail(on_ec2: OnEc2, mailbox: Subscriber) -> None:
    app = on_ec2.app
    job = app.counting(COMMAND, stuck=STUCK, environment=ENVIRONMENT, instance_type="ml.m5.large")
    runs = [job["run"]]
    app.launch(**job)
    command = COMMAND.removesuffix(" --hurry")
    runs.append(on_ec2.launch(command, environment=ENVIRONMENT, stuck=STUCK, notify=["completed", "stuck"]))

    for run in runs:
        ended = app.wait_until_ended(run, passes=True)
        assert (ended.state, ended.interruptions) == (RunState.COMPLETED, 0), ended.failure_reason
        assert (ended.hangs.count, ended.hangs.restarts, ended.hangs.still_since) == (1, 1, None)
        [stood_still] = [each for each in app.table.runs.timeline(run) if each.kind is TimelineKind.STUCK]
        assert stood_still.text.startswith("Stood still: no step and no line of output for 1 min")

    app.invoke("controller", {})
    received = {}
    while arrived := mailbox.receive(wait_seconds=5):
        received |= {(each.run, each.status): each for each in arrived}
    assert set(received) >= {(run, "stuck") for run in runs}
    for run in runs:
        letter = received[run, "stuck"]
        assert run in letter.subject
        assert "starts again" in letter.body
        [notice] = [each for each in app.table.notifications.of_run(run) if each.kind is NotificationKind.STUCK]
        assert notice.state is NotificationState.SENT
