"""The host of an instance: its volumes, its metadata, and how it ends.

How it is confined differs between machines: with `namespaces` where the machine allows them, by `relocation` where it
does not.
"""

from __future__ import annotations

import abc
import os
import shutil
import sys
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.hosts.host import Host
    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.metadata import InstanceMetadata

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BY_ID_PREFIX = "nvme-Amazon_Elastic_Block_Store_"
_SETTLE_SECONDS = 10.0


class HostEnd(StrEnum):
    """How an instance's host ended."""

    POWER_OFF = "power-off"
    """Everything in it was killed at once, and what its file systems had not written is lost."""
    SHUT_DOWN = "shut-down"
    """Its processes were asked to end, and its file systems were unmounted."""
    FROM_INSIDE = "from-inside"
    """It shut itself down, or its first process died."""


@dataclass(frozen=True, kw_only=True)
class HostSpecification:
    """What an instance's host is made from.

    Attributes:
        folder: Its own directory: settings and its writable layer. Gone when the host is.
        user_data: As deployed, decoded.
        endpoint_port: The port of the local AWS, on 127.0.0.1, outside and inside alike.
        links: The symbolic links of its image, from paths below `/` to directories of this machine.
        programs: The texts of commands of its image that this machine does not have, or not so, by name.
        agent_time_scale: How many times more often than on AWS its agent asks whether it is to leave.
    """

    instance_id: str
    folder: Path
    hostname: str
    user_data: str
    endpoint_port: int
    links: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    agent_time_scale: float = 1.0

    @property
    def console(self) -> Path:
        """What the user data prints."""
        return self.folder.with_suffix(".console")

    def environment(self, *, metadata_endpoint: str) -> dict[str, str]:
        """Return what the user data finds in its environment: as little as on AWS, and the way to the local AWS.

        Region and credentials are not here: they come from the metadata service, as on AWS.

        Args:
            metadata_endpoint: `http://169.254.169.254`, or where the service is instead. Named even where it is AWS's
                own: this machine's firmware does not say that it is an EC2 instance.
        """
        return {
            "PATH": f"{Path(sys.prefix) / 'bin'}:{_SYSTEM_PATH}",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.endpoint_port}",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_endpoint,
            "SPOTKEEP_LOCAL_TIME_SCALE": f"{self.agent_time_scale:g}",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


class InstanceHost(abc.ABC):
    """A running instance, once the constructor returns.

    Args:
        specification: What it is made from.
        images: Where its volumes' bytes are.
        read_metadata: Returns what is true of the instance now.
        on_end: Called once, from a thread of its own, when nothing of it is left.

    Attributes:
        process_id: Its first process, as this machine numbers it.
        user_data_exit_code: None while the user data runs, or when it was killed.

    Raises:
        HostRefusedError: The machine refuses what it needs.
    """

    def __init__(
        self,
        specification: HostSpecification,
        *,
        images: Images,
        read_metadata: Callable[[], InstanceMetadata],
        on_end: Callable[[HostEnd], None],
    ) -> None:
        self._folder = specification.folder
        self._images = images
        self._on_end = on_end
        self._lock = threading.RLock()
        self._ending: HostEnd | None = None
        self._ended = threading.Event()
        self.user_data_exit_code: int | None = None
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._host = self._start(specification, read_metadata)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.process_id = self._host.process_id
        self._host.watch()

    def attach(self, volume_id: str) -> None:
        """Make a volume appear in `/dev/disk/by-id`; of a host that ends, nothing happens."""
        with self._lock:
            if not self._ending:
                self._attach(volume_id)

    def detach(self, volume_id: str, *, force: bool) -> bool:
        """Make a volume disappear; with force its file system fails from then on.

        Returns:
            False when it is mounted and force was not asked for: it stays until it is unmounted.
        """
        with self._lock:
            return self._detach(volume_id, force=force)

    def power_off(self) -> None:
        """End it at once, as when the power is cut. Returns when nothing of it is left."""
        with self._lock:
            self._ending = self._ending or HostEnd.POWER_OFF
            self._cut_power()
            self._host.kill()
        self._ended.wait()

    def shut_down(self, *, seconds: float) -> None:
        """End it in good order: SIGTERM to all, and after these seconds SIGKILL. Returns when nothing is left."""
        with self._lock:
            self._ending = self._ending or HostEnd.SHUT_DOWN
            self._host.shut_down(seconds=seconds)
        if not self._ended.wait(seconds + _SETTLE_SECONDS):
            self._host.kill()
            self._ended.wait()

    # What differs between machines. The lock is held, but while it starts.

    @abc.abstractmethod
    def _start(self, specification: HostSpecification, read_metadata: Callable[[], InstanceMetadata]) -> Host:
        """Start the host, not yet watched, and what answers it; `_note_user_data_end` and `_end` hear of it."""

    @abc.abstractmethod
    def _attach(self, volume_id: str) -> None:
        """Make a volume appear."""

    @abc.abstractmethod
    def _detach(self, volume_id: str, *, force: bool) -> bool:
        """Make a volume disappear; return False where it is mounted and force was not asked for."""

    @abc.abstractmethod
    def _cut_power(self) -> None:
        """Lose what the file systems on its volumes have not written yet, before the host is killed."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Free what the server holds for it, once nothing of the host is left."""

    # What the host reports.

    def _note_user_data_end(self, code: int) -> None:
        self.user_data_exit_code = code

    def _end(self, _code: int) -> None:
        with self._lock:
            ending = self._ending = self._ending or HostEnd.FROM_INSIDE
            self._close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ended.set()
        self._on_end(ending)


def by_id_name(volume_id: str) -> str:
    """Return a volume's name in `/dev/disk/by-id`: an NVMe device's serial number is the id without its dash."""
    return _BY_ID_PREFIX + volume_id.replace("-", "")
