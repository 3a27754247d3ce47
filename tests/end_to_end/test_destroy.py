"""`cdk destroy` while runs are alive: they save, nothing goes on billing, and their checkpoints stay."""

from __future__ import annotations

import threading
import time

import pytest
from botocore.exceptions import ClientError

from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState
from spotkeep_local import cdk

from .conftest import CONTEXT, PROJECT, QUEUED_TYPE, DeployedApp, OnEc2

pytestmark = pytest.mark.long


def destroy_while_passes_come(app: DeployedApp) -> None:
    """Destroy the app; meanwhile the controller's passes come, as its schedule has them every five minutes."""
    table, controller = app.table, app.connection["controller_function"]
    destroyed = threading.Event()

    def pass_on() -> None:
        client = app.client("lambda")
        while not destroyed.is_set():
            try:
                if table.deployment.deletion() is not None:
                    client.invoke(FunctionName=controller, Payload=b"{}")
            except ClientError as error:
                assert error.response["Error"]["Code"] == "ResourceNotFoundException"  # noqa: PT017 - it is gone
                return
            time.sleep(2)

    passing = threading.Thread(target=pass_on)
    passing.start()
    try:
        cdk.destroy(app.local, project_dir=PROJECT, context=CONTEXT)
    finally:
        destroyed.set()
        passing.join()


def launch_into_the_queue(app: DeployedApp) -> str:
    in_the_queue = {"queue": "cpu", "share": "others", "instance_type": QUEUED_TYPE, "capacity": "on-demand"}
    return str(app.launch(**app.counting("3000 --pause 0.2", **in_the_queue))["run"])


def test_what_runs_and_what_waits_is_stopped_before_the_functions_that_could(own_app: DeployedApp) -> None:
    app, on_ec2, table = own_app, OnEc2(own_app), own_app.table
    on_an_instance = on_ec2.launch("5000")
    in_the_queue = launch_into_the_queue(app)
    app.wait_until(in_the_queue, lambda run: run.state is RunState.TRAINING)
    behind_it = launch_into_the_queue(app)
    app.wait_until(behind_it, lambda run: run.state is RunState.WAITING)
    job = app.launch(name="job", command="sleep 600", max_run=3600, source=app.upload_source("job", {"a": ""}))["run"]
    on_ec2.wait_for(on_an_instance, '"event":"saved"')
    assert len(on_ec2.live_fleets()) == 1

    destroy_while_passes_come(app)

    names = {stack["StackName"] for stack in app.client("cloudformation").describe_stacks()["Stacks"]}
    assert not [name for name in names if name.startswith("Spotkeep-")]
    # The table is kept, and says how they ended.
    ended = {run: app.run(run) for run in (on_an_instance, job, in_the_queue, behind_it)}
    assert {(run.state, run.end_reason) for run in ended.values()} == {(RunState.STOPPED, EndReason.STOPPED_BY_USER)}

    assert on_ec2.live_fleets() == []
    assert {each["State"]["Name"] for each in on_ec2.instances(on_an_instance)} <= {"shutting-down", "terminated"}
    assert "left: the run is asked to stop" in on_ec2.said(on_an_instance)
    assert table.notifications.of_run(on_an_instance)[-1].kind is NotificationKind.STOPPED
    assert len(on_ec2.volumes(on_an_instance)) == 1, "the volume is the run's"

    batch, sagemaker = app.client("batch"), app.client("sagemaker")
    for run in (in_the_queue, behind_it):
        job_id = ended[run].job_id
        assert job_id is not None
        assert batch.describe_service_job(jobId=job_id)["status"] == "FAILED"
    assert batch.describe_job_queues()["jobQueues"] == []
    assert batch.describe_service_environments()["serviceEnvironments"] == []
    [of_the_queue] = table.runs.attempts(in_the_queue)[0].training_jobs.listed
    for name in (f"{job}-1", of_the_queue.name):
        assert sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Stopped"
    assert table.runs.attempts(behind_it)[0].training_jobs.listed == ()
