"""The deployed launch template boots: what AWS would start from is what a local host starts from, as it is."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import FleetRecord, opened
from spotkeep_fleet.tags import ATTEMPT_TAG, CHECKPOINTS_TAG, DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.records import DynamoFleetRecords
from spotkeep_jobs.backends.training_bundle import TrainingBundleStore

from .conftest import DeployedApp

pytestmark = pytest.mark.long
_PATIENCE_SECONDS = 90.0
INSTANCE_TYPES = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]["spotkeep"][
    "spot_instance_types"
]


class Run:
    """One run's record, launch template and fleet, made as a launcher would."""

    def __init__(self, app: DeployedApp) -> None:
        self.id = f"run-{uuid.uuid4().hex[:8]}"
        self._app = app
        self._ec2 = app.client("ec2")
        dynamodb: Any = app.client("dynamodb")
        self._records = DynamoFleetRecords(dynamodb, table_name=app.connection["run_table"], retention_days=1)
        job = InstanceJob(command=("true",), volume=VolumeSpec(size_gb=1))
        self._records.write_with_job(opened(run=self.id), job=job, over=None, now=datetime.now(tz=UTC))

    @property
    def record(self) -> FleetRecord:
        found = self._records.record(self.id)
        assert found is not None
        return found

    def launch(self) -> None:
        deployed = self._app.connection["launch_template_id"]
        found = self._ec2.describe_launch_template_versions(LaunchTemplateId=deployed)["LaunchTemplateVersions"]
        source = max(version["VersionNumber"] for version in found if version["VersionDescription"] == "deployed")
        of_the_attempt = {
            DEPLOYMENT_TAG: "spotkeep",
            RUN_TAG: self.id,
            ATTEMPT_TAG: "1",
            CHECKPOINTS_TAG: f"runs/{self.id}/checkpoints",
        }
        tags = [{"Key": name, "Value": value} for name, value in of_the_attempt.items()]
        made = self._ec2.create_launch_template_version(
            LaunchTemplateId=deployed,
            SourceVersion=str(source),
            VersionDescription=f"run {self.id}",
            LaunchTemplateData={"TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]},
        )["LaunchTemplateVersion"]
        function = self._app.client("lambda").get_function_configuration(
            FunctionName=self._app.connection["launcher_function"]
        )
        self.subnets = json.loads(function["Environment"]["Variables"]["SPOTKEEP_FLEET_SUBNETS"])
        TrainingBundleStore(
            lambda: self._app.client("s3"),
            asset_uri=function["Environment"]["Variables"]["SPOTKEEP_TRAINING_BUNDLE_ASSET_URI"],
            uri=function["Environment"]["Variables"]["SPOTKEEP_TRAINING_BUNDLE_URI"],
        ).keep()
        fleet = self._ec2.create_fleet(
            Type="maintain",
            SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": deployed,
                        "Version": str(made["VersionNumber"]),
                    },
                    "Overrides": [
                        {"InstanceType": name, "SubnetId": subnet} for name in INSTANCE_TYPES for subnet in self.subnets
                    ],
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
        )
        assert not fleet.get("Errors")
        self._fleet = fleet["FleetId"]

    def wait_for_lease(self) -> str:
        """Wait until an instance took the run, and say which."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            lease = self.record.lease
            if lease is not None:
                return lease.holder
            time.sleep(0.2)
        raise AssertionError(f"no instance asked for {self.id}:\n{self.consoles()}")

    def instances(self) -> list[dict[str, Any]]:
        active = self._ec2.describe_fleet_instances(FleetId=self._fleet)["ActiveInstances"]
        found = self._ec2.describe_instances(InstanceIds=[instance["InstanceId"] for instance in active])
        return [instance for reservation in found["Reservations"] for instance in reservation["Instances"]]

    def consoles(self) -> str:
        return "\n".join(
            str(self._ec2.get_console_output(InstanceId=instance["InstanceId"]).get("Output", ""))
            for instance in self.instances()
        )

    def close(self) -> None:
        self._ec2.delete_fleets(FleetIds=[self._fleet], TerminateInstances=True)


@pytest.fixture
def run(deployed_app: DeployedApp) -> Iterator[Run]:
    run = Run(deployed_app)
    yield run
    run.close()


def test_an_instance_boots_the_deployed_user_data_and_takes_its_run(run: Run) -> None:
    run.launch()
    holder = run.wait_for_lease()
    (instance,) = run.instances()
    assert instance["InstanceId"] == holder
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    assert run.subnets[instance["SubnetId"]] == instance["Placement"]["AvailabilityZone"]
