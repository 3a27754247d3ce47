"""Something that is no node reaches for the ports of a run's nodes.

Who: code of any run that has become root on its instance, with every credential that the instance gets. A launcher in
the wrong hands. Another machine in the same VPC.

With what: it opens the nodes' security group, puts itself into it, or launches an instance there.

What it would gain: torchrun's rendezvous, NCCL and gloo know no password. One that connects can end a training, and
read or replace what the ranks exchange.
"""

from __future__ import annotations

from typing import Any

import pytest

from .policies import ACCOUNT, REGION, Policies
from .test_instance_binding import PRINCIPALS, arn, tags

LAUNCHING = ("LauncherRole", "ControllerRole")


@pytest.fixture
def groups(policies_with_everything: Policies) -> dict[str, Any]:
    found: dict[str, Any] = policies_with_everything.templates.resources("AWS::EC2::SecurityGroup")
    return found


def test_no_rule_lets_an_address_in(policies_with_everything: Policies, groups: dict[str, Any]) -> None:
    assert len(groups) == 2
    assert not any("SecurityGroupIngress" in group["Properties"] for group in groups.values())
    rule = policies_with_everything.templates.only("AWS::EC2::SecurityGroupIngress")
    assert rule["SourceSecurityGroupId"] == rule["GroupId"]
    assert not {"CidrIp", "CidrIpv6", "SourcePrefixListId"} & rule.keys()


@pytest.mark.parametrize("principal", [*PRINCIPALS, *LAUNCHING])
def test_nothing_of_the_deployment_opens_a_group_or_puts_an_instance_into_one(
    policies_with_everything: Policies, principal: str
) -> None:
    context = {**PRINCIPALS.get(principal, {"aws:RequestedRegion": REGION}), **tags("ours")}
    for action, kind in {
        "ec2:AuthorizeSecurityGroupIngress": "security-group",
        "ec2:AuthorizeSecurityGroupEgress": "security-group",
        "ec2:ModifyNetworkInterfaceAttribute": "network-interface",
        "ec2:ModifyInstanceAttribute": "instance",
        "ec2:AttachNetworkInterface": "instance",
    }.items():
        assert not policies_with_everything.allows(principal, action, arn(kind), context), action


@pytest.mark.parametrize("principal", [*PRINCIPALS, *LAUNCHING])
def test_nothing_is_launched_in_groups_but_by_functions_from_the_deployments_template(
    policies_with_everything: Policies, groups: dict[str, Any], principal: str
) -> None:
    [nodes] = (name for name in groups if name.startswith("Nodes"))
    [template] = policies_with_everything.templates.resources("AWS::EC2::LaunchTemplate")
    context = PRINCIPALS.get(principal, {"aws:RequestedRegion": REGION})

    def may(group: str, template: str) -> bool:
        named = {"ec2:LaunchTemplate": f"arn:aws:ec2:{REGION}:{ACCOUNT}:launch-template/{template}"}
        resource = arn("security-group", group)
        return policies_with_everything.allows(principal, "ec2:RunInstances", resource, {**context, **named})

    assert may(nodes, template) is (principal in LAUNCHING)
    assert not may(nodes, "lt-0123456789abcdef0")
    assert not may("sg-0123456789abcdef0", template)
