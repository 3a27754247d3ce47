"""A drill that cannot begin, on the local EC2 and FIS. That a run comes back from one is shown in tests/end_to_end."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_cli.connection_options import ConnectionOptions
from spotkeep_cli.drill.on_aws import Drill
from spotkeep_cli.errors import NoConnectionError, RefusedError
from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import new_record
from spotkeep_fleet.tags import DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_local.lifecycle import LocalAws
from tests.models.run_table import make_run_table
from tests.spotkeep_cli.conftest import CONNECTION

READS = 1000
USER_DATA = base64.b64encode(b"#!/bin/sh\nexec sleep 600\n").decode()


class Scene:
    """A run on a fleet, its record, and a deployed experiment template."""

    def __init__(self, local: LocalAws) -> None:
        session = local.session()
        self.client = session.client
        self.ec2, self.fis, self.dynamodb = (session.client(name) for name in ("ec2", "fis", "dynamodb"))
        self.run = f"run-{uuid.uuid4().hex[:8]}"
        self.table = f"runs-{uuid.uuid4().hex[:8]}"
        make_run_table(self.dynamodb, self.table)
        self.records = FleetTable(self.dynamodb, table_name=self.table, retention_days=1)
        job = InstanceJob(command=("true",), volume=VolumeSpec(size_gb=1))
        self.records.write_with_job(new_record(run=self.run), job=job, over=None, now=datetime.now(tz=UTC))
        tags = [{"Key": DEPLOYMENT_TAG, "Value": "spotkeep"}, {"Key": RUN_TAG, "Value": self.run}]
        template = self.ec2.create_launch_template(
            LaunchTemplateName=self.run,
            LaunchTemplateData={
                "ImageId": "ami-00000000000000001",
                "InstanceType": "m5.large",
                "UserData": USER_DATA,
                "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
            },
        )["LaunchTemplate"]["LaunchTemplateId"]
        self.fleet = self.ec2.create_fleet(
            Type="maintain",
            SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"}}
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
        )["FleetId"]
        self.experiment_template = self.fis.create_experiment_template(
            clientToken=uuid.uuid4().hex,
            description="drill",
            roleArn="arn:aws:iam::000000000000:role/drill",
            stopConditions=[{"source": "none"}],
            targets={
                "Instance": {
                    "resourceType": "aws:ec2:spot-instance",
                    "resourceTags": {DEPLOYMENT_TAG: "spotkeep", "spotkeep:drill": "now"},
                    "filters": [{"path": "State.Name", "values": ["running"]}],
                    "selectionMode": "COUNT(1)",
                }
            },
            actions={
                "Interrupt": {
                    "actionId": "aws:ec2:send-spot-instance-interruptions",
                    "parameters": {"durationBeforeInterruption": "PT2M"},
                    "targets": {"SpotInstances": "Instance"},
                }
            },
        )["experimentTemplate"]["id"]

    def drill(self, *, template: str | None = None) -> Drill:
        id_ = self.experiment_template if template is None else template
        connection = CONNECTION.model_copy(update={"run_table": self.table, "drill_template_id": id_})
        return Drill(connection=connection, client=self.client, options=ConnectionOptions(local=True), run=self.run)

    def running(self) -> str:
        def found() -> str | None:
            active = self.ec2.describe_fleet_instances(FleetId=self.fleet)["ActiveInstances"]
            for instance in active:
                described = self.ec2.describe_instances(InstanceIds=[instance["InstanceId"]])
                state = described["Reservations"][0]["Instances"][0]["State"]["Name"]
                if state == "running":
                    return str(instance["InstanceId"])
            return None

        return str(waited(found))


def waited(condition: Callable[[], Any]) -> Any:
    # Counted, not timed: on a busy machine seconds may pass between two states.
    for _ in range(READS):
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail("waited in vain")


@pytest.fixture
def scene(local_aws: LocalAws) -> Iterator[Scene]:
    scene = Scene(local_aws)
    yield scene
    scene.ec2.delete_fleets(FleetIds=[scene.fleet], TerminateInstances=True)


def test_what_cannot_be_drilled_is_refused_with_what_to_do(scene: Scene) -> None:
    with pytest.raises(RefusedError) as refused:
        scene.drill(template="").instance()
    assert "drills=true" in refused.value.hint
    with pytest.raises(RefusedError, match="no instance works on"):
        scene.drill().instance()


def test_an_experiment_that_does_not_start_leaves_no_tag_behind(scene: Scene) -> None:
    first = scene.running()
    with pytest.raises(NoConnectionError, match="starting the experiment"):
        scene.drill(template="EXTnothing").start(first, token=uuid.uuid4().hex)
    found = scene.ec2.describe_instances(InstanceIds=[first])["Reservations"][0]["Instances"][0]
    assert "spotkeep:drill" not in {tag["Key"] for tag in found["Tags"]}
