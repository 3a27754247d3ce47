"""`cdk destroy` while runs are alive: they save, nothing goes on billing, and their checkpoints stay."""

from __future__ import annotations

import threading
import time

import pytest
from botocore.exceptions import ClientError

from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState
from spotkeep_local import cdk

from .conftest import CONTEXT, PROJECT, DeployedApp, OnEc2

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def test_what_runs_is_stopped_before_the_functions_that_could(own_app: DeployedApp) -> None:
    app = own_app
    on_ec2 = OnEc2(app)
    run = on_ec2.launch("5000")
    on_ec2.wait_for(run, '"event":"saved"')
    job = app.launch(name="job", command="sleep 600", max_run=3600, source=app.upload_source("job", {"a": ""}))["run"]
    runs, controller = app.runs, app.connection["controller_function"]
    assert len(on_ec2.live_fleets()) == 1

    destroyed = threading.Event()

    def sweep() -> None:
        """As the schedule does every five minutes."""
        client = app.client("lambda")
        while not destroyed.is_set():
            try:
                if runs.deletion() is not None:
                    client.invoke(FunctionName=controller, Payload=b"{}")
            except ClientError as error:
                assert error.response["Error"]["Code"] == "ResourceNotFoundException"  # noqa: PT017 - it is gone
                return
            time.sleep(0.5)

    passing = threading.Thread(target=sweep)
    passing.start()
    try:
        cdk.destroy(app.local, project_dir=PROJECT, context=CONTEXT)
    finally:
        destroyed.set()
        passing.join()

    assert on_ec2.live_fleets() == []
    assert {each["State"]["Name"] for each in on_ec2.instances(run)} <= {"shutting-down", "terminated"}
    assert "left: the run is asked to stop" in on_ec2.said(run)
    names = {stack["StackName"] for stack in app.client("cloudformation").describe_stacks()["Stacks"]}
    assert not [name for name in names if name.startswith("Spotkeep-")]
    # The table is kept, and says how they ended; the volume is the run's.
    for each in (run, job):
        ended = runs.get(each)
        assert ended is not None
        assert (ended.state, ended.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
    assert [notification.kind for notification in runs.notifications(run)][-1] is NotificationKind.STOPPED
    assert len(on_ec2.volumes(run)) == 1
    status = app.client("sagemaker").describe_training_job(TrainingJobName=f"{job}-1")["TrainingJobStatus"]
    assert status == "Stopped"
