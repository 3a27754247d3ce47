"""Confines an instance with namespaces: network, mounts and processes of its own, and volumes that are loop devices.

Killing an instance's processes is no power cut: the kernel then unmounts its file systems and writes what they hold in
memory. To shut a file system down without flushing its journal is what ext4 and XFS offer for tests of just this.

Source: the kernel's `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN` (the same number), as xfstests' `godown` uses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.forwarding import Forwarding
from spotkeep_local.hosts.host import Host
from spotkeep_local.hosts.instance_host import InstanceHost, by_id_name
from spotkeep_local.hosts.loop_devices import LoopDevice
from spotkeep_local.hosts.metadata_service import MetadataService

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.instance_host import HostSpecification
    from spotkeep_local.hosts.metadata import InstanceMetadata

_LOG = logging.getLogger(__name__)
_METADATA_ENDPOINT = "http://169.254.169.254"
_SETTLE_SECONDS = 10.0
_SHUT_FILE_SYSTEM_DOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = 2


class NamespaceHost(InstanceHost):
    """A host with namespaces, whose two sockets are answered from here."""

    def _start(self, specification: HostSpecification, read_metadata: Callable[[], InstanceMetadata]) -> Host:
        configuration = {
            "namespaces": True,
            "folder": str(specification.folder),
            "console": str(specification.console),
            "hostname": specification.hostname,
            "endpoint_port": specification.endpoint_port,
            "user_data": specification.user_data,
            "environment": specification.environment(metadata_endpoint=_METADATA_ENDPOINT),
            "links": dict(specification.links),
            "programs": dict(specification.programs),
            "reachable": [sys.prefix, sys.base_prefix],
        }
        host = Host(
            configuration,
            folder=specification.folder,
            environment={},
            console=specification.console,
            on_command_end=self._note_user_data_end,
            on_end=self._end,
        )
        metadata_socket, endpoint_socket = host.listening
        self._metadata = MetadataService(metadata_socket, read=read_metadata)
        self._forwarding = Forwarding(endpoint_socket, port=specification.endpoint_port)
        self._dev = Path(f"/proc/{host.process_id}/root/dev")
        self._devices: dict[str, tuple[LoopDevice, str]] = {}
        return host

    def _attach(self, volume_id: str) -> None:
        """Make the device nodes."""
        if volume_id in self._devices:
            return
        device = LoopDevice(self._images.path(volume_id))
        taken = {name for _, name in self._devices.values()}
        name = next(name for number in range(1, 1000) if (name := f"nvme{number}n1") not in taken)
        try:
            os.mknod(self._dev / name, stat.S_IFBLK | 0o660, device.number)
            (self._dev / "disk/by-id" / by_id_name(volume_id)).symlink_to(f"../../{name}")
        except OSError:
            device.release()
            if self._dev.exists():
                raise
            return  # The host ended meanwhile.
        self._devices[volume_id] = (device, name)

    def _detach(self, volume_id: str, *, force: bool) -> bool:
        """Remove the device nodes, unless the device is mounted."""
        if volume_id not in self._devices:
            return True
        device, name = self._devices[volume_id]
        mounted = bool(_mount_points(self.process_id, device.number))
        if mounted and not force:
            return False
        _cut_power_of(self.process_id, device.number)
        for path in (self._dev / "disk/by-id" / by_id_name(volume_id), self._dev / name):
            with contextlib.suppress(OSError):
                path.unlink()
        del self._devices[volume_id]
        device.release()
        if not mounted:
            device.wait_until_free(seconds=_SETTLE_SECONDS)
        return True

    def _cut_power(self) -> None:
        """Cut the file systems on all of them."""
        for device, _ in self._devices.values():
            _cut_power_of(self.process_id, device.number)

    def _close(self) -> None:
        """Free the devices, when the kernel has written what it still writes, and end the services."""
        for device, _ in self._devices.values():
            device.release()
            if not device.wait_until_free(seconds=_SETTLE_SECONDS):
                _LOG.warning("a loop device of an instance that ended is still in use")
        self._devices.clear()
        self._metadata.close()
        self._forwarding.close()


def _mount_points(process_id: int, device_number: int) -> list[Path]:
    """Return where a process's mount namespace has a device mounted, as this machine reaches it."""
    wanted = f"{os.major(device_number)}:{os.minor(device_number)}"
    try:
        lines = Path(f"/proc/{process_id}/mountinfo").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    fields = [line.split(" ") for line in lines]
    paths = [field[4].encode().decode("unicode_escape") for field in fields if field[2] == wanted]
    return [Path(f"/proc/{process_id}/root") / path.lstrip("/") for path in paths]


def _cut_power_of(process_id: int, device_number: int) -> None:
    """Shut every mounted file system of a device down. One that knows no such request is left as it is."""
    for path in _mount_points(process_id, device_number):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _SHUT_FILE_SYSTEM_DOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_JOURNAL))
            finally:
                os.close(descriptor)
