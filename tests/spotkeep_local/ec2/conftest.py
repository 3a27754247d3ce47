"""The EC2 of the shared local AWS, as its clients see it, and tidied up after each test."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_local.control import FleetControl
from tests.models.granted import make_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spotkeep_local.lifecycle import LocalAws

ATTEMPTS = 1000
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
SLEEPER = "#!/bin/sh\necho READY\nexec sleep 600\n"
METADATA = """
LATEST="$AWS_EC2_METADATA_SERVICE_ENDPOINT/latest"
until T=$(curl -sSf -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 600" "$LATEST/api/token"); do sleep 0.1; done
metadata() { curl -sf -H "X-aws-ec2-metadata-token: $T" "$LATEST/meta-data/$1"; }
"""


def wait_until(condition: Callable[[], Any], *, seen: Callable[[], object] = str) -> Any:
    # Counted, not timed: on a busy machine seconds may pass between two attempts.
    for _ in range(ATTEMPTS):
        if found := condition():
            return found
        time.sleep(0.1)
    pytest.fail(f"waited in vain {seen()}".strip())


class Ec2:
    """What a test asks of EC2, in few words."""

    zones = ZONES
    metadata = METADATA

    def __init__(self, local: LocalAws) -> None:
        self.local = local
        self.client = local.session().client("ec2")
        self.control = FleetControl(local)
        self.wait_until = wait_until

    def template(self, user_data: str = SLEEPER, **data: Any) -> str:
        """A launch template's id."""
        data = {
            "ImageId": "ami-00000000000000001",
            "InstanceType": "m5.large",
            "UserData": base64.b64encode(user_data.encode()).decode(),
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            **data,
        }
        made = self.client.create_launch_template(
            LaunchTemplateName=f"template-{uuid.uuid4().hex[:8]}", LaunchTemplateData=data
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def fleet(
        self,
        template: str,
        *,
        zones: Sequence[str] = ZONES[:2],
        types: Sequence[str] = ("m5.large",),
        target: int = 1,
        spot: bool = True,
        overrides: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """A fleet's id."""
        request = {
            "Type": "maintain",
            "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
                    "Overrides": [
                        {"InstanceType": instance_type, "AvailabilityZone": zone, **(overrides or {})}
                        for instance_type in types
                        for zone in zones
                    ],
                }
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": target,
                "DefaultTargetCapacityType": "spot" if spot else "on-demand",
            },
            **more,
        }
        return str(self.client.create_fleet(**request)["FleetId"])

    def active(self, fleet: str) -> list[str]:
        found = self.client.describe_fleet_instances(FleetId=fleet)["ActiveInstances"]
        return [instance["InstanceId"] for instance in found]

    def instance(self, instance_id: str) -> dict[str, Any]:
        found = self.client.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        assert isinstance(found, dict)
        return found

    def state(self, instance_id: str) -> str:
        return str(self.instance(instance_id)["State"]["Name"])

    def running(self, fleet: str, *, other_than: Sequence[str] = ()) -> str:
        """Wait for an instance of a fleet to run."""

        def found() -> str | None:
            for instance_id in self.active(fleet):
                if instance_id not in other_than and self.state(instance_id) == "running":
                    return instance_id
            return None

        return str(wait_until(found))

    def run(self, user_data: str = SLEEPER, *, zone: str = ZONES[0], spot: bool = False, **data: Any) -> str:
        """Run one instance, and wait until it runs. Its fleet is deleted, so that nothing replaces it."""
        fleet = self.fleet(self.template(user_data, **data), zones=[zone], spot=spot)
        instance_id = self.running(fleet)
        self.client.delete_fleets(FleetIds=[fleet], TerminateInstances=False)
        return instance_id

    def console(self, instance_id: str) -> str:
        return str(self.client.get_console_output(InstanceId=instance_id).get("Output", ""))

    def wait_for_line(self, instance_id: str, line: str) -> None:
        wait_until(
            lambda: line in self.console(instance_id).splitlines(),
            seen=lambda: (
                f"for {line!r}; {self.control.instance_facts(instance_id)}; console: {self.console(instance_id)!r}"
            ),
        )

    def wait_for_state(self, instance_id: str, state: str) -> None:
        wait_until(lambda: self.state(instance_id) == state)

    def volume(self, *, zone: str = ZONES[0], **more: Any) -> str:
        """Create a volume, and wait until it is available."""
        made = self.client.create_volume(**({"AvailabilityZone": zone, "Size": 1, "VolumeType": "gp3"} | more))
        volume_id = str(made["VolumeId"])
        self.wait_for_volume(volume_id, "available")
        return volume_id

    def describe_volume(self, volume_id: str) -> dict[str, Any]:
        found = self.client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
        assert isinstance(found, dict)
        return found

    def wait_for_volume(self, volume_id: str, state: str) -> None:
        wait_until(lambda: self.describe_volume(volume_id)["State"] == state)

    def attachment_state(self, volume_id: str) -> str | None:
        attachments = self.describe_volume(volume_id)["Attachments"]
        return attachments[0]["State"] if attachments else None

    def attach(self, volume_id: str, instance_id: str, device: str = "/dev/sdf") -> None:
        """Attach a volume, and wait until it is."""
        self.client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device=device)
        wait_until(lambda: self.attachment_state(volume_id) == "attached")

    def history(self, fleet: str) -> list[str]:
        records = self.client.describe_fleet_history(FleetId=fleet, StartTime=0)["HistoryRecords"]
        return [record["EventInformation"]["EventSubType"] for record in records]

    def tidy_up(self) -> None:
        self.control.script_market([])
        active = [{"Name": "fleet-state", "Values": ["active"]}]
        fleets = [fleet["FleetId"] for fleet in self.client.describe_fleets(Filters=active)["Fleets"]]
        if fleets:
            self.client.delete_fleets(FleetIds=fleets, TerminateInstances=True)
        for reservation in self.client.describe_instances()["Reservations"]:
            for instance in reservation["Instances"]:
                if instance["State"]["Name"] in ("pending", "running"):
                    self.client.terminate_instances(InstanceIds=[instance["InstanceId"]])


