"""What EC2 needs of the rest: ministack's networks and launch templates, roles and alarms by their APIs."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spotkeep_local import ministack_seams
from spotkeep_local.ec2.cloud import LaunchTemplate, Subnet
from spotkeep_local.ec2.records import InstanceProfile
from spotkeep_local.hosts.metadata import Credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.issued_credentials import CredentialRegistry

_CREDENTIALS_SECONDS = 6 * 3600.0
_DATA_LISTS = ("BlockDeviceMappings", "NetworkInterfaces", "TagSpecifications", "SecurityGroupIds")


class MinistackSurroundings:
    """See `Surroundings`.

    Args:
        iam: A boto3 client.
        cloudwatch: A boto3 client.
        region: Of the local AWS.
        credentials: Where instances get theirs from.
    """

    def __init__(self, *, iam: Any, cloudwatch: Any, region: str, credentials: CredentialRegistry) -> None:
        self._iam = iam
        self._cloudwatch = cloudwatch
        self._region = region
        self._credentials = credentials

    def zones(self) -> list[str]:
        """See `Surroundings`."""
        zones = {f"{self._region}{letter}" for letter in "abc"}
        return sorted(zones | {subnet["AvailabilityZone"] for subnet in ministack_seams.subnets()})

    def subnet(self, subnet_id: str) -> Subnet | None:
        """See `Surroundings`."""
        for subnet in ministack_seams.subnets():
            if subnet["SubnetId"] == subnet_id:
                return _subnet(subnet)
        return None

    def default_subnets(self) -> list[Subnet]:
        """See `Surroundings`."""
        defaults = [_subnet(subnet) for subnet in ministack_seams.subnets() if subnet.get("DefaultForAz")]
        return sorted(defaults, key=lambda subnet: subnet.zone)

    def launch_template(self, *, template_id: str | None, name: str | None, version: str) -> LaunchTemplate | None:
        """See `Surroundings`."""
        for template in ministack_seams.launch_templates():
            if template_id in (None, template["LaunchTemplateId"]) and name in (None, template["LaunchTemplateName"]):
                number = {
                    "$Default": str(template["DefaultVersionNumber"]),
                    "$Latest": str(template["LatestVersionNumber"]),
                }.get(version, version)
                for candidate in template["Versions"]:
                    if str(candidate["VersionNumber"]) == number:
                        return LaunchTemplate(
                            template_id=template["LaunchTemplateId"],
                            version=number,
                            created_at=datetime.fromisoformat(candidate["CreateTime"]).timestamp(),
                            data=_launch_template_data(candidate["LaunchTemplateData"]),
                        )
        return None

    def instance_profile(self, *, arn: str | None, name: str | None) -> InstanceProfile | None:
        """See `Surroundings`."""
        try:
            found = self._iam.get_instance_profile(InstanceProfileName=name or str(arn).rpartition("/")[2])
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchEntity":
                return None
            raise
        profile = found["InstanceProfile"]
        roles = profile["Roles"]
        return InstanceProfile(
            arn=profile["Arn"],
            profile_id=profile["InstanceProfileId"],
            role=roles[0]["RoleName"] if roles else profile["InstanceProfileName"],
        )

    def role_credentials(self, role: str, *, instance_id: str) -> Credentials:
        """See `Surroundings`."""
        key = self._credentials.of_role(role, session=instance_id, holder=instance_id)
        return Credentials(
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            token=key.session_token or "",
            expires_at=time.time() + _CREDENTIALS_SECONDS,
        )

    def revoke_credentials(self, instance_id: str) -> None:
        """See `Surroundings`."""
        self._credentials.revoke(instance_id)

    def alarm_rings(self, arn: str) -> bool:
        """See `Surroundings`."""
        found = self._cloudwatch.describe_alarms(AlarmNames=[arn.rpartition(":alarm:")[2]])
        alarms = [*found.get("MetricAlarms", []), *found.get("CompositeAlarms", [])]
        return any(alarm["StateValue"] == "ALARM" for alarm in alarms)


def _subnet(subnet: Mapping[str, Any]) -> Subnet:
    return Subnet(
        subnet_id=subnet["SubnetId"],
        vpc_id=subnet["VpcId"],
        zone=subnet["AvailabilityZone"],
        cidr=subnet["CidrBlock"],
    )


def _launch_template_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation may leave a property that is one of a list as an object of its own."""
    return {
        name: [value] if name in _DATA_LISTS and not isinstance(value, list) else value for name, value in data.items()
    }
