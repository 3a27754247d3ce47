"""The parts of the local AWS that EC2 needs, such as networks, launch templates, roles and alarms."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.records import InstanceProfile
from spotkeep_local.hosts.metadata import RoleCredentials
from spotkeep_local.ministack import ec2, identities
from spotkeep_local.service_base.clients import FROM_INSIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.principals import CredentialRegistry
    from spotkeep_local.service_base.clients import LocalSession

_CREDENTIALS_SECONDS = 6 * 3600.0
_DATA_LISTS = ("BlockDeviceMappings", "NetworkInterfaces", "TagSpecifications", "SecurityGroupIds")


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
                    data=_launch_template_data(candidate["LaunchTemplateData"]),
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


def _launch_template_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation may leave a property that is a list of one as an object of its own."""
    return {
        name: [value] if name in _DATA_LISTS and not isinstance(value, list) else value for name, value in data.items()
    }
