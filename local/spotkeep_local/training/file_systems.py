"""The file systems of the local AWS. Each is a folder of this machine, which jobs mount as a channel.

FSx for Lustre is served here, with CreateFileSystem, DescribeFileSystems and DeleteFileSystem. ministack has EFS. The
folder of either is `<state>/file-systems/<id>`. Files there are the files of the file system. The first folder
of a path is the mount name on FSx for Lustre, and names the folder itself.

Source: https://docs.aws.amazon.com/fsx/latest/APIReference/API_CreateFileSystem.html
"""

from __future__ import annotations

import secrets
import string
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from spotkeep_local.service_base.aws_service import AwsService, JsonProtocol, ServiceError, page_of
from spotkeep_local.service_base.clients import FROM_INSIDE
from spotkeep_local.service_base.state_file import StateFile
from spotkeep_local.training.errors import JobFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spotkeep_local.service_base.clients import LocalSession
    from spotkeep_local.training.opt_ml import OptMl

TARGET: Final = "AWSSimbaAPIService_v20180301"
_LONGEST_PAGE: Final = 50
_MOUNT_NAME_CHARACTERS: Final = string.ascii_lowercase + string.digits
_FAILED: Final = "ClientError: Unable to mount file system"


@dataclass(frozen=True, kw_only=True)
class MountedChannel:
    """A directory of a file system, as a job sees it.

    Attributes:
        path: The channel's path below `/opt/ml`.
        directory: The directory on this machine.
        read_only: True where the job may only read.
    """

    path: str
    directory: Path
    read_only: bool


