"""A notification that could not be sent: the functions put it into the queue, `notifications replay` takes it out."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.record import Attempt, Ending, Notification, Place, Run, RunChange
from spotkeep_jobs.record.states import EndReason, NotificationKind, NotificationState, RunState
from tests.models.run_table import open_run

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def a_run_of_no_launcher(deployed_app: DeployedApp) -> Run:
    """Record a run whose job no launcher made."""
    name, now = f"dead-{uuid.uuid4().hex[:8]}", datetime.now(UTC)
    shared: dict[str, Any] = {"place": Place(capacity="spot", instance_type="ml.m5.xlarge"), "created_at": now}
    return open_run(deployed_app.table, run=Run(
            run=name, name=name, job_name=f"{name}-1", job_id="arn", updated_at=now, token=name, request={},
            checkpoint_uri=f"s3://b/runs/{name}/checkpoints/", output_prefix=f"s3://b/runs/{name}/output/", **shared,
        ),
        attempt=Attempt(run=name, attempt=1, job_name=f"{name}-1", job_id="arn", **shared),
    ).run  # fmt: skip


def test_a_dead_notification_gets_into_the_deployed_queue_and_out_to_people_once(deployed_app: DeployedApp) -> None:
    run = a_run_of_no_launcher(deployed_app)
    given_up_at = datetime.now(UTC) - timedelta(hours=3)
    # As a deliverer leaves it that dies before it comes to the queue.
    dead = Notification(
        notification_id=f"{run.run}/stopped/1", subject_id=run.run, kind=NotificationKind.STOPPED,
        subject="It is done", body="It is done.\n", attributes={"status": "stopped"},
        happened_at=given_up_at, created_at=given_up_at,
        state=NotificationState.DEAD, deliveries=24, problem="KMSDisabled: the key is disabled",
    )  # fmt: skip
    attempt = deployed_app.table.runs.attempt(run.run, 1)
    assert attempt is not None
    ended = {"state": RunState.STOPPED, "ending": Ending(at=given_up_at, reason=EndReason.STOPPED_BY_USER)}
    deployed_app.table.runs.commit(RunChange(run=run.model_copy(update=ended), attempt=attempt, notifications=(dead,)))
    deployed_app.invoke("controller", {})
    queue = deployed_app.as_a_user.dead_letters
    [letter] = queue.take()
    assert letter.notification_id == dead.notification_id
    queue.give_back([letter])

    replayed = deployed_app.spotkeep("notifications", "replay", run.run, "--yes", "--json")
    assert json.loads(replayed.stdout) == {"ok": True, "notifications": [dead.notification_id], "messages_removed": 1}
    deployed_app.invoke("controller", {})
    deployed_app.invoke("controller", {})
    [notification] = deployed_app.table.notifications.of_run(run.run)
    assert (notification.state, notification.deliveries) == (NotificationState.SENT, 1)
    assert queue.take() == ()
