"""A training job that a user starts with a client of their own, on the deployed app."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from spotkeep_jobs.record.states import NotificationKind, NotificationState, RunState
from spotkeep_local.capacity import EventFaults

from .attackers import Attackers
from .conftest import until

if TYPE_CHECKING:
    from pathlib import Path

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
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
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


@dataclass(frozen=True)
class Started:
    """Two jobs that a client started: one with our tag, one with another deployment's."""

    ours: str
    anothers: str


@pytest.fixture(scope="module")
def started(deployed_app: DeployedApp) -> Started:
    return Started(ours=starts_a_job(deployed_app, tag="spotkeep"), anothers=starts_a_job(deployed_app, tag="another"))


def test_it_becomes_a_run_is_notified_and_billed(deployed_app: DeployedApp, started: Started) -> None:
    until(lambda: deployed_app.table.runs.get(started.ours), lambda: "its run")
    run = deployed_app.wait_until_ended(started.ours)
    assert (run.adopted, run.owner, run.place.capacity, run.state) == (True, "ada", "spot", RunState.COMPLETED)
    assert run.cost is not None
    assert run.cost.training_seconds > 0
    deployed_app.invoke("controller", {})
    [notification] = deployed_app.table.notifications.of_run(started.ours)
    assert (notification.kind, notification.state) == (NotificationKind.COMPLETED, NotificationState.SENT)


def test_one_of_another_deployment_is_left_alone(deployed_app: DeployedApp, started: Started) -> None:
    waiter = deployed_app.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=started.anothers, WaiterConfig={"Delay": 1, "MaxAttempts": 90})
    deployed_app.invoke("controller", {})
    assert deployed_app.table.runs.get(started.anothers) is None


def test_a_pass_finds_it_where_every_event_is_lost(deployed_app: DeployedApp) -> None:
    deployed_app.control.event_faults(EventFaults(drop=1.0))
    try:
        name = starts_a_job(deployed_app, tag="spotkeep")
        until(lambda: deployed_app.invoke("controller", {}) and deployed_app.table.runs.get(name), lambda: "its run")
        assert deployed_app.wait_until_ended(name, passes=True).state is RunState.COMPLETED
    finally:
        deployed_app.control.event_faults(EventFaults())
    deployed_app.invoke("controller", {})
    assert [each.kind for each in deployed_app.table.notifications.of_run(name)] == [NotificationKind.COMPLETED]


def test_import_reads_it_with_a_users_permissions_and_none_without_the_tag(
    deployed_app: DeployedApp, started: Started, tmp_path: Path
) -> None:
    another = deployed_app.spotkeep("import", started.anothers, "-o", str(tmp_path / "another.yaml"))
    assert another.exit_code
    assert "AccessDeniedException" in another.stderr
    imported = deployed_app.spotkeep("import", started.ours, "-o", str(tmp_path / "ours.yaml"))
    assert imported.exit_code == 0
    document = yaml.safe_load((tmp_path / "ours.yaml").read_text())
    assert document["command"] == ["python3", "-c", "import time; time.sleep(1)"]
    assert (document["name"], document["capacity"], document["max_wait"]) == (started.ours, "spot", 1_200)
    assert "tags" not in document