class FileSystems:
    """The file systems of one local AWS.

    Args:
        folder: Holds a folder for each file system, and the descriptions of those of FSx.
        session: Makes clients that call as the local AWS itself.
        account_id: The account.
        region: Its region.
    """

    def __init__(self, *, folder: Path, session: LocalSession, account_id: str, region: str) -> None:
        self._folder = folder
        self._session = session
        self._arn = f"arn:aws:fsx:{region}:{account_id}:file-system/"
        self._account_id = account_id
        self._domain = f"fsx.{region}.amazonaws.com"
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._saved = StateFile(folder / "fsx.json")
        self._lustre: dict[str, dict[str, Any]] = self._saved.read().get("file_systems", {})
        operations = {
            "CreateFileSystem": self._create,
            "DescribeFileSystems": self._describe,
            "DeleteFileSystem": self._delete,
        }
        self.api = AwsService(JsonProtocol("fsx", target=TARGET), operations)

    def folder_of(self, file_system: str) -> Path:
        """Return the folder of a file system, which is made where it is missing."""
        folder = self._folder / file_system
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def mounted(self, request: Mapping[str, Any], opt_ml: OptMl) -> list[MountedChannel]:
        """Return the channels of a job on file systems, each with an empty folder in its place.

        Args:
            request: The CreateTrainingJob request.
            opt_ml: The host's `/opt/ml`.

        Raises:
            JobFailedError: A file system or a directory is missing.
        """
        found = []
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"].get("FileSystemDataSource")
            if source is None:
                continue
            directory = self._directory(source)
            place = opt_ml.channel(channel["ChannelName"])
            place.mkdir(parents=True, exist_ok=True)
            found.append(
                MountedChannel(
                    path=f"/opt/ml/{place.relative_to(opt_ml.root)}",
                    directory=directory,
                    read_only=source["FileSystemAccessMode"] == "ro",
                )
            )
        return found

    def _directory(self, source: Mapping[str, Any]) -> Path:
        name, path = source["FileSystemId"], source["DirectoryPath"]
        parts = [part for part in path.split("/") if part]
        if source["FileSystemType"] == "FSxLustre":
            described = self._lustre.get(name)
            if described is None:
                raise JobFailedError(f"{_FAILED} {name}: FSx has no such file system")
            mount_name = described["LustreConfiguration"]["MountName"]
            if parts[:1] != [mount_name]:
                raise JobFailedError(f"{_FAILED} {name}: the directory path {path} does not begin with /{mount_name}")
            parts = parts[1:]
        elif not self._mount_targets(name):
            raise JobFailedError(f"{_FAILED} {name}: EFS has no mount target of such a file system")
        directory = self.folder_of(name).joinpath(*parts)
        if ".." in parts or not directory.is_dir():
            raise JobFailedError(f"{_FAILED} {name}: there is no directory {path}")
        return directory

    def _mount_targets(self, name: str) -> list[Any]:
        try:
            answer = self._session.client("efs", config=FROM_INSIDE).describe_mount_targets(FileSystemId=name)
        except ClientError:
            return []
        return list(answer["MountTargets"])

    # FSx's operations.

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["FileSystemType"] != "LUSTRE":
            raise ServiceError("the local AWS has file systems of the type LUSTRE only", code="BadRequest")
        if len(request["SubnetIds"]) != 1:
            raise ServiceError("a file system of the type LUSTRE is in one subnet", code="InvalidNetworkSettings")
        configuration = request.get("LustreConfiguration", {})
        kind = configuration.get("DeploymentType", "SCRATCH_1")
        interface = self._interface(request)
        name = f"fs-{secrets.token_hex(9)[:17]}"
        mount_name = "fsx" if kind == "SCRATCH_1" else "".join(secrets.choice(_MOUNT_NAME_CHARACTERS) for _ in range(8))
        described = {
            "OwnerId": self._account_id,
            "CreationTime": time.time(),
            "FileSystemId": name,
            "FileSystemType": "LUSTRE",
            # On AWS it is CREATING for some minutes first.
            "Lifecycle": "AVAILABLE",
            "StorageCapacity": request.get("StorageCapacity", 1_200),
            "StorageType": "SSD",
            "VpcId": interface["VpcId"],
            "SubnetIds": request["SubnetIds"],
            "NetworkInterfaceIds": [interface["NetworkInterfaceId"]],
            "DNSName": f"{name}.{self._domain}",
            "ResourceARN": f"{self._arn}{name}",
            "Tags": request.get("Tags"),
            "LustreConfiguration": {"DeploymentType": kind, "MountName": mount_name},
        }
        self.folder_of(name)
        with self._lock:
            self._lustre[name] = described
            self._save()
        return {"FileSystem": described}

    def _interface(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ec2 = self._session.client("ec2", config=FROM_INSIDE)
        (subnet,) = request["SubnetIds"]
        try:
            ec2.describe_subnets(SubnetIds=[subnet])
            groups = {"Groups": list(request["SecurityGroupIds"])} if request.get("SecurityGroupIds") else {}
            interface: dict[str, Any] = ec2.create_network_interface(SubnetId=subnet, **groups)["NetworkInterface"]
        except ClientError as error:
            raise ServiceError(error.response["Error"]["Message"], code="InvalidNetworkSettings") from error
        return interface

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            known = dict(self._lustre)
        wanted = request.get("FileSystemIds") or [*known]
        self._require(known, wanted)
        return page_of([known[name] for name in wanted], request, member="FileSystems", longest=_LONGEST_PAGE)

    def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["FileSystemId"]
        with self._lock:
            self._require(self._lustre, [name])
            described = self._lustre.pop(name)
            self._save()
        ec2 = self._session.client("ec2", config=FROM_INSIDE)
        for interface in described["NetworkInterfaceIds"]:
            ec2.delete_network_interface(NetworkInterfaceId=interface)
        # The files stay in their folder: they are the user's own.
        return {"FileSystemId": name, "Lifecycle": "DELETING"}

    @staticmethod
    def _require(known: Mapping[str, Any], names: list[str]) -> None:
        for name in names:
            if name not in known:
                raise ServiceError(f"File system '{name}' does not exist.", code="FileSystemNotFound")

    def _save(self) -> None:
        self._saved.write({"file_systems": self._lustre})
