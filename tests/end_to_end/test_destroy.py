"""`cdk destroy` while runs are alive: they save, nothing goes on billing, and their checkpoints stay."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState
from spotkeep_local import cdk

from .conftest import CONTEXT, PROJECT, DeployedApp, OnEc2

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def destroy_while_passes_come(app: DeployedApp, context: Mapping[str, str]) -> None:
    """Destroy the app; meanwhile the controller's passes come, as its schedule has them every five minutes."""
    runs, controller = app.runs, app.connection["controller_function"]
    destroyed = threading.Event()

    def pass_on() -> None:
        client = app.client("lambda")
        while not destroyed.is_set():
            try:
                if runs.deletion() is not None:
                    client.invoke(FunctionName=controller, Payload=b"{}")
            except ClientError as error:
                assert error.response["Error"]["Code"] == "ResourceNotFoundException"  # noqa: PT017 - it is gone
                return
            time.sleep(0.5)

    passing = threading.Thread(target=pass_on)
    passing.start()
    try:
        cdk.destroy(app.local, project_dir=PROJECT, context=context)
    finally:
        destroyed.set()
        passing.join()


def test_what_runs_is_stopped_before_the_functions_that_could(own_app: DeployedApp) -> None:
    app = own_app
    on_ec2 = OnEc2(app)
    run = on_ec2.launch("5000")
    on_ec2.wait_for(run, '"event":"saved"')
    job = app.launch(name="job", command="sleep 600", max_run=3600, source=app.upload_source("job", {"a": ""}))["run"]
    runs = app.runs
    assert len(on_ec2.live_fleets()) == 1
    destroy_while_passes_come(app, CONTEXT)

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


def test_runs_in_a_queue_leave_it_or_save_before_it_is_deleted(own_app: DeployedApp) -> None:
    app, kind = own_app, "ml.m5.large"
    queues = {"cpu": {"types": {kind: 1}, "shares": {"team": {"types": {kind: 1}}}}}
    context = {**CONTEXT, "queues": json.dumps(queues)}
    cdk.deploy(app.local, project_dir=PROJECT, context=context)

    def launch() -> str:
        in_the_queue = {"queue": "cpu", "instance_type": kind, "capacity": "on-demand"}
        return str(app.launch(**app.counting("3000 --pause 0.2", **in_the_queue))["run"])

    trains = launch()
    app.wait_until(trains, lambda run: run.state is RunState.TRAINING)
    waits = launch()
    app.wait_until(waits, lambda run: run.state is RunState.WAITING)
    runs, batch = app.runs, app.client("batch")

    def service_job(run: Run) -> dict[str, Any]:
        assert run.job_arn is not None
        described: dict[str, Any] = batch.describe_service_job(jobId=run.job_arn)
        return described

    destroy_while_passes_come(app, context)
    for name in (trains, waits):
        ended = runs.get(name)
        assert ended is not None
        assert (ended.state, ended.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
        assert service_job(ended)["status"] == "FAILED"
    [attempt] = runs.attempts(trains)
    [made] = attempt.training_jobs
    described = app.client("sagemaker").describe_training_job(TrainingJobName=made.name)
    assert described["TrainingJobStatus"] == "Stopped"
    assert runs.attempts(waits)[0].training_jobs == ()
    assert batch.describe_job_queues()["jobQueues"] == []
    assert batch.describe_service_environments()["serviceEnvironments"] == []
