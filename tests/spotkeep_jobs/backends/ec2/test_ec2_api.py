"""The adapter of EC2's client: what AWS says one way or another, or not at once, is understood."""

from __future__ import annotations

import base64
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from spotkeep_fleet.user_data import BootInputs, user_data
from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api, root_volume
from spotkeep_jobs.backends.ec2.facts import FleetEventKind, NodesTemplate, ProvisionedVolume
from spotkeep_jobs.backends.ec2.history import FleetEnding
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from tests.models.clock import NOON
from tests.models.ec2 import TEMPLATE

from .world import World, asked


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("change", "error"), [("fleet-change", "service-error"), ("fleetRequestChange", "error")], ids=["guide", "examples"]
)
def test_the_history_of_a_fleet_is_understood_in_both_spellings(world: World, change: str, error: str) -> None:
    world.jobs.create(asked())
    world.ec2.fleets["fleet-1"].history = [
        {"Timestamp": NOON + timedelta(seconds=second), "EventType": event, "EventInformation": information}
        for second, (event, information) in enumerate(
            [
                (change, {"EventSubType": "submitted"}),
                (change, {"EventSubType": "active"}),
                (error, {"EventSubType": "spotInstanceCountLimitExceeded", "EventDescription": "no Spot capacity"}),
            ]
        )
    ]
    events = world.api.events("fleet-1", since=NOON)
    assert [(event.kind, event.sub_type) for event in events[:2]] == [
        (FleetEventKind.FLEET, "submitted"), (FleetEventKind.FLEET, "active"),
    ]  # fmt: skip
    assert (events[2].kind, events[2].description) == (FleetEventKind.ERROR, "no Spot capacity")
    assert events[2].launches_nothing


def test_whose_a_batch_of_fleets_is_is_one_call(world: World) -> None:
    world.ec2.page_size = 100
    for attempt in (1, 2, 3):
        world.jobs.create(asked(attempt))
    fleets = ["fleet-1", "fleet-2", "fleet-3"]
    world.faults.calls.clear()
    assert [fleet.id for fleet in world.api.fleets_by_id(fleets)] == fleets
    assert Counter(world.faults.calls) == Counter(DescribeFleets=1)
    assert [fleet.id for fleet in world.api.fleets_by_id([*fleets, "fleet-0"])] == fleets
    assert world.api.fleet("fleet-0") is None


@pytest.mark.parametrize(("name", "root"), [("count-1-2", "count-1-2 (root)"), ("n" * 256, "n" * 249 + " (root)")])
def test_the_root_volume_has_the_users_tags_and_nothing_is_tagged_that_ec2_may_not_tag_in_a_replacement(
    world: World, name: str, root: str
) -> None:
    own = {"spotkeep:run": "count-1", "spotkeep:attempt": "2", "spotkeep:checkpoints": "runs/count-1/checkpoints"}
    of_all = {"spotkeep:deployment": "spotkeep", "spotkeep:owner": "ada", "team": "vision", "Name": name}
    world.api.make_template_version(TEMPLATE, run="count-1", token="t", tags={**own, **of_all})
    data = world.ec2.versions[max(world.ec2.versions)]["LaunchTemplateData"]
    given = {
        each["ResourceType"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]} for each in data["TagSpecifications"]
    }
    assert given == {"instance": {**own, **of_all}, "volume": {**of_all, "Name": root}}


# The version of the launch template that a run's own one is made of


def deploy(world: World, bundle_uri: str) -> None:
    """Make a version as a deployment does."""
    boot = BootInputs(
        bundle_uri=bundle_uri,
        bundle_sha256="",
        region="us-east-1",
        run_table="",
        deployment="spotkeep",
        credentials_function="",
    )
    world.ec2.create_launch_template_version(
        LaunchTemplateId=TEMPLATE,
        SourceVersion="1",
        ClientToken=bundle_uri,
        VersionDescription="deployed",
        LaunchTemplateData={"UserData": base64.b64encode(user_data(boot).encode()).decode()},
    )


def test_a_function_of_before_a_deployment_launches_with_its_own_bundle_until_it_is_updated(world: World) -> None:
    earlier, later, unknown = (f"s3://checkpoints/bundles/{name}/spotkeep.pyz" for name in ("one", "two", "three"))
    deploy(world, earlier)
    deploy(world, later)

    def booted(bundle_uri: str) -> str:
        api = Ec2Api(lambda: world.ec2, bundle_uri=bundle_uri)
        tags = {"spotkeep:deployment": "spotkeep"}
        version = api.make_template_version(TEMPLATE, run="first", token=f"token of {bundle_uri}", tags=tags)
        made: str = world.ec2.versions[int(version.number)]["LaunchTemplateData"]["UserData"]
        return base64.b64decode(made).decode()

    assert earlier in booted(earlier)
    assert later in booted(later)
    with pytest.raises(AwsRefusedError, match="deploy the whole app again"):
        booted(unknown)


# The version of nodes


def nodes_template(world: World, nodes: NodesTemplate, *instance_types: str) -> dict[str, Any]:
    world.ec2.versions[1]["LaunchTemplateData"] |= {
        "SecurityGroupIds": ["sg-deployed"],
        "MetadataOptions": {"HttpTokens": "required", "State": "applied"},
    }
    world.api.make_template_version(
        TEMPLATE, run="count", token="t", tags={"Name": "count-1"}, nodes=nodes, instance_types=instance_types
    )
    made: dict[str, Any] = world.ec2.versions[2]["LaunchTemplateData"]
    return made


