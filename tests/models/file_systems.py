"""FSx and EFS in memory, as far as a launch describes file systems. Spelled as boto3's clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.models.ec2 import Ec2
from tests.models.faults import Called, Model, client_error


class Fsx(Model):
    """The file systems of FSx of one account and region.

    Attributes:
        file_systems: DescribeFileSystems' entries by id.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.file_systems: dict[str, dict[str, Any]] = {}

    def describe_file_systems(self, *, FileSystemIds: Sequence[str]) -> dict[str, Any]:  # noqa: N803
        def act() -> dict[str, Any]:
            missing = [name for name in FileSystemIds if name not in self.file_systems]
            if missing:
                raise client_error("DescribeFileSystems", "FileSystemNotFound")
            return {"FileSystems": [self.file_systems[name] for name in FileSystemIds]}

        answer: dict[str, Any] = self._call("DescribeFileSystems", act)
        return answer


class Efs(Model):
    """The mount targets of EFS of one account and region.

    Attributes:
        mount_targets: DescribeMountTargets' entries by file system. One that is missing is no file system.
        groups: The security groups of each mount target, by its id.
    """

    page_size = 2

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.mount_targets: dict[str, list[dict[str, Any]]] = {}
        self.groups: dict[str, list[str]] = {}

    def describe_mount_targets(self, *, FileSystemId: str, Marker: str = "0") -> dict[str, Any]:  # noqa: N803
        def act() -> dict[str, Any]:
            if FileSystemId not in self.mount_targets:
                raise client_error("DescribeMountTargets", "FileSystemNotFound")
            found, first = self.mount_targets[FileSystemId], int(Marker)
            after = first + self.page_size
            return {"MountTargets": found[first:after], **({"NextMarker": str(after)} if after < len(found) else {})}

        answer: dict[str, Any] = self._call("DescribeMountTargets", act)
        return answer

    def describe_mount_target_security_groups(self, *, MountTargetId: str) -> dict[str, Any]:  # noqa: N803
        answer: dict[str, Any] = self._call(
            "DescribeMountTargetSecurityGroups", lambda: {"SecurityGroups": self.groups[MountTargetId]}
        )
        return answer


@dataclass
class FileSystemSite:
    """A VPC with a subnet in each of three zones, its security groups, and the file systems in it.

    The group `sg-ours` is of jobs and `sg-theirs` of file systems. They let each other through at every port.
    """

    ec2: Ec2
    fsx: Fsx
    efs: Efs

    @classmethod
    def made(cls) -> FileSystemSite:
        site = cls(ec2=Ec2(), fsx=Fsx(), efs=Efs())
        for number, zone in enumerate("abc"):
            site.add_subnet(f"subnet-{zone}", zone=f"us-east-1{zone}", network=f"10.0.{number}.0/24")
        every_port = {"IpProtocol": "-1", "UserIdGroupPairs": [], "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        for name in ("sg-ours", "sg-theirs"):
            site.add_group(name, inbound=[every_port], outbound=[every_port])
        return site

    def add_subnet(self, name: str, *, zone: str, network: str, vpc: str = "vpc-1") -> None:
        self.ec2.subnets.append({"SubnetId": name, "AvailabilityZone": zone, "VpcId": vpc, "CidrBlock": network})

    def add_group(self, name: str, *, inbound: list[dict[str, Any]], outbound: list[dict[str, Any]]) -> None:
        self.ec2.security_groups = [each for each in self.ec2.security_groups if each["GroupId"] != name]
        self.ec2.security_groups.append({"GroupId": name, "IpPermissions": inbound, "IpPermissionsEgress": outbound})

    def add_lustre(self, name: str, *, subnet: str = "subnet-a", mount: str = "abcdefgh", **changes: Any) -> None:
        interface = f"eni-{name}"
        self.ec2.interfaces.append({"NetworkInterfaceId": interface, "Groups": [{"GroupId": "sg-theirs"}]})
        self.fsx.file_systems[name] = {
            "FileSystemId": name,
            "FileSystemType": "LUSTRE",
            "Lifecycle": "AVAILABLE",
            "SubnetIds": [subnet],
            "NetworkInterfaceIds": [interface, f"{interface}-2"],
            "LustreConfiguration": {"MountName": mount},
            **changes,
        }

    def add_efs(self, name: str, *subnets: str, state: str = "available") -> None:
        self.efs.mount_targets[name] = []
        for subnet in subnets:
            target = f"fsmt-{name}-{subnet}"
            self.efs.mount_targets[name].append(
                {"MountTargetId": target, "FileSystemId": name, "SubnetId": subnet, "LifeCycleState": state}
            )
            self.efs.groups[target] = ["sg-theirs"]
