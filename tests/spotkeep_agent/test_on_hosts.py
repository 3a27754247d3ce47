"""The main paths on real hosts: the deployed user data, real devices and mounts, an own user, a fleet.

Instances have network, mount and process namespaces of their own; their volumes are loop devices that live in one zone.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_constructs.training_bundle import bundle_bytes
from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import FINISHED, FleetRecord, decode, encode, opened
from spotkeep_fleet.tags import DEPLOYMENT_TAG, RUN_TAG
from spotkeep_fleet.user_data import BootInputs, user_data
from spotkeep_local import lifecycle
from spotkeep_local.options import Isolation, ServerOptions

fleet_control = pytest.importorskip("spotkeep_local.fleet_control", reason="the local AWS has no hosts")
market = pytest.importorskip("spotkeep_local.ec2.market", reason="the local AWS has no hosts")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
ZONES = ("us-east-1a", "us-east-1b")
SCRIPT = """
import getpass, os, sys, time
from spotkeep import Checkpointer

print("trained by", getpass.getuser(), flush=True)
state = {"total": 0}
with Checkpointer(state, every_steps=2) as checkpointer:
    for step in checkpointer.steps(150):
        state["total"] += step
        time.sleep(float(os.environ["PAUSE"]))
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


class Hosts:
    """A deployment as far as an agent sees it, and the fleet of one run."""

    def __init__(self, local: Any) -> None:
        self.session = local.session()
        self.ec2 = self.session.client("ec2")
        self.control = fleet_control.FleetControl(local.endpoint_url)
        self.run = f"run-{uuid.uuid4().hex[:8]}"
        self.bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        self.table = f"runs-{uuid.uuid4().hex[:8]}"
        self.group = f"/spotkeep/{self.run}"
        self.fleets: list[str] = []
        s3, dynamodb, logs, iam = (self.session.client(name) for name in ("s3", "dynamodb", "logs", "iam"))
        s3.create_bucket(Bucket=self.bucket)
        bundle = bundle_bytes(ROOT / "training")
        s3.put_object(Bucket=self.bucket, Key="spotkeep.pyz", Body=bundle)
        dynamodb.create_table(
            TableName=self.table,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        logs.create_log_group(logGroupName=self.group)
        policy = {"Version": "2012-10-17", "Statement": []}
        iam.create_role(RoleName=self.run, AssumeRolePolicyDocument=json.dumps(policy))
        iam.create_instance_profile(InstanceProfileName=self.run)
        iam.add_role_to_instance_profile(InstanceProfileName=self.run, RoleName=self.run)
        self.dynamodb = dynamodb
        self.inputs = BootInputs(
            bundle_uri=f"s3://{self.bucket}/spotkeep.pyz",
            bundle_sha256=hashlib.sha256(bundle).hexdigest(),
            region="us-east-1",
            run_table=self.table,
            deployment="spotkeep",
        )

    def launch(self, *, pause: float) -> str:
        job = InstanceJob(
            command=("python3", "-c", textwrap.dedent(SCRIPT)),
            volume=VolumeSpec(size_gb=1),
            environment={"PAUSE": str(pause), "SPOTKEEP_PROGRESS_SECONDS": "0"},
            log_group=self.group,
            event_bus="default",
            checkpoint_uri=f"s3://{self.bucket}/runs/{self.run}/checkpoints/",
            output_uri=f"s3://{self.bucket}/runs/{self.run}/output/",
        )
        self.put(opened(run=self.run, job=job))
        tags = [{"Key": RUN_TAG, "Value": self.run}, {"Key": DEPLOYMENT_TAG, "Value": "spotkeep"}]
        made = self.ec2.create_launch_template(
            LaunchTemplateName=self.run,
            LaunchTemplateData={
                "ImageId": "ami-00000000000000001",
                "InstanceType": "m5.large",
                "UserData": base64.b64encode(user_data(self.inputs).encode()).decode(),
                "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
                "IamInstanceProfile": {"Name": self.run},
                "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
            },
        )
        template = made["LaunchTemplate"]["LaunchTemplateId"]
        overrides = [{"InstanceType": "m5.large", "AvailabilityZone": zone} for zone in ZONES]
        found = self.ec2.create_fleet(
            Type="maintain",
            SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
                    "Overrides": overrides,
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
        )
        self.fleets.append(found["FleetId"])
        return str(found["FleetId"])

    def put(self, record: FleetRecord) -> None:
        self.dynamodb.put_item(
            TableName=self.table,
            Item={
                "pk": {"S": f"fleet#{self.run}"},
                "sk": {"S": "fleet"},
                "version": {"N": str(record.version)},
                "record": {"S": encode(record)},
            },
        )

    @property
    def record(self) -> FleetRecord:
        key = {"pk": {"S": f"fleet#{self.run}"}, "sk": {"S": "fleet"}}
        return decode(self.dynamodb.get_item(TableName=self.table, Key=key)["Item"]["record"]["S"])

    def instance(self, fleet: str, *, other_than: tuple[str, ...] = ()) -> dict[str, Any]:
        """Wait for an instance of the fleet."""

        def found() -> dict[str, Any] | None:
            for active in self.ec2.describe_fleet_instances(FleetId=fleet)["ActiveInstances"]:
                if active["InstanceId"] not in other_than:
                    described = self.ec2.describe_instances(InstanceIds=[active["InstanceId"]])
                    instance: dict[str, Any] = described["Reservations"][0]["Instances"][0]
                    return instance
            return None

        return self.wait(found, "an instance")

    def console(self, instance: dict[str, Any]) -> str:
        return str(self.ec2.get_console_output(InstanceId=instance["InstanceId"]).get("Output", ""))

    def wait_for(self, instance: dict[str, Any], text: str) -> None:
        self.wait(lambda: text in self.console(instance), text, lambda: self.console(instance))

    def wait(self, condition: Callable[[], Any], what: str, said: Callable[[], str] = lambda: "") -> Any:
        for _ in range(1200):
            if found := condition():
                return found
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {what}\n{said()}")

    def volumes(self) -> list[dict[str, Any]]:
        found = self.ec2.describe_volumes(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [self.run]}])
        return list(found["Volumes"])

    def log(self) -> list[str]:
        found = self.session.client("logs").filter_log_events(logGroupName=self.group)
        return [event["message"] for event in found["events"]]

    def close(self) -> None:
        self.ec2.delete_fleets(FleetIds=self.fleets, TerminateInstances=True)