def test_nodes_are_in_their_own_security_group_beside_the_deployed_ones(world: World) -> None:
    made = nodes_template(world, NodesTemplate(security_group_id="sg-nodes"))
    assert made["SecurityGroupIds"] == ["sg-deployed", "sg-nodes"]
    assert "NetworkInterfaces" not in made


@pytest.mark.parametrize(("types", "cards"), [(("p4d.24xlarge",), 4), (("p5.48xlarge", "p4d.24xlarge"), 4), ((), 1)])
def test_each_network_card_that_all_types_have_gets_an_adapter(
    world: World, types: tuple[str, ...], cards: int
) -> None:
    world.ec2.types = [
        {"InstanceType": name, "NetworkInfo": {"EfaInfo": {"MaximumEfaInterfaces": count}}}
        for name, count in (("p4d.24xlarge", 4), ("p5.48xlarge", 32), ("g5.8xlarge", 1))
    ]
    made = nodes_template(world, NodesTemplate(security_group_id="sg-nodes", efa=True), *types)
    interfaces = made["NetworkInterfaces"]
    assert [each["NetworkCardIndex"] for each in interfaces] == list(range(cards))
    assert [each["InterfaceType"] for each in interfaces] == ["efa", *["efa-only"] * (cards - 1)]
    assert [each["DeviceIndex"] for each in interfaces] == [0, *[1] * (cards - 1)]
    assert all(each["Groups"] == ["sg-deployed", "sg-nodes"] for each in interfaces)
    assert "SecurityGroupIds" not in made, "EC2 takes them for the instance or for its interfaces"
    assert (made["ImageId"], made["MetadataOptions"]) == ("ami-1", {"HttpTokens": "required"})


# What was just created may be NotFound for a while


def test_a_version_that_ec2_does_not_know_yet_is_busy_and_the_next_call_goes_on_with_it(world: World) -> None:
    world.ec2.unseen = True
    with pytest.raises(AwsBusyError, match="It was made a moment ago"):
        world.jobs.create(asked())
    assert world.jobs.observe("count-1") is None
    world.ec2.unseen = False
    world.passes(0.5)
    fleet_id = world.jobs.create(asked())
    assert list(world.ec2.versions) == [1, 2]
    assert world.ec2.fleets[fleet_id].template_version == "2"


def test_a_version_that_ec2_does_not_know_after_a_minute_is_refused_and_deleted(world: World) -> None:
    world.ec2.unseen = True
    with pytest.raises(AwsBusyError):
        world.jobs.create(asked())
    world.passes(1)
    with pytest.raises(AwsRefusedError, match="VersionNotFound"):
        world.jobs.create(asked())
    assert list(world.ec2.versions) == [1]


def test_a_fleet_that_ec2_does_not_know_yet_is_no_end_and_is_still_deleted(world: World) -> None:
    world.ec2.unseen = True
    with pytest.raises(AwsBusyError):
        world.jobs.create(asked())
    world.ec2.unseen = False
    # A launch that was cut short is completed much later: what counts is when the fleet was made.
    world.passes(30)
    world.jobs.create(asked())
    world.ec2.unseen = True
    world.passes(9)
    job = world.jobs.settle("count-1")
    assert (job.phase, world.history.ending) == (JobPhase.WAITING, None)
    assert world.jobs.stop("count-1")
    assert world.jobs.settle("count-1") is not None
    assert world.fleet_state == "active"
    world.ec2.unseen = False
    job = world.jobs.settle("count-1")
    assert job.phase is JobPhase.STOPPING
    assert world.fleet_state == "deleted"


def test_a_fleet_that_ec2_does_not_know_for_long_is_gone(world: World) -> None:
    world.jobs.create(asked())
    world.ec2.unseen = True
    world.passes(11)
    world.jobs.settle("count-1")
    assert world.history.ending is FleetEnding.FLEET_GONE


def test_a_root_volume_is_no_smaller_than_its_image() -> None:
    wanted = {"Encrypted": True, "Throughput": 250}
    template = {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {**wanted, "VolumeSize": 30}}]}
    image = {
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75, "Encrypted": False}},
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
            {"DeviceName": "/dev/sdc", "Ebs": {"VolumeSize": 500}},
        ],
    }
    assert root_volume(template, image=image) == {
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {**wanted, "VolumeSize": 75}}]
    }
    assert root_volume(template, image={}) == {}, "of an image that EC2 does not show, the template's word holds"


def test_of_an_image_that_ec2_does_not_show_the_templates_root_volume_is_billed(world: World) -> None:
    made = world.api.make_template_version(TEMPLATE, run="first", token="t", tags={"spotkeep:deployment": "spotkeep"})
    assert made.root_volume == ProvisionedVolume(size_gb=40, type="gp3", throughput_mib_s=250)


@pytest.mark.parametrize("mappings", [[], [{"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 8}}] * 2])
def test_of_a_template_that_is_not_as_deployed_no_root_volume_is_known(
    world: World, mappings: list[dict[str, Any]]
) -> None:
    world.ec2.versions[1]["LaunchTemplateData"]["BlockDeviceMappings"] = mappings
    made = world.api.make_template_version(TEMPLATE, run="first", token="t", tags={"spotkeep:deployment": "spotkeep"})
    assert made.root_volume is None
