"""Confines an instance with namespaces. Network, mounts and processes are its own, and volumes are loop devices.

Killing an instance's processes is no power cut. The kernel then unmounts its file systems and writes their changes from
memory. ext4 and XFS can shut a file system down without flushing its journal, for tests of just this.

Source: the kernel's `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN` (the same number), as xfstests' `godown` uses them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local.hosts.forwarding import Forwarding
from spotkeep_local.hosts.host import Host, HostRefusedError
from spotkeep_local.hosts.instance_host import InstanceHost, by_id_name
from spotkeep_local.hosts.metadata import MetadataService

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.hosts.instance_host import HostSpecification
    from spotkeep_local.hosts.metadata import InstanceMetadata

_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_SET_STATUS64 = 0x4C00, 0x4C01, 0x4C04
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_TRIES = 50
_STATUS = struct.Struct("=5Q4I64s64s32s2Q")
"""struct loop_info64. Device, inode, rdevice, offset, size limit, number, encryption type and key size, flags, ..."""


_LOG = logging.getLogger(__name__)
_METADATA_ENDPOINT = "http://169.254.169.254"
_SETTLE_SECONDS = 10.0
_SHUT_FILE_SYSTEM_DOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = 2


class LoopDevice:
    """One attached image.

    Args:
        image: A file. Its size is the device's.

    Raises:
        OSError: The machine has no loop devices, or none is free.
    """

    def __init__(self, image: Path) -> None:
        self._image = image.resolve()
        self._descriptor = _attach(image)
        status = os.fstat(self._descriptor)
        self.number = status.st_rdev
        """The device number, for mknod."""

    def release(self) -> None:
        """Let go of the device. It is free at once, or when the last file system on it is unmounted."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            fcntl.ioctl(descriptor, _LOOP_CLR_FD, 0)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENXIO):
                raise
        finally:
            os.close(descriptor)

    def wait_until_free(self, *, seconds: float) -> bool:
        """Wait until nothing reads or writes the image any more, once the device was released.

        Returns:
            False when it is still in use after these seconds.
        """
        backing = Path(f"/sys/block/loop{os.minor(self.number)}/loop/backing_file")
        give_up_at = time.monotonic() + seconds
        while _backs(backing, self._image):
            if time.monotonic() > give_up_at:
                return False
            time.sleep(0.005)
        return True


def _backs(path: Path, image: Path) -> bool:
    try:
        return path.read_text().strip() == str(image)
    except OSError:
        return False


def _attach(image: Path) -> int:
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            device = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_SET_FD, backing)
                name = os.fsencode(image)[-63:]
                status = _STATUS.pack(0, 0, 0, 0, 0, 0, 0, 0, _LO_FLAGS_AUTOCLEAR, name, b"", b"", 0, 0)
                fcntl.ioctl(device, _LOOP_SET_STATUS64, status)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # another process was faster
                    raise
                continue
            return device
        raise OSError(errno.EBUSY, "every loop device was taken by another process")
    finally:
        os.close(control)
        os.close(backing)


class NamespaceHost(InstanceHost):
    """A host with namespaces. The server answers on its two sockets."""

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
            "clock": None if specification.clock is None else str(specification.clock),
            "shared": [] if specification.file_systems is None else [str(specification.file_systems)],
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
        self._network, self._address = specification.network, specification.address
        if self._network is not None:
            try:
                self._network.join(f"/proc/{host.process_id}/ns/net", self._address)
            except HostRefusedError:
                host.kill()
                raise
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

    def connect_to_aws(self, *, connected: bool) -> None:
        """Carry its bytes, or hold them back."""
        self._forwarding.let_flow(flows=connected)

    def _cut_power(self) -> None:
        """Pull its plug, so that its sockets say no goodbye, and cut the file systems on all devices."""
        self._leave()
        for device, _ in self._devices.values():
            _cut_power_of(self.process_id, device.number)

    def _close(self) -> None:
        """Free the devices, once the kernel has finished writing to them, and end the services."""
        for device, _ in self._devices.values():
            device.release()
            if not device.wait_until_free(seconds=_SETTLE_SECONDS):
                _LOG.warning("a loop device of an instance that ended is still in use")
        self._devices.clear()
        self._metadata.close()
        self._forwarding.close()
        self._leave()

    def _leave(self) -> None:
        if self._network is not None:
            self._network.leave(self._address)


def _mount_points(process_id: int, device_number: int) -> list[Path]:
    """Return the mount points of a device in a process's mount namespace, as this machine reaches them."""
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
