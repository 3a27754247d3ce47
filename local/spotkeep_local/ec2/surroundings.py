"""The parts of the local AWS that EC2 needs, such as networks, launch templates, roles and alarms."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.records import InstanceProfile
from spotkeep_local.ec2.security_groups import SecurityGroup, read_group
from spotkeep_local.hosts.metadata import RoleCredentials
from spotkeep_local.ministack import ec2, identities
from spotkeep_local.service_base.clients import FROM_INSIDE, service_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import Shape

    from spotkeep_local.principals import CredentialRegistry
    from spotkeep_local.service_base.clients import LocalSession

_CREDENTIALS_SECONDS = 6 * 3600.0


@dataclass(frozen=True, kw_only=True)
class LocalSubnet:
    """A subnet of a VPC."""

    subnet_id: str
    vpc_id: str
    zone: str
    cidr: str


@dataclass(frozen=True, kw_only=True)
class LaunchTemplateVersion:
    """One version of a launch template. Its data as RequestLaunchTemplateData names it, its time in epoch seconds."""

    template_id: str
    version: str
    created_at: float
    data: dict[str, Any]


class Surroundings:
    """Reads ministack's networks, launch templates and roles in process, alarms by their API.

    Args:
        session: Makes clients of the local AWS.
        region: The region of the local AWS.
        credentials: Issues the credentials of instances.
    """

    def __init__(self, *, session: LocalSession, region: str, credentials: CredentialRegistry) -> None:
        self._session = session
        self._region = region
        self._credentials = credentials

    def zones(self) -> list[str]:
        """Return the zones of the region."""
        zones = {f"{self._region}{letter}" for letter in "abc"}
        return sorted(zones | {subnet["AvailabilityZone"] for subnet in ec2.subnets()})

    def subnet(self, subnet_id: str) -> LocalSubnet | None:
        """Return a subnet, or None."""
        return next(
            (_subnet(subnet) for subnet in ec2.subnets() if subnet["SubnetId"] == subnet_id),
            None,
        )

    def default_subnets(self) -> list[LocalSubnet]:
        """Return the default VPC's subnets, one a zone."""
        defaults = [_subnet(subnet) for subnet in ec2.subnets() if subnet.get("DefaultForAz")]
        return sorted(defaults, key=lambda subnet: subnet.zone)

    def vpc_addresses(self, vpc_id: str) -> str:
        """Return the network of a VPC's addresses, for example `172.31.0.0/16`."""
        return ec2.vpc_addresses(vpc_id)

    def security_groups(self) -> dict[str, SecurityGroup]:
        """Return the security groups of all VPCs, by id."""
        return {group.group_id: group for group in map(read_group, ec2.security_groups())}

    def has_placement_group(self, name: str) -> bool:
        """Return whether there is a placement group of this name."""
        return ec2.has_placement_group(name)

    def launch_template(
        self, *, template_id: str | None, name: str | None, version: str
    ) -> LaunchTemplateVersion | None:
        """Return a version of a launch template, `$Default` and `$Latest` resolved. None when it does not exist."""
        template = ec2.launch_template(template_id=template_id, name=name)
        if template is None:
            return None
        numbers = {
            "$Default": str(template["DefaultVersionNumber"]),
            "$Latest": str(template["LatestVersionNumber"]),
        }
        number = numbers.get(version, version)
        for candidate in template["Versions"]:
            if str(candidate["VersionNumber"]) == number:
                return LaunchTemplateVersion(
                    template_id=template["LaunchTemplateId"],
                    version=number,
                    created_at=datetime.fromisoformat(candidate["CreateTime"]).timestamp(),
                    data=template_data(candidate["LaunchTemplateData"]),
                )
        return None

    def instance_profile(self, *, arn: str | None, name: str | None) -> InstanceProfile | None:
        """Return an instance profile and its role, or None."""
        profile = identities.instance_profile(name or str(arn).rpartition("/")[2])
        if profile is None:
            return None
        return InstanceProfile(
            arn=profile["Arn"],
            profile_id=profile["InstanceProfileId"],
            role=next(iter(profile["Roles"]), profile["InstanceProfileName"]),
        )

    def role_credentials(self, role: str, *, instance_id: str) -> RoleCredentials:
        """Return an instance's credentials of a role. Valid until `revoke_credentials`."""
        key = self._credentials.of_role(role, session=instance_id, holder=instance_id)
        return RoleCredentials(
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            token=key.session_token or "",
            expires_at=time.time() + _CREDENTIALS_SECONDS,
        )

    def revoke_credentials(self, instance_id: str) -> None:
        """Revoke the credentials of an instance."""
        self._credentials.revoke(instance_id)

    @functools.cached_property
    def _cloudwatch(self) -> Any:
        return self._session.client("cloudwatch", config=FROM_INSIDE)

    def alarm_rings(self, arn: str) -> bool:
        """Return whether a CloudWatch alarm is in state ALARM."""
        found = self._cloudwatch.describe_alarms(AlarmNames=[arn.rpartition(":alarm:")[2]])
        alarms = [*found.get("MetricAlarms", []), *found.get("CompositeAlarms", [])]
        return any(alarm["StateValue"] == "ALARM" for alarm in alarms)


def _subnet(subnet: Mapping[str, Any]) -> LocalSubnet:
    return LocalSubnet(
        subnet_id=subnet["SubnetId"],
        vpc_id=subnet["VpcId"],
        zone=subnet["AvailabilityZone"],
        cidr=subnet["CidrBlock"],
    )


def template_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a launch template in the types of EC2's model.

    CloudFormation may leave a list of one as an object of its own, and a number or a truth value as a text.
    """
    typed: dict[str, Any] = _typed(data, service_model("ec2").shape_for("ResponseLaunchTemplateData"))
    return typed


def _typed(value: Any, shape: Shape) -> Any:
    if shape.type_name == "structure":
        members = shape.members  # type: ignore[attr-defined]
        return {name: _typed(item, members[name]) for name, item in value.items() if name in members}
    if shape.type_name == "list":
        items = value if isinstance(value, list) else [value]
        return [_typed(item, shape.member) for item in items]  # type: ignore[attr-defined]
    if shape.type_name == "boolean":
        return str(value).lower() == "true"
    return int(value) if shape.type_name in ("integer", "long") else value
