"""ministack's EC2, with subnets, public images and launch templates."""

from __future__ import annotations

from typing import Any

from ministack.services import ec2 as _ec2  # type: ignore[import-untyped]
from ministack.services import ssm as _ssm

_AMAZON = "137112412989"


def subnets() -> list[dict[str, Any]]:
    """Return the region's subnets, with SubnetId, VpcId, AvailabilityZone, CidrBlock and DefaultForAz."""
    _ec2._ensure_defaults_initialized()
    return list(_ec2._subnets.values())


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
