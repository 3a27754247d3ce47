"""A training job that a user starts with a client of their own, on the deployed app."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.record.states import NotificationKind, NotificationState, RunState
from spotkeep_local.capacity import EventFaults

from .attackers import Attackers

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def starts_a_job(app: DeployedApp, *, tag: str) -> str:
    """Create a job that sleeps for a second, as an administrator of the account."""
    name = f"by-sdk-{uuid.uuid4().hex[:8]}"
    bucket = app.connection["checkpoint_bucket"]
    app.client("sagemaker").create_training_job(
        TrainingJobName=name,
        RoleArn=Attackers(app).role_arn("ExecutionRole"),
        AlgorithmSpecification={
            "TrainingImage": "image:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "-c", "import time; time.sleep(1)"],
        },
        EnableManagedSpotTraining=True,
        CheckpointConfig={"S3Uri": f"s3://{bucket}/runs/{name}/checkpoints/"},
        OutputDataConfig={"S3OutputPath": f"s3://{bucket}/runs/{name}/output/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 5},
        StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1_200},
        Tags=[{"Key": "spotkeep:deployment", "Value": tag}, {"Key": "spotkeep:owner", "Value": "ada"}],
    )
    return name


def becomes_a_run(app: DeployedApp, name: str, *, sweep: bool = False) -> None:
    for _ in range(600):
        if app.runs.get(name) is not None:
            return
        if sweep:
            app.invoke("controller", {})
        app.client("sagemaker").describe_training_job(TrainingJobName=name)
    raise AssertionError(f"{name} is no run")


def test_it_becomes_a_run_is_notified_and_billed(deployed_app: DeployedApp) -> None:
    name = starts_a_job(deployed_app, tag="spotkeep")
    becomes_a_run(deployed_app, name)
    run = deployed_app.wait_until_ended(name)
    assert (run.adopted, run.owner, run.capacity, run.state) == (True, "ada", "spot", RunState.COMPLETED)
    assert run.cost is not None
    assert run.cost.training_seconds > 0
    deployed_app.invoke("controller", {})
    [notification] = deployed_app.runs.notifications(name)
    assert (notification.kind, notification.state) == (NotificationKind.COMPLETED, NotificationState.SENT)


def test_a_pass_finds_it_where_every_event_is_lost(deployed_app: DeployedApp) -> None:
    deployed_app.control.event_faults(EventFaults(drop=1.0))
    try:
        name = starts_a_job(deployed_app, tag="spotkeep")
        becomes_a_run(deployed_app, name, sweep=True)
        assert deployed_app.wait_until_ended(name, sweep=True).state is RunState.COMPLETED
    finally:
        deployed_app.control.event_faults(EventFaults())


def test_one_of_another_deployment_is_left_alone(deployed_app: DeployedApp) -> None:
    name = starts_a_job(deployed_app, tag="another")
    waiter = deployed_app.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 90})
    deployed_app.invoke("controller", {})
    assert deployed_app.runs.get(name) is None
