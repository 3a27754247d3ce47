"""What an instance's host is to the EC2 that starts, watches and ends it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BY_ID_PREFIX = "nvme-Amazon_Elastic_Block_Store_"


class HostEnd(StrEnum):
    """How a host ended."""

    POWER_OFF = "power-off"
    """Everything in it was killed at once, and what its file systems had not written is lost."""
    SHUT_DOWN = "shut-down"
    """Its processes were asked to end, and its file systems were unmounted."""
    FROM_INSIDE = "from-inside"
    """It shut itself down, or its first process died."""


@dataclass(frozen=True, kw_only=True)
class HostSpecification:
    """What a host is made from.

    Attributes:
        folder: Its own directory: settings, console and its writable layer. Gone when the host is.
        user_data: As deployed, decoded.
        endpoint_port: Of the local AWS, on 127.0.0.1, outside and inside alike.
        links: Of its image: symbolic links, from paths below `/` to directories of this machine.
        agent_time_scale: How many times more often than on AWS its agent asks whether it is to leave.
    """

    instance_id: str
    folder: Path
    hostname: str
    user_data: str
    endpoint_port: int
    links: Mapping[str, str] = field(default_factory=dict)
    agent_time_scale: float = 1.0

    @property
    def console(self) -> Path:
        """What the user data prints."""
        return self.folder.with_suffix(".console")


class Host(Protocol):
    """A running instance."""

    @property
    def process_id(self) -> int:
        """Its first process, as this machine numbers it."""
        ...

    @property
    def user_data_exit_code(self) -> int | None:
        """How the user data ended; None while it runs."""
        ...

    def attach(self, volume_id: str) -> None:
        """Makes a volume appear in `/dev/disk/by-id`."""
        ...

    def detach(self, volume_id: str, *, force: bool) -> bool:
        """Makes a volume disappear; with force its file system fails from then on.

        Returns:
            False when it is mounted and force was not asked for: it stays until it is unmounted.
        """
        ...

    def power_off(self) -> None:
        """Ends it at once, as when the power is cut. Returns when nothing of it is left."""
        ...

    def shut_down(self, *, seconds: float) -> None:
        """Ends it in good order: SIGTERM to all, and after these seconds SIGKILL. Returns when nothing is left."""
        ...


def own_python() -> str:
    """The Python that this process runs on. In the server `sys.executable` is the one that functions run on."""
    return str(Path(sys.prefix) / "bin" / "python3")


def by_id_name(volume_id: str) -> str:
    """A volume's name in `/dev/disk/by-id`: the serial number of an NVMe device is the volume id without its dash."""
    return _BY_ID_PREFIX + volume_id.replace("-", "")


def instance_environment(specification: HostSpecification, *, metadata_endpoint: str) -> dict[str, str]:
    """What the user data finds in its environment: as little as on AWS, and the way to the local AWS.

    Region and credentials are not here: they come from the metadata service, as on AWS.

    Args:
        specification: Of the host.
        metadata_endpoint: `http://169.254.169.254`, or where the service is instead. Named even where it is AWS's
            own: this machine's firmware does not say that it is an EC2 instance.
    """
    return {
        "PATH": f"{Path(sys.prefix) / 'bin'}:{_SYSTEM_PATH}",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{specification.endpoint_port}",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_endpoint,
        "SPOTKEEP_LOCAL_TIME_SCALE": f"{specification.agent_time_scale:g}",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
