"""A notice that nobody could send: the deployed functions put it into the queue, `notices replay` takes it out."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from spotkeep_cli.aws_calls import Connection
from spotkeep_cli.aws_deployment import AwsDeployment
from spotkeep_cli.deployment import ConnectionOptions
from spotkeep_cli.main import app
from spotkeep_cli.seams import Seams
from spotkeep_jobs.facts.record import Notice
from spotkeep_jobs.facts.states import NoticeKind, NoticeState

if TYPE_CHECKING:
    from .conftest import DeployedApp


def test_a_dead_notice_gets_into_the_deployed_queue_and_out_to_people_once(deployed_app: DeployedApp) -> None:
    search = f"search-{uuid.uuid4().hex[:8]}"
    given_up_at = datetime.now(UTC) - timedelta(hours=3)
    # As a deliverer leaves it that dies before it comes to the queue.
    dead = Notice(
        notice_id=f"tuning:{search}/completed", subject_id=search, kind=NoticeKind.COMPLETED, subject="It is done",
        body="It is done.\n", attributes={"status": "completed"}, happened_at=given_up_at, created_at=given_up_at,
        state=NoticeState.DEAD, deliveries=24, problem="KMSDisabled: the key is disabled",
    )  # fmt: skip
    assert deployed_app.runs.add_notice(dead)
    options = ConnectionOptions()
    deployment = AwsDeployment(
        connection=Connection.model_validate(deployed_app.connection),
        client=deployed_app.local.session().client,
        options=options,
    )
    deployed_app.invoke("reconciler", {})
    assert deployment.dead_letters is not None
    [letter] = deployment.dead_letters.take()
    assert letter.notice_id == dead.notice_id
    deployment.dead_letters.give_back([letter])

    seams = Seams(connect=lambda _options: deployment)
    replayed = CliRunner().invoke(app, ["notices", "replay", search, "--yes", "--json"], obj=seams)
    assert json.loads(replayed.stdout) == {"ok": True, "notices": [dead.notice_id], "messages_removed": 1}
    deployed_app.invoke("reconciler", {})
    deployed_app.invoke("reconciler", {})
    [told] = deployed_app.runs.tuning_notices(search)
    assert (told.state, told.deliveries) == (NoticeState.SENT, 1)
    assert deployment.dead_letters.take() == ()
