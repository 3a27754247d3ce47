"""The network: small, without anything that bills while idle, or an existing one without a question to AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_constructs.network import ExistingNetwork, Network

if TYPE_CHECKING:
    from aws_cdk import Stack

    from .conftest import Templates


def test_nothing_in_it_bills_while_idle(templates: Templates) -> None:
    for kind in ("AWS::EC2::NatGateway", "AWS::EC2::EIP", "AWS::EC2::VPNGateway"):
        assert templates.resources(kind) == {}
    kinds = {
        endpoint["Properties"].get("VpcEndpointType")
        for endpoint in templates.resources("AWS::EC2::VPCEndpoint").values()
    }
    assert kinds == {"Gateway"}


def test_it_spans_the_regions_first_zones_without_a_look_up(templates: Templates) -> None:
    zones = [subnet["Properties"]["AvailabilityZone"] for subnet in templates.resources("AWS::EC2::Subnet").values()]
    assert zones == [{"Fn::Select": [index, {"Fn::GetAZs": ""}]} for index in range(3)]


def test_an_existing_network_is_used_by_its_ids(templates_with_everything: Templates) -> None:
    for kind in ("AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::InternetGateway"):
        assert templates_with_everything.resources(kind) == {}
    assert templates_with_everything.only("AWS::EC2::SecurityGroup")["VpcId"] == "vpc-0123456789abcdef0"


def test_an_existing_security_group_is_used_as_it_is(stack: Stack) -> None:
    network = Network(
        stack,
        "Network",
        existing=ExistingNetwork(
            vpc_id="vpc-0123456789abcdef0",
            subnet_ids=["subnet-0123456789abcdef0"],
            availability_zones=["eu-west-1a"],
            security_group_id="sg-0123456789abcdef0",
        ),
    )
    assert network.security_group.security_group_id == "sg-0123456789abcdef0"
    assert [subnet.availability_zone for subnet in network.subnets] == ["eu-west-1a"]
