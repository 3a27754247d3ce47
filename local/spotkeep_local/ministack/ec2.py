"""ministack's EC2, with networks, security groups, placement groups, public images and launch templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ministack.services import ec2 as _ec2  # type: ignore[import-untyped]
from ministack.services import ssm as _ssm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_AMAZON = "137112412989"
_DATA = "LaunchTemplateData."


def subnets() -> list[dict[str, Any]]:
    """Return the region's subnets, with SubnetId, VpcId, AvailabilityZone, CidrBlock and DefaultForAz."""
    _ec2._ensure_defaults_initialized()
    return list(_ec2._subnets.values())


def vpc_addresses(vpc_id: str) -> str:
    """Return the network of a VPC's addresses, for example `172.31.0.0/16`."""
    addresses: str = _ec2._vpcs[vpc_id]["CidrBlock"]
    return addresses


def security_groups() -> list[dict[str, Any]]:
    """Return the region's security groups, as DescribeSecurityGroups has them."""
    _ec2._ensure_defaults_initialized()
    return list(_ec2._security_groups.values())


def has_placement_group(name: str) -> bool:
    """Return whether the region has a placement group of this name."""
    return name in _ec2._placement_groups


def add_group_rule(rule: Mapping[str, Any], *, outbound: bool) -> str:
    """Add a rule to a security group, as a resource of CloudFormation describes it. Returns the rule's id.

    Args:
        rule: The properties of an AWS::EC2::SecurityGroupIngress or AWS::EC2::SecurityGroupEgress.
        outbound: True for traffic that leaves.

    Raises:
        ValueError: The group does not exist, or has the rule.
    """
    # Late: this module of ministack's imports every service, which takes longer than all of the start.
    from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]

    group_id = rule["GroupId"]
    group = _ec2._security_groups.get(group_id)
    if group is None:
        raise ValueError(f"The security group {group_id!r} does not exist")
    (permission,) = provisioners._ec2_sg_permissions([rule])
    rules = group[_rules(outbound=outbound)]
    if any(_ec2._rules_match(permission, each) for each in rules):
        raise ValueError(f"The security group {group_id!r} already has the rule {permission}")
    rule_id: str = _ec2._sg_rule_id(group_id, outbound, permission)
    rules.append({**permission, "SecurityGroupRuleId": rule_id})
    return rule_id


def remove_group_rule(rule_id: str, *, group_id: str, outbound: bool) -> None:
    """Remove a rule from a security group. It does nothing when group or rule does not exist."""
    group = _ec2._security_groups.get(group_id)
    if group is not None:
        rules = group[_rules(outbound=outbound)]
        rules[:] = [each for each in rules if each.get("SecurityGroupRuleId") != rule_id]


def _rules(*, outbound: bool) -> str:
    return "IpPermissionsEgress" if outbound else "IpPermissions"


def placement_group(name: str) -> dict[str, Any]:
    """Return a placement group with GroupName, GroupId, GroupArn, Strategy and State.

    Raises:
        KeyError: There is none of this name.
    """
    found: dict[str, Any] = _ec2._placement_groups[name]
    return found


def add_placement_group(name: str, *, strategy: str, tags: Mapping[str, str]) -> None:
    """Make a placement group.

    Args:
        name: A name that no placement group has.
        strategy: `cluster`, `spread` or `partition`.
        tags: Its tags.
    """
    request = {"GroupName": [name], "Strategy": [strategy], "TagSpecification.1.ResourceType": ["placement-group"]}
    for number, (key, value) in enumerate(tags.items(), start=1):
        tag = f"TagSpecification.1.Tag.{number}"
        request |= {f"{tag}.Key": [key], f"{tag}.Value": [value]}
    _ec2._create_placement_group(request)


def remove_placement_group(name: str) -> None:
    """Remove a placement group. It does nothing when there is none of this name."""
    _ec2._delete_placement_group({"GroupName": [name]})


def add_public_image(image_id: str, *, parameter: str, name: str, root_device: str) -> None:
    """Make an image of Amazon's public and its id readable from a public parameter of the Parameter Store.

    Args:
        image_id: Its id.
        parameter: The parameter's name.
        name: The name of the image.
        root_device: Its root device.
    """
    _ec2._STUB_AMIS.append((image_id, name, name, "", root_device, _AMAZON, "amazon"))
    _ssm._PUBLIC_AMI_PARAMETERS[parameter] = image_id


def keep_whole_template_data(
    *, read: Callable[[Mapping[str, str]], dict[str, Any]], write: Callable[[Mapping[str, Any]], str]
) -> None:
    """Let versions of launch templates keep all of their data. ministack alone forgets placement and EFA.

    Args:
        read: Takes the parameters of LaunchTemplateData in a form. Returns the data.
        write: Returns the XML of data.
    """

    def read_data(parameters: Mapping[str, Any]) -> dict[str, Any]:
        below = {name: value for name, value in parameters.items() if name.startswith(_DATA)}
        return read({name.removeprefix(_DATA): str(_ec2._p(below, name)) for name in below})

    _ec2._parse_lt_data = read_data
    _ec2._lt_data_xml = write


def launch_template(*, template_id: str | None, name: str | None) -> dict[str, Any] | None:
    """Return a launch template with LaunchTemplateId, LaunchTemplateName, numbers, and `Versions` with their data."""
    found: dict[str, Any] | None = next(
        (
            template
            for template in _ec2._launch_templates.values()
            if template_id in (None, template["LaunchTemplateId"]) and name in (None, template["LaunchTemplateName"])
        ),
        None,
    )
    return found


def delete_template_version(template: dict[str, Any], version: dict[str, Any]) -> None:
    """Remove a version that is not the default one from a launch template that `launch_template` returned."""
    template["Versions"].remove(version)
    template["LatestVersionNumber"] = max(each["VersionNumber"] for each in template["Versions"])
