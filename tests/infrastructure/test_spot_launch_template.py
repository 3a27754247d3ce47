"""The launch template: encrypted, closed, with metadata that only a session token opens."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import Fn

from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.network import Network
from spotkeep_constructs.spot_launch_template import SpotLaunchTemplate

if TYPE_CHECKING:
    from aws_cdk import Stack

    from .conftest import Templates


def data_of(templates: Templates) -> dict[str, Any]:
    data: dict[str, Any] = templates.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    return data


def test_metadata_needs_a_token_and_shows_tags(templates: Templates) -> None:
    assert data_of(templates)["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
        "InstanceMetadataTags": "enabled",
    }


def test_the_root_volume_is_gp3_encrypted_and_leaves_with_the_instance(templates: Templates) -> None:
    (device,) = data_of(templates)["BlockDeviceMappings"]
    assert device == {
        "DeviceName": "/dev/xvda",
        "Ebs": {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": 100, "DeleteOnTermination": True},
    }
    assert data_of(templates)["EbsOptimized"] is True


def test_there_is_no_ssh_key_and_no_way_in(templates: Templates) -> None:
    assert "KeyName" not in data_of(templates)
    group = templates.only("AWS::EC2::SecurityGroup", stack="Compute")
    assert "SecurityGroupIngress" not in group
    assert templates.resources("AWS::EC2::SecurityGroupIngress") == {}


def test_a_shutdown_ends_the_instance(templates: Templates) -> None:
    assert data_of(templates)["InstanceInitiatedShutdownBehavior"] == "terminate"


def test_it_names_no_spot_options_because_a_fleet_refuses_them(templates: Templates) -> None:
    assert "InstanceMarketOptions" not in data_of(templates)
    assert "InstanceType" not in data_of(templates)


def test_instances_carry_the_deployment_as_a_tag(templates: Templates) -> None:
    specifications = {
        specification["ResourceType"]: specification["Tags"]
        for specification in data_of(templates)["TagSpecifications"]
    }
    for kind in ("instance", "volume"):
        assert {"Key": "spotkeep:deployment", "Value": "spotkeep"} in specifications[kind]


def test_the_ami_is_found_by_cloudformation_at_deployment(
    templates: Templates, templates_with_everything: Templates
) -> None:
    image = data_of(templates)["ImageId"]
    parameter = templates.by_stack["Compute"]["Parameters"][image["Ref"]]
    assert parameter == {
        "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
        "Default": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
    }
    assert data_of(templates_with_everything)["ImageId"] == "ami-0123456789abcdef0"


def test_overrides_are_every_type_in_every_zone(templates: Templates, templates_with_everything: Templates) -> None:
    value = templates_with_everything.by_stack["Compute"]["Outputs"]["SpotOverrides"]["Value"]
    overrides = {(entry["InstanceType"], entry["SubnetId"]) for entry in json.loads(value)}
    assert overrides == set(
        itertools.product(("c5.xlarge", "c6i.xlarge"), ("subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"))
    )
    text = json.dumps(templates.by_stack["Compute"]["Outputs"]["SpotOverrides"]["Value"])
    assert text.count("InstanceType") == 5 * 3


@pytest.mark.parametrize("types", [[], ["ml.m5.xlarge"], ["c5.xlarge", "c5.xlarge"], ["large"]])
def test_wrong_instance_types_are_refused(stack: Stack, types: list[str]) -> None:
    network = Network(stack, "Network", availability_zones=zones())
    with pytest.raises(PropertyError, match="must be EC2 instance types, each named once"):
        SpotLaunchTemplate(
            stack,
            "Spot",
            deployment="lab",
            network=network,
            instance_types=types,
            ami="ami-0123456789abcdef0",
            root_device="/dev/xvda",
            volume_gb=100,
        )


def test_a_volume_too_small_for_a_system_is_refused(stack: Stack) -> None:
    network = Network(stack, "Network", availability_zones=zones())
    with pytest.raises(PropertyError, match=r"volume_gb is too small .*found 4.*at least 8 GiB"):
        SpotLaunchTemplate(
            stack,
            "Spot",
            deployment="lab",
            network=network,
            instance_types=["c5.xlarge"],
            ami="ami-0123456789abcdef0",
            root_device="/dev/xvda",
            volume_gb=4,
        )


def zones() -> list[str]:
    return [Fn.select(index, Fn.get_azs()) for index in range(2)]
