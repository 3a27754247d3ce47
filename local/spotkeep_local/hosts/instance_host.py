"""The host of an instance, with its volumes, its metadata, and the ways of its end.

Machines confine it differently, with `namespaces` where they allow them, and by `relocation` elsewhere.
"""

from __future__ import annotations

import abc
import os
import shutil
import signal
import sys
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.network import MEETING_PORT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.hosts.host import Host
    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.metadata import InstanceMetadata
    from spotkeep_local.hosts.network import HostsNetwork

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BY_ID_PREFIX = "nvme-Amazon_Elastic_Block_Store_"
_SETTLE_SECONDS = 10.0


class HostEnd(StrEnum):
    """The way in which an instance's host ended."""

    POWER_OFF = "power-off"
    """Everything in it was killed at once, and unwritten data of its file systems is lost."""
    SHUT_DOWN = "shut-down"
    """Its processes were asked to end, and its file systems were unmounted."""
    FROM_INSIDE = "from-inside"
    """It shut itself down, or its first process died."""


@dataclass(frozen=True, kw_only=True)
class HostSpecification:
    """The parts of an instance's host.

    Attributes:
        folder: Its own directory with settings and its writable layer, which goes with the host.
        user_data: The user data as deployed, decoded.
        endpoint_port: The port of the local AWS, on 127.0.0.1, outside and inside alike.
        links: The symbolic links of its image, from paths below `/` to directories of this machine.
        programs: The texts of commands of its image that this machine lacks or has in another form, by name.
        agent_time_scale: The factor by which its agent asks for notices more often than on AWS.
        first_world_seconds: The seconds for which its agent waits for more nodes before a first world with fewer than
            there may be. None for the time on AWS, by that factor.
        meeting_port: The port at which its ranks meet those of other hosts. None for that of the training.
        address: Its private address.
        network: The network of its VPC. None where instances have no networks.
        file_systems: The folder of the account's file systems, which all hosts share. None for none.
        clock: A library of `clock`, with which its processes see a wrong wall clock. None for the machine's clock.
    """

    instance_id: str
    folder: Path
    hostname: str
    user_data: str
    endpoint_port: int
    links: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    agent_time_scale: float = 1.0
    first_world_seconds: float | None = None
    meeting_port: int | None = None
    address: str = ""
    network: HostsNetwork | None = None
    file_systems: Path | None = None
    clock: Path | None = None

    @property
    def console(self) -> Path:
        """The output of the user data."""
        return self.folder.with_suffix(".console")

    def environment(self, *, metadata_endpoint: str) -> dict[str, str]:
        """Return the environment of the user data, as small as on AWS, with the way to the local AWS.

        Region and credentials are not here. They come from the metadata service, as on AWS.

        Args:
            metadata_endpoint: `http://169.254.169.254`, or the service's other place. Named even where it is AWS's own,
                because this machine's firmware does not say that it is an EC2 instance.
        """
        wait = self.first_world_seconds
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
            **({} if wait is None else {"SPOTKEEP_LOCAL_FIRST_WORLD_SECONDS": f"{wait:g}"}),
            **({} if self.meeting_port is None else {MEETING_PORT_VARIABLE: str(self.meeting_port)}),
        }


class InstanceHost(abc.ABC):
    """A running instance, once the constructor returns.

    Args:
        specification: Its parts.
        images: The images of its volumes.
        read_metadata: Returns the instance's metadata.
        on_end: Called once, from its own thread, when nothing remains.

    Attributes:
        process_id: The id of its first process on this machine.
        user_data_exit_code: None while the user data runs, or when it was killed.

    Raises:
        HostRefusedError: The machine refuses a need of it.
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
        """Make a volume appear in `/dev/disk/by-id`. In an ending host nothing happens."""
        with self._lock:
            if not self._ending:
                self._attach(volume_id)

    def detach(self, volume_id: str, *, force: bool) -> bool:
        """Make a volume disappear. With force its file system fails from then on.

        Returns:
            False when it is mounted and force was not asked for. It stays until it is unmounted.
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
        """End it in good order with SIGTERM to all, and after these seconds SIGKILL. Returns when nothing remains."""
        with self._lock:
            self._ending = self._ending or HostEnd.SHUT_DOWN
            self._host.shut_down(seconds=seconds)
        if not self._ended.wait(seconds + _SETTLE_SECONDS):
            self._host.kill()
            self._ended.wait()

    def freeze(self) -> None:
        """Stop all of its processes (SIGSTOP), until it is thawed. Its devices and the metadata service go on.

        Raises:
            HostRefusedError: The machine shows no processes by their environment, or the host does not answer.
        """
        if sys.platform != "linux":
            raise HostRefusedError(f"hosts can be frozen on Linux only, and this is {sys.platform}")
        self._host.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all of its processes go on (SIGCONT).

        Raises:
            HostRefusedError: The host does not answer.
        """
        self._host.signal_all(signal.SIGCONT)

    # What differs between machines. The lock is held, but while it starts.

    @abc.abstractmethod
    def connect_to_aws(self, *, connected: bool) -> None:
        """Let its bytes to the local AWS pass, or hold them back until they may. Needs no lock.

        Raises:
            HostRefusedError: It has no network of its own.
        """

    @abc.abstractmethod
    def _start(self, specification: HostSpecification, read_metadata: Callable[[], InstanceMetadata]) -> Host:
        """Start the host, not yet watched, and its services. They call `_note_user_data_end` and `_end`."""

    @abc.abstractmethod
    def _attach(self, volume_id: str) -> None:
        """Make a volume appear."""

    @abc.abstractmethod
    def _detach(self, volume_id: str, *, force: bool) -> bool:
        """Make a volume disappear. Return False where it is mounted and force was not asked for."""

    @abc.abstractmethod
    def _cut_power(self) -> None:
        """Lose the unwritten data of the file systems on its volumes, before the host is killed."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Free the server's resources for it, once nothing of the host remains."""

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
    """Return a volume's name in `/dev/disk/by-id`, where an NVMe device's serial number is the id without its dash."""
    return _BY_ID_PREFIX + volume_id.replace("-", "")
