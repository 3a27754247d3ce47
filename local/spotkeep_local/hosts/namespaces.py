"""Confines an instance with namespaces: network, mounts and processes of its own, and volumes that are loop devices."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts import file_system_cut
from spotkeep_local.hosts.forwarding import Forwarding
from spotkeep_local.hosts.host import Host
from spotkeep_local.hosts.instance_host import Confinement, by_id_name
from spotkeep_local.hosts.loop_devices import LoopDevice
from spotkeep_local.hosts.metadata_service import MetadataService

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.images import Images
    from spotkeep_local.hosts.instance_host import HostSpecification
    from spotkeep_local.hosts.metadata import InstanceMetadata

_LOG = logging.getLogger(__name__)
_METADATA_ENDPOINT = "http://169.254.169.254"
_SETTLE_SECONDS = 10.0


class Namespaces(Confinement):
    """Starts the host, and answers on the two sockets in its network. The lock of the instance's host guards it."""

    def __init__(
        self,
        specification: HostSpecification,
        *,
        images: Images,
        read_metadata: Callable[[], InstanceMetadata],
        on_command_end: Callable[[int], None],
        on_end: Callable[[int], None],
    ) -> None:
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
        self.host = Host(
            configuration,
            folder=specification.folder,
            environment={},
            console=specification.console,
            on_command_end=on_command_end,
            on_end=on_end,
        )
        metadata_socket, endpoint_socket = self.host.listening
        self._metadata = MetadataService(metadata_socket, read=read_metadata)
        self._forwarding = Forwarding(endpoint_socket, port=specification.endpoint_port)
        self._images = images
        self._dev = Path(f"/proc/{self.host.process_id}/root/dev")
        self._devices: dict[str, tuple[LoopDevice, str]] = {}

    def attach(self, volume_id: str) -> None:
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

    def detach(self, volume_id: str, *, force: bool) -> bool:
        """Remove the device nodes, unless the device is mounted."""
        if volume_id not in self._devices:
            return True
        device, name = self._devices[volume_id]
        mounted = bool(file_system_cut.mount_points(self.host.process_id, device.number))
        if mounted and not force:
            return False
        file_system_cut.cut(self.host.process_id, device.number)
        for path in (self._dev / "disk/by-id" / by_id_name(volume_id), self._dev / name):
            with contextlib.suppress(OSError):
                path.unlink()
        del self._devices[volume_id]
        device.release()
        if not mounted:
            device.wait_until_free(seconds=_SETTLE_SECONDS)
        return True

    def cut_power(self) -> None:
        """Cut the file systems on all of them."""
        for device, _ in self._devices.values():
            file_system_cut.cut(self.host.process_id, device.number)

    def close(self) -> None:
        """Free the devices, when the kernel has written what it still writes, and end the services."""
        for device, _ in self._devices.values():
            device.release()
            if not device.wait_until_free(seconds=_SETTLE_SECONDS):
                _LOG.warning("a loop device of an instance that ended is still in use")
        self._devices.clear()
        self._metadata.close()
        self._forwarding.close()
