"""A notification that could not be sent: the functions put it into the queue, `notifications replay` takes it out."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from spotkeep_cli.aws.deployment import AwsDeployment
from spotkeep_cli.aws_calls import Connection
from spotkeep_cli.connection_options import ConnectionOptions
from spotkeep_cli.main import app
from spotkeep_cli.seams import Seams
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import NotificationKind, NotificationState

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def test_a_dead_notification_gets_into_the_deployed_queue_and_out_to_people_once(deployed_app: DeployedApp) -> None:
    search = f"search-{uuid.uuid4().hex[:8]}"
    given_up_at = datetime.now(UTC) - timedelta(hours=3)
    # As a deliverer leaves it that dies before it comes to the queue.
    dead = Notification(
        notification_id=f"tuning:{search}/completed", subject_id=search, kind=NotificationKind.COMPLETED,
        subject="It is done", body="It is done.\n", attributes={"status": "completed"},
        happened_at=given_up_at, created_at=given_up_at,
        state=NotificationState.DEAD, deliveries=24, problem="KMSDisabled: the key is disabled",
    )  # fmt: skip
    assert deployed_app.runs.add_notification(dead)
    options = ConnectionOptions()
    deployment = AwsDeployment(
        connection=Connection.model_validate(deployed_app.connection),
        client=deployed_app.local.session().client,
        options=options,
    )
    deployed_app.invoke("controller", {})
    assert deployment.dead_letters is not None
    [letter] = deployment.dead_letters.take()
    assert letter.notification_id == dead.notification_id
    deployment.dead_letters.give_back([letter])

    seams = Seams(connect=lambda _options: deployment, spot_market=lambda _options: pytest.fail("no plan is made here"))
    replayed = CliRunner().invoke(app, ["notifications", "replay", search, "--yes", "--json"], obj=seams)
    assert json.loads(replayed.stdout) == {"ok": True, "notifications": [dead.notification_id], "messages_removed": 1}
    deployed_app.invoke("controller", {})
    deployed_app.invoke("controller", {})
    [told] = deployed_app.runs.tuning_notifications(search)
    assert (told.state, told.deliveries) == (NotificationState.SENT, 1)
    assert deployment.dead_letters.take() == ()
