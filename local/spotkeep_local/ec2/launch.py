"""The way from a launch template and a fleet's override to an instance's record, and the versions of a template."""

from __future__ import annotations

import base64
import binascii
import gzip
import ipaddress
import random
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.cloud import new_id, requested_tags
from spotkeep_local.ec2.errors import Ec2Error, invalid
from spotkeep_local.ec2.records import InstanceState, LocalInstance, LocalInterface
from spotkeep_local.ec2.tags import check_tags
from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.hosts.metadata import MetadataSettings
from spotkeep_local.ministack import ec2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.records import InstanceProfile, LocalFleet
    from spotkeep_local.ec2.surroundings import LaunchTemplateVersion, LocalSubnet

_GZIP_MAGIC = b"\x1f\x8b"
_RESERVED_ADDRESSES = 4
"""AWS keeps the first four addresses of a subnet and the last."""
_OF_THIS_MACHINE = "127.64.0.0/10"
"""Addresses of loopback that hardly anything else has. Each instance without a network of its own gets one of them."""
_INTERFACE_KINDS = ("interface", "efa", "efa-only")


def find_template(cloud: Cloud, specification: Mapping[str, Any]) -> LaunchTemplateVersion:
    """Return the launch template version that a LaunchTemplateSpecification names.

    Raises:
        Ec2Error: It does not exist.
    """
    template_id, name = specification.get("LaunchTemplateId"), specification.get("LaunchTemplateName")
    version = str(specification.get("Version") or "$Default")
    template = cloud.surroundings.launch_template(template_id=template_id, name=name, version=version)
    if template is None:
        raise Ec2Error(
            "InvalidLaunchTemplateId.NotFound" if template_id else "InvalidLaunchTemplateName.NotFoundException",
            f"The specified launch template, {template_id or name!s} in version {version}, does not exist.",
        )
    if template.created_at > cloud.shown_before:
        raise Ec2Error(
            "InvalidLaunchTemplateId.VersionNotFound",
            f"Could not find the specified version {version} for the launch template with ID {template.template_id}.",
        )
    return template


def delete_template_versions(request: dict[str, Any]) -> dict[str, Any]:
    """DeleteLaunchTemplateVersions, of any but the default version. The answer says which cannot be deleted."""
    template_id, name = request.get("LaunchTemplateId"), request.get("LaunchTemplateName")
    template = ec2.launch_template(template_id=template_id, name=name)
    if template is None:
        code = "InvalidLaunchTemplateId.NotFound" if template_id else "InvalidLaunchTemplateName.NotFoundException"
        raise Ec2Error(code, f"The specified launch template, {template_id or name}, does not exist.")
    about = {
        "LaunchTemplateId": template["LaunchTemplateId"],
        "LaunchTemplateName": template["LaunchTemplateName"],
    }
    deleted, refused = [], []
    for number in request["Versions"]:
        found = next((each for each in template["Versions"] if str(each["VersionNumber"]) == str(number)), None)
        entry = {**about, "VersionNumber": int(number)}
        if found is None:
            code, message = "launchTemplateVersionDoesNotExist", f"The version {number} does not exist"
        elif int(number) == template["DefaultVersionNumber"]:
            code, message = "unexpectedError", "The default version cannot be deleted"
        else:
            ec2.delete_template_version(template, found)
            deleted.append(entry)
            continue
        refused.append({**entry, "ResponseError": {"Code": code, "Message": message}})
    return {
        "SuccessfullyDeletedLaunchTemplateVersions": deleted,
        "UnsuccessfullyDeletedLaunchTemplateVersions": refused,
    }


