"""EC2's client seam on the local EC2: what AWS says one way or another, or not at once, is understood."""

from __future__ import annotations

import base64
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_fleet.user_data import BootInputs, user_data
from spotkeep_jobs.backends.ec2.ec2_api import BotoEc2Api, root_volume
from spotkeep_jobs.backends.ec2.facts import FleetEvent, FleetEventKind
from spotkeep_jobs.backends.ec2.history import FleetEnding
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from spotkeep_local.ec2.market import PoolChange
from spotkeep_local.fleet_control import FleetControl
from spotkeep_local.lifecycle import LocalAws

from .world import World, asked

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Region:
    """The local EC2, without capacity: no instance boots."""

    def __init__(self, local: LocalAws) -> None:
        self.client = local.session().client("ec2")
        self.control = FleetControl(local)
        self.api = BotoEc2Api(lambda: self.client)
        zones = [zone["ZoneName"] for zone in self.client.describe_availability_zones()["AvailabilityZones"]]
        self.control.script_market([PoolChange(zone=zone, capacity=0) for zone in zones])
        made = self.client.create_launch_template(
            LaunchTemplateName=f"template-{uuid.uuid4().hex[:8]}", LaunchTemplateData={"ImageId": "ami-1"}
        )
        self.subnet = self.client.describe_subnets()["Subnets"][0]["SubnetId"]
        self.template = str(made["LaunchTemplate"]["LaunchTemplateId"])

    def fleet(self, *, version: str = "1") -> str:
        """Create a fleet, which finds no capacity."""
        specification = {"LaunchTemplateId": self.template, "Version": version}
        overrides = [{"InstanceType": "m5.large", "AvailabilityZone": "us-east-1a"}]
        return self.api.create_fleet(
            {
                "ClientToken": uuid.uuid4().hex,
                "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
                "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
            }
        )

    def counted(self) -> Counter[str]:
        """The calls to EC2 from now on, by operation."""
        calls: Counter[str] = Counter()
        # For the life of this client, which is the test's own.
        self.client.meta.events.register(
            "before-call.ec2", lambda model, **_: calls.update([model.name]), unique_id=uuid.uuid4().hex
        )
        return calls

    def asked(self) -> dict[str, Any]:
        """What a launch asks for, with a token of its own."""
        return asked(template_id=self.template, subnet_id=self.subnet, token=uuid.uuid4().hex[:16])

    def tidy_up(self) -> None:
        self.control.unseen_for(0)
        self.control.script_market([])
        live = [{"Name": "fleet-state", "Values": ["active"]}]
        if fleets := [fleet["FleetId"] for fleet in self.client.describe_fleets(Filters=live)["Fleets"]]:
            self.client.delete_fleets(FleetIds=fleets, TerminateInstances=True)


@pytest.fixture
def region(local_aws: LocalAws) -> Iterator[Region]:
    region = Region(local_aws)
    yield region
    region.tidy_up()


def until(happened: Callable[[], bool]) -> None:
    for _ in range(600):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize("as_in_examples", [False, True])
def test_the_history_of_a_fleet_is_understood_in_both_spellings(region: Region, *, as_in_examples: bool) -> None:
    examples = {"fleet-change": "fleetRequestChange", "service-error": "error"}

    def spell_as_in_examples(parsed: dict[str, Any], **_: Any) -> None:
        for record in parsed.get("HistoryRecords", ()):
            record["EventType"] = examples.get(record["EventType"], record["EventType"])

    if as_in_examples:
        # For the life of this client, which is the test's own.
        region.client.meta.events.register("after-call.ec2.DescribeFleetHistory", spell_as_in_examples)
    fleet = region.fleet()

    def errors() -> list[FleetEvent]:
        return [event for event in region.api.events(fleet, since=LONG_AGO) if event.kind is FleetEventKind.ERROR]

    until(lambda: bool(errors()))
    spelled = {
        record["EventType"]
        for record in region.client.describe_fleet_history(FleetId=fleet, StartTime=LONG_AGO)["HistoryRecords"]
    }
    assert spelled == ({"fleetRequestChange", "error"} if as_in_examples else {"fleet-change", "service-error"})
    kinds = [(event.kind, event.sub_type) for event in region.api.events(fleet, since=LONG_AGO)]
    assert kinds[:2] == [(FleetEventKind.FLEET, "submitted"), (FleetEventKind.FLEET, "active")]
    (error,) = errors()
    assert error.launches_nothing
    assert "no Spot capacity" in error.description


def test_whose_a_batch_of_fleets_is_is_one_call(region: Region) -> None:
    fleets = [region.fleet() for _ in range(3)]
    calls = region.counted()
    assert [fleet.id for fleet in region.api.fleets_by_id(fleets)] == sorted(fleets)
    assert calls == Counter(DescribeFleets=1)
    unknown = "fleet-00000000-0000-4000-8000-000000000000"
    assert {fleet.id for fleet in region.api.fleets_by_id([*fleets, unknown])} == set(fleets)
    assert region.api.fleet(unknown) is None