@pytest.fixture(scope="session")
def shared_ec2(local_aws: LocalAws) -> Ec2:
    """One client for all tests: reading EC2's service model takes its time."""
    return Ec2(local_aws)


@pytest.fixture
def ec2(shared_ec2: Ec2) -> Iterator[Ec2]:
    yield shared_ec2
    shared_ec2.tidy_up()


@pytest.fixture
def hosts(ec2: Ec2) -> Ec2:
    """The same, on a machine where instances are hosts with block devices."""
    platform = ec2.control.platform()
    if platform.isolation != "namespace":
        pytest.skip(f"no hosts with block devices here: {platform.reason}")
    return ec2


class Events:
    """What rules for EC2's events put into a queue."""

    def __init__(self, local: LocalAws) -> None:
        self._sqs = local.session().client("sqs")
        self._events = local.session().client("events")
        name = f"ec2-{uuid.uuid4().hex[:8]}"
        self._queue, arn = make_queue(local.session(), name, service="events.amazonaws.com")
        self._rule = name
        self._events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.ec2", "aws.ec2fleet"]}))
        self._events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
        self.seen: list[dict[str, Any]] = []

    def _take(self) -> None:
        answer = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            self.seen.append(json.loads(message["Body"]))
            self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])

    def wait_for(self, detail_type: str, **detail: str) -> dict[str, Any]:
        """Wait for an event whose detail holds these; underscores stand for dashes."""
        wanted = {name.replace("_", "-"): value for name, value in detail.items()}

        def found() -> dict[str, Any] | None:
            self._take()
            for event in self.seen:
                if event["detail-type"] == detail_type and wanted.items() <= event["detail"].items():
                    return event
            return None

        event = wait_until(found)
        assert isinstance(event, dict)
        return event

    def close(self) -> None:
        self._events.remove_targets(Rule=self._rule, Ids=["queue"])
        self._events.delete_rule(Name=self._rule)
        self._sqs.delete_queue(QueueUrl=self._queue)


@pytest.fixture
def events(local_aws: LocalAws) -> Iterator[Events]:
    collected = Events(local_aws)
    yield collected
    collected.close()