@pytest.fixture
def hosts(local_aws: Any) -> Iterator[Hosts]:
    """Hosts with namespaces and block devices."""
    platform = fleet_control.FleetControl(local_aws.endpoint_url).platform()
    if platform.isolation != "namespace":
        pytest.skip(f"no hosts with block devices here: {platform.reason}")
    hosts = Hosts(local_aws)
    yield hosts
    hosts.close()


@pytest.fixture
def relocated_hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Hosts that are process groups, with directories for volumes: what a machine without root has."""
    options = replace(ServerOptions.fast(), isolation=Isolation.RELOCATED)
    local = lifecycle.start(tmp_path / "aws", port=lifecycle.free_port(), options=options)
    hosts = Hosts(local)
    yield hosts
    hosts.close()
    lifecycle.stop(tmp_path / "aws")


def test_without_root_the_same_run_goes_through_the_same(relocated_hosts: Hosts) -> None:
    goes_through_both_kinds_of_interruption_and_both_zones(relocated_hosts)


def test_a_run_goes_through_both_kinds_of_interruption_and_both_zones(hosts: Hosts) -> None:
    goes_through_both_kinds_of_interruption_and_both_zones(hosts)
    assert any("trained by spotkeep" in line for line in hosts.log())


def goes_through_both_kinds_of_interruption_and_both_zones(hosts: Hosts) -> None:
    fleet = hosts.launch(pause=0.1)
    first = hosts.instance(fleet)
    hosts.wait_for(first, '"event":"saved"')
    zone = first["Placement"]["AvailabilityZone"]
    other = next(found for found in ZONES if found != zone)

    # With a notice, and no capacity left here: the volume goes to the other zone through a snapshot.
    hosts.control.interrupt(first["InstanceId"], notice=True, notice_seconds=30)
    hosts.control.change_pool(market.PoolChange(zone=zone, capacity=0))
    second = hosts.instance(fleet, other_than=(first["InstanceId"],))
    assert second["Placement"]["AvailabilityZone"] == other
    hosts.wait_for(second, '"event":"resume"')
    hosts.wait_for(second, '"event":"saved"')
    assert "left: notice" in hosts.console(first)

    # Without a notice: the next one takes the same volume.
    hosts.control.interrupt(second["InstanceId"], notice=False)
    third = hosts.instance(fleet, other_than=(first["InstanceId"], second["InstanceId"]))
    hosts.wait_for(third, '"event":"resume"')
    hosts.wait(lambda: hosts.record.training.state == FINISHED, "the end", lambda: hosts.console(third))
    record = hosts.record
    assert record.training.exit_code == 0
    assert record.training.interruptions == 1
    assert record.volume is not None
    assert [volume["VolumeId"] for volume in hosts.volumes()] == [record.volume.id]
    assert record.volume.zone == other
    model = (
        hosts.session.client("s3")
        .get_object(Bucket=hosts.bucket, Key=f"runs/{hosts.run}/output/model.tar.gz")["Body"]
        .read()
    )
    with tarfile.open(fileobj=io.BytesIO(model)) as archive:
        found = archive.extractfile("./total")
        assert found is not None
        assert found.read().decode() == str(sum(range(150)))
