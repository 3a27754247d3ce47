"""The network: small, without anything that bills while idle, or an existing one without a question to AWS."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_constructs.network import ExistingNetwork, Network

from .conftest import EVERYTHING_SET, synthesize
from .test_permissions import listed, statements_of, text_of

if TYPE_CHECKING:
    from aws_cdk import Stack

    from .conftest import Templates

VPC = {name: value for name, value in EVERYTHING_SET.items() if name.startswith("vpc_")}
IN_EUROPE = {**VPC, "vpc_availability_zones": ["eu-west-1a", "eu-west-1b"]}
ENVIRONMENTS: list[dict[str, Any]] = [
    {"account": account, "region": region, **network}
    for account, (region, vpc) in product(
        (None, "111122223333"), ((None, VPC), ("us-west-1", VPC), ("eu-west-1", IN_EUROPE))
    )
    for network in ({}, vpc, {"ec2_fleets": False})
]


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


@pytest.mark.long
@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=lambda settings: "-".join(map(str, settings)))
def test_no_settings_make_a_synth_ask_aws(settings: dict[str, Any], tmp_path: Path) -> None:
    """What the CDK does not know at synth is in the manifest as missing; the CLI asks AWS for it, and begins anew."""
    manifest = json.loads((synthesize(tmp_path, settings, judged=False) / "manifest.json").read_text())
    assert "missing" not in manifest


def test_a_network_in_a_stack_of_any_app_asks_nothing(tmp_path: Path) -> None:
    from aws_cdk import App, Environment, Stack

    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Test", env=Environment(account="111122223333", region="eu-west-1"))
    Network(stack, "Network", availability_zones=["eu-west-1a", "eu-west-1b"])
    app.synth()
    assert "missing" not in json.loads((tmp_path / "manifest.json").read_text())


def test_the_created_network_has_a_way_out_in_each_zone_and_its_endpoints_serve_all(templates: Templates) -> None:
    routes = [route["Properties"] for route in templates.resources("AWS::EC2::Route").values()]
    assert [route["DestinationCidrBlock"] for route in routes] == ["0.0.0.0/0"] * 3
    [gateway] = templates.resources("AWS::EC2::InternetGateway")
    assert [route["GatewayId"] for route in routes] == [{"Ref": gateway}] * 3
    tables = [{"Ref": name} for name in templates.resources("AWS::EC2::RouteTable")]
    assert [route["RouteTableId"] for route in routes] == tables
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint").values():
        assert endpoint["Properties"]["RouteTableIds"] == tables
    subnets = [subnet["Properties"]["CidrBlock"] for subnet in templates.resources("AWS::EC2::Subnet").values()]
    assert subnets == ["10.73.0.0/24", "10.73.1.0/24", "10.73.2.0/24"]


def test_an_existing_network_is_used_by_its_ids(templates_with_everything: Templates) -> None:
    for kind in ("AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::InternetGateway"):
        assert templates_with_everything.resources(kind) == {}
    groups = templates_with_everything.resources("AWS::EC2::SecurityGroup")
    assert {name.rstrip("0123456789ABCDEF") for name in groups} == {"NetworkInstanceGroup", "NodesGroup"}
    assert {group["Properties"]["VpcId"] for group in groups.values()} == {"vpc-0123456789abcdef0"}


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


class TestNodes:
    """What the nodes of a run have beside the network of an instance that trains alone."""

    def test_they_reach_each_other_and_nothing_else_reaches_them(self, templates: Templates) -> None:
        [group] = (name for name in templates.resources("AWS::EC2::SecurityGroup") if name.startswith("Nodes"))
        itself = {"Fn::GetAtt": [group, "GroupId"]}
        of_all_protocols = {"GroupId": itself, "IpProtocol": "-1", "Description": "Between nodes"}
        assert templates.only("AWS::EC2::SecurityGroupIngress") == {**of_all_protocols, "SourceSecurityGroupId": itself}
        assert templates.only("AWS::EC2::SecurityGroupEgress") == {
            **of_all_protocols,
            "DestinationSecurityGroupId": itself,
        }
        properties = templates.resources("AWS::EC2::SecurityGroup")[group]["Properties"]
        assert "SecurityGroupIngress" not in properties
        assert [rule["CidrIp"] for rule in properties["SecurityGroupEgress"]] == ["127.0.0.1/32"], (
            "without a rule of its own EC2 gives it a way out to everywhere, past the network of a team that closed it"
        )

    def test_an_instance_that_trains_alone_is_not_in_their_group(self, templates: Templates) -> None:
        data = templates.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
        [group] = data["SecurityGroupIds"]
        assert text_of(group).startswith("<NetworkInstanceGroup")

    def test_each_subnet_has_a_cluster_placement_group(
        self, templates: Templates, templates_with_everything: Templates
    ) -> None:
        for of, subnets in ((templates, 3), (templates_with_everything, 2)):
            groups = of.resources("AWS::EC2::PlacementGroup")
            assert [group["Properties"]["Strategy"] for group in groups.values()] == ["cluster"] * subnets
            tags = [
                {tag["Key"]: text_of(tag["Value"]) for tag in group["Properties"]["Tags"]} for group in groups.values()
            ]
            assert {each["spotkeep:deployment"] for each in tags} == {"spotkeep" if of is templates else "lab"}
            assert len({each["spotkeep:subnet"] for each in tags}) == subnets

    def test_functions_launch_in_these_groups_and_in_no_others(self, templates: Templates) -> None:
        for function in ("Launcher", "Controller"):
            [on_all_resources] = [
                statement
                for statement in statements_of(templates, f"{function}Fleets")
                if listed(statement["Action"]) == ["ec2:RunInstances"] and len(listed(statement["Resource"])) > 1
            ]
            named = [text_of(resource).rpartition(":")[2] for resource in listed(on_all_resources["Resource"])]
            groups = [name for name in named if "-group/" in name]
            assert [name.partition("/")[0] for name in groups] == ["placement-group"] * 3 + ["security-group"] * 2
            assert not [name for name in groups if "*" in name]
            assert on_all_resources["Condition"]["ArnEquals"].keys() == {"ec2:LaunchTemplate"}
