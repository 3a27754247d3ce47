"""ministack's EC2, with networks, security groups, public images and launch templates."""

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
