"""From a launch template and what overrides it to an instance's record: what RunInstances and fleets share."""

from __future__ import annotations

import base64
import binascii
import gzip
import ipaddress
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.cloud import LaunchTemplate, Subnet, new_id, tags_of
from spotkeep_local.ec2.errors import Ec2Error, invalid
from spotkeep_local.ec2.records import Instance, InstanceProfile, InstanceState, LaunchSource
from spotkeep_local.ec2.tags import check_tags
from spotkeep_local.hosts.metadata import MetadataSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.ec2.cloud import Cloud

_GZIP_MAGIC = b"\x1f\x8b"
_TAKEN_ADDRESSES = 5
"""The first four addresses of a subnet and the last are AWS's own."""


@dataclass(frozen=True, kw_only=True)
class LaunchData:
    """What an instance is made from, whoever asked for it.

    Attributes:
        user_data: Decoded.
    """

    instance_type: str
    image_id: str
    subnet: Subnet
    settings: MetadataSettings
    user_data: str = ""
    profile: InstanceProfile | None = None
    security_group_ids: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    source: LaunchSource | None = None


def find_template(cloud: Cloud, specification: Mapping[str, Any]) -> LaunchTemplate:
    """The launch template version that a LaunchTemplateSpecification names.

    Raises:
        Ec2Error: There is none.
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


def find_subnet(cloud: Cloud, data: Mapping[str, Any]) -> Subnet:
    """Where an instance with these data goes: its subnet, its zone's default subnet, or any default subnet.

    Raises:
        Ec2Error: There is no such subnet or zone.
    """
    interfaces = data.get("NetworkInterfaces") or [{}]
    if subnet_id := data.get("SubnetId") or interfaces[0].get("SubnetId"):
        subnet = cloud.surroundings.subnet(subnet_id)
        if subnet is None:
            raise Ec2Error("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        return subnet
    defaults = cloud.surroundings.default_subnets()
    zone = data.get("AvailabilityZone") or (data.get("Placement") or {}).get("AvailabilityZone")
    for subnet in defaults:
        if zone in (None, subnet.zone):
            return subnet
    if zone in cloud.zones() and defaults:
        # A zone that only the market's script names.
        return Subnet(subnet_id=f"subnet-{zone}", vpc_id=defaults[0].vpc_id, zone=zone, cidr=defaults[0].cidr)
    raise Ec2Error("MissingInput", f"No default subnet was found for the zone {zone or 'any'}")


def launch_data(cloud: Cloud, data: Mapping[str, Any], *, source: LaunchSource | None) -> LaunchData:
    """Reads launch data, of a template, of overrides or of RunInstances; all name things alike.

    Raises:
        Ec2Error: Something is missing, does not exist or cannot be read.
    """
    if not data.get("InstanceType"):
        raise Ec2Error("MissingParameter", "The request must contain the parameter InstanceType")
    if not data.get("ImageId"):
        raise Ec2Error("MissingParameter", "The request must contain the parameter ImageId")
    options = data.get("MetadataOptions") or {}
    given = data.get("IamInstanceProfile") or {}
    profile = None
    if given:
        profile = cloud.surroundings.instance_profile(arn=given.get("Arn"), name=given.get("Name"))
        if profile is None:
            raise invalid(
                f"Value ({given.get('Arn') or given.get('Name')}) for parameter iamInstanceProfile is invalid"
            )
    interfaces = data.get("NetworkInterfaces") or [{}]
    return LaunchData(
        instance_type=str(data["InstanceType"]),
        image_id=str(data["ImageId"]),
        subnet=find_subnet(cloud, data),
        settings=MetadataSettings(
            token_required=options.get("HttpTokens", "required") == "required",
            enabled=options.get("HttpEndpoint", "enabled") == "enabled",
            tags=options.get("InstanceMetadataTags", "disabled") == "enabled",
        ),
        user_data=decode_user_data(str(data.get("UserData") or "")),
        profile=profile,
        security_group_ids=tuple(data.get("SecurityGroupIds") or interfaces[0].get("Groups") or ()),
        tags=tags_of(data, "instance"),
        source=source,
    )


def decode_user_data(encoded: str) -> str:
    """User data as the instance sees it.

    Raises:
        Ec2Error: It is not in base64, or not a text.
    """
    try:
        data = base64.b64decode(encoded, validate=True)
        return (gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data).decode()
    except (binascii.Error, UnicodeDecodeError, OSError) as error:
        raise Ec2Error("InvalidUserData.Malformed", f"Invalid BASE64 encoding of user data: {error}") from error


def new_instance(cloud: Cloud, data: LaunchData, *, spot: bool, **more: Any) -> Instance:
    """A record of an instance that is about to be launched.

    Args:
        cloud: Where.
        data: What it is made from.
        spot: Whether it is a spot instance.
        more: Further fields of the record.

    Raises:
        Ec2Error: Its tags are too many, or cannot be in its metadata.
    """
    check_tags(data.tags, in_metadata=data.settings.tags)
    now = cloud.now()
    price_usd = cloud.market.pool(instance_type=data.instance_type, zone=data.subnet.zone, now=now).price_usd
    fields: dict[str, Any] = {
        "instance_id": new_id("i"),
        "reservation_id": new_id("r"),
        "instance_type": data.instance_type,
        "zone": data.subnet.zone,
        "subnet_id": data.subnet.subnet_id,
        "vpc_id": data.subnet.vpc_id,
        "private_ip": _free_address(cloud, data.subnet),
        "image_id": data.image_id,
        "spot": spot,
        "state": InstanceState.PENDING,
        "launched_at": now,
        "due_at": now + cloud.latencies.instance_seconds,
        "spot_price_usd": price_usd if spot else None,
        "source": data.source,
        "profile": data.profile,
        "settings": data.settings,
        "user_data": data.user_data,
        "security_group_ids": data.security_group_ids,
        "tags": dict(data.tags),
    }
    return Instance(**(fields | more))


def _free_address(cloud: Cloud, subnet: Subnet) -> str:
    network = ipaddress.ip_network(subnet.cidr)
    taken = {instance.private_ip for instance in cloud.instances if instance.state.live}
    while True:
        place = random.randrange(_TAKEN_ADDRESSES - 1, network.num_addresses - 1)  # noqa: S311 - no secret
        if (address := str(network[place])) not in taken:
            return address