def find_subnets(cloud: Cloud, data: Mapping[str, Any]) -> list[LocalSubnet]:
    """Return the subnets where an instance may launch.

    Without one in its data, the default VPC's in its zone or in any.

    Raises:
        Ec2Error: There is no such subnet or zone.
    """
    interfaces = data.get("NetworkInterfaces") or [{}]
    if subnet_id := data.get("SubnetId") or interfaces[0].get("SubnetId"):
        subnet = cloud.surroundings.subnet(subnet_id)
        if subnet is None:
            raise Ec2Error("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        return [subnet]
    zone = data.get("AvailabilityZone") or (data.get("Placement") or {}).get("AvailabilityZone")
    found = [subnet for subnet in cloud.surroundings.default_subnets() if zone in (None, subnet.zone)]
    if not found:
        raise Ec2Error("MissingInput", f"No default subnet was found for the zone {zone or 'any'}")
    return found


def new_instance(
    cloud: Cloud,
    data: Mapping[str, Any],
    *,
    subnet: LocalSubnet,
    fleet: LocalFleet,
    own_tags: Mapping[str, str],
    spot: bool,
) -> LocalInstance:
    """Return the record of an instance that is about to be launched.

    Args:
        cloud: The local EC2.
        data: Launch template data with the override laid over it.
        subnet: Its subnet.
        fleet: Launches it.
        own_tags: Tags of AWS's own.
        spot: True for a spot instance.

    Raises:
        Ec2Error: Something is missing, does not exist or cannot be read, or its tags cannot be.
    """
    for name in ("InstanceType", "ImageId"):
        if not data.get(name):
            raise Ec2Error("MissingParameter", f"The request must contain the parameter {name}")
    options = data.get("MetadataOptions") or {}
    settings = MetadataSettings(
        token_required=options.get("HttpTokens", "required") == "required",
        enabled=options.get("HttpEndpoint", "enabled") == "enabled",
        tags=options.get("InstanceMetadataTags", "disabled") == "enabled",
    )
    tags = requested_tags(data, "instance")
    check_tags(tags, in_metadata=settings.tags)
    placement_group = (data.get("Placement") or {}).get("GroupName")
    if placement_group and not cloud.surroundings.has_placement_group(placement_group):
        raise Ec2Error("InvalidPlacementGroup.Unknown", f"The Placement Group '{placement_group}' is unknown.")
    now = cloud.now()
    return LocalInstance(
        instance_id=new_id("i"),
        fleet_id=fleet.fleet_id,
        instance_type=str(data["InstanceType"]),
        zone=subnet.zone,
        subnet_id=subnet.subnet_id,
        vpc_id=subnet.vpc_id,
        private_ip=_free_address(cloud, subnet),
        image_id=str(data["ImageId"]),
        spot=spot,
        state=InstanceState.PENDING,
        launched_at=now,
        due_at=now + cloud.latencies.instance_seconds,
        profile=_profile(cloud, data.get("IamInstanceProfile") or {}),
        settings=settings,
        user_data=decode_user_data(str(data.get("UserData") or "")),
        tags={**own_tags, **tags},
        interfaces=_interfaces(cloud, data, subnet=subnet),
        placement_group=placement_group,
    )


def decode_user_data(encoded: str) -> str:
    """Return user data as the instance sees it.

    Raises:
        Ec2Error: It is not in base64, or not a text.
    """
    try:
        data = base64.b64decode(encoded, validate=True)
        return (gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data).decode()
    except (binascii.Error, UnicodeDecodeError, OSError) as error:
        raise Ec2Error("InvalidUserData.Malformed", f"Invalid BASE64 encoding of user data: {error}") from error


def _profile(cloud: Cloud, given: Mapping[str, str]) -> InstanceProfile | None:
    if not given:
        return None
    profile = cloud.surroundings.instance_profile(arn=given.get("Arn"), name=given.get("Name"))
    if profile is None:
        raise invalid(f"Value ({given.get('Arn') or given.get('Name')}) for parameter iamInstanceProfile is invalid")
    return profile


def _interfaces(cloud: Cloud, data: Mapping[str, Any], *, subnet: LocalSubnet) -> tuple[LocalInterface, ...]:
    """Return the network interfaces, the first one first. Without any in the data there is one."""
    given = data.get("NetworkInterfaces")
    if given and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        raise Ec2Error(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        )
    groups = [group for group in cloud.surroundings.security_groups().values() if group.vpc_id == subnet.vpc_id]
    named = {group.name: group.group_id for group in groups}
    ids = [named.get(name, name) for name in data.get("SecurityGroups") or ()]
    interfaces = [
        LocalInterface(
            device_index=int(each.get("DeviceIndex", 0)),
            card_index=int(each.get("NetworkCardIndex", 0)),
            kind=each.get("InterfaceType", "interface"),
            groups=tuple(each.get("Groups") or (named["default"],)),
        )
        for each in given or [{"Groups": [*(data.get("SecurityGroupIds") or ()), *ids]}]
    ]
    known = set(named.values())
    for interface in interfaces:
        if interface.kind not in _INTERFACE_KINDS:
            raise invalid(f"Invalid interface type {interface.kind}. It must be one of {', '.join(_INTERFACE_KINDS)}")
        if missing := [group for group in interface.groups if group not in known]:
            raise Ec2Error(
                "InvalidGroup.NotFound",
                f"The security group '{missing[0]}' does not exist in VPC '{subnet.vpc_id}'",
            )
    return tuple(sorted(interfaces, key=lambda interface: (interface.card_index, interface.device_index)))


def _free_address(cloud: Cloud, subnet: LocalSubnet) -> str:
    try:
        on_loopback = cloud.platform.isolation is Isolation.RELOCATED
    except HostRefusedError as error:
        raise Ec2Error("InternalError", str(error)) from error
    network = ipaddress.ip_network(_OF_THIS_MACHINE if on_loopback else subnet.cidr)
    taken = {instance.private_ip for instance in cloud.instances if instance.ended_at is None}
    while True:
        place = random.randrange(_RESERVED_ADDRESSES, network.num_addresses - 1)  # noqa: S311 - no secret
        if (address := str(network[place])) not in taken:
            return address