# The version of the launch template that a run's own one is made of


def deploy(region: Region, bundle_uri: str) -> str:
    """Make a version as a deployment does. Gives its number."""
    boot = BootInputs(
        bundle_uri=bundle_uri,
        bundle_sha256="",
        region="us-east-1",
        run_table="",
        deployment="spotkeep",
        credentials_function="",
    )
    made = region.client.create_launch_template_version(
        LaunchTemplateId=region.template,
        VersionDescription="deployed",
        LaunchTemplateData={"ImageId": "ami-1", "UserData": base64.b64encode(user_data(boot).encode()).decode()},
    )
    return str(made["LaunchTemplateVersion"]["VersionNumber"])


def test_a_function_of_before_a_deployment_launches_with_its_own_bundle_until_it_is_updated(region: Region) -> None:
    earlier, later, unknown = (f"s3://checkpoints/bundles/{name}/spotkeep.pyz" for name in ("one", "two", "three"))
    deploy(region, earlier)
    deploy(region, later)

    def booted(bundle_uri: str) -> str:
        api = BotoEc2Api(lambda: region.client, bundle_uri=bundle_uri)
        version = api.make_template_version(
            region.template, run="first", token=uuid.uuid4().hex, tags={"spotkeep:deployment": "spotkeep"}
        )
        [made] = region.client.describe_launch_template_versions(LaunchTemplateId=region.template, Versions=[version])[
            "LaunchTemplateVersions"
        ]
        return base64.b64decode(made["LaunchTemplateData"]["UserData"]).decode()

    assert earlier in booted(earlier)
    assert later in booted(later)
    with pytest.raises(AwsRefusedError, match="deploy the whole app again"):
        booted(unknown)


# What was just created may be NotFound for a while


def versions(region: Region) -> int:
    return len(
        region.client.describe_launch_template_versions(LaunchTemplateId=region.template)["LaunchTemplateVersions"]
    )


def test_a_version_that_ec2_does_not_know_yet_is_busy_and_the_next_call_goes_on_with_it(region: Region) -> None:
    world, request = World(ec2=region.api), region.asked()
    region.control.unseen_for(3600)
    with pytest.raises(AwsBusyError, match="It was made a moment ago"):
        world.jobs.create(request)
    assert world.jobs.observe("count-1") is None
    region.control.unseen_for(0)
    world.passes(0.5)
    fleet_id = world.jobs.create(request)
    assert versions(region) == 2
    [fleet] = region.client.describe_fleets(FleetIds=[fleet_id])["Fleets"]
    assert fleet["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] == "2"


def test_a_version_that_ec2_does_not_know_after_a_minute_is_refused_and_deleted(region: Region) -> None:
    world, request = World(ec2=region.api), region.asked()
    region.control.unseen_for(3600)
    with pytest.raises(AwsBusyError):
        world.jobs.create(request)
    world.passes(1)
    with pytest.raises(AwsRefusedError, match="Could not find the specified version 2"):
        world.jobs.create(request)
    assert versions(region) == 1


def test_a_fleet_that_ec2_does_not_know_yet_is_no_end_and_is_still_deleted(region: Region) -> None:
    world, request = World(ec2=region.api), region.asked()
    region.control.unseen_for(3600)
    with pytest.raises(AwsBusyError):
        world.jobs.create(request)
    region.control.unseen_for(0)
    # A launch that was cut short is completed much later: what counts is when the fleet was made.
    world.passes(30)
    fleet_id = world.jobs.create(request)
    region.control.unseen_for(3600)
    world.passes(9)
    job = world.jobs.settle("count-1")
    assert job is not None
    assert (job.phase, world.records.past["count", 1].ending) == (JobPhase.WAITING, None)
    assert world.jobs.stop("count-1")
    assert world.jobs.settle("count-1") is not None
    region.control.unseen_for(0)
    job = world.jobs.settle("count-1")
    assert job is not None
    assert job.phase is JobPhase.STOPPING
    assert region.client.describe_fleets(FleetIds=[fleet_id])["Fleets"][0]["FleetState"].startswith("deleted")


def test_a_fleet_that_ec2_does_not_know_for_long_is_gone(region: Region) -> None:
    world, request = World(ec2=region.api), region.asked()
    world.jobs.create(request)
    region.control.unseen_for(3600)
    world.passes(11)
    world.jobs.settle("count-1")
    assert world.records.past["count", 1].ending is FleetEnding.FLEET_GONE


def test_a_root_volume_is_no_smaller_than_its_image() -> None:
    template = {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": 30}}]}
    image = {
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75, "Encrypted": False}},
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
            {"DeviceName": "/dev/sdc", "Ebs": {"VolumeSize": 500}},
        ],
    }
    assert root_volume(template, image=image) == {
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"Encrypted": True, "VolumeSize": 75}}]
    }
    assert root_volume(template, image={}) == {}, "of an image that EC2 does not show, the template's word holds"
