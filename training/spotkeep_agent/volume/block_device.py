"""Volumes as block devices, with the machine's own tools blkid, mkfs.ext4, e2fsck and mount. Needs root.

Sources: "Make an Amazon EBS volume available for use" and "Extend the file system", EBS user guide. blkid(8),
e2fsck(8), resize2fs(8). "Ext4 Disk Layout" of the kernel's documentation.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from spotkeep_agent.errors import BusyFilesystemError, DamagedFilesystemError, VolumeError
from spotkeep_agent.volume.actions import MachineVolumes

from .device_links import DeviceLinks
from .processes import end_users_of

_POLL_SECONDS = 0.1
_END_SECONDS = 5.0
_NOTHING_FOUND = 2  # blkid(8)
_REPAIRED = (0, 1, 2)  # e2fsck(8): no errors, errors corrected, corrected and a reboot advised for a root file system
_EXT = ("ext2", "ext3", "ext4")
_SUPERBLOCK_OFFSET, _SUPERBLOCK_BYTES = 1024, 1024
_INCOMPAT_64BIT = 0x80

_logger = logging.getLogger("spotkeep.agent")


class BlockDeviceMachine:
    """Block devices of this machine.

    Args:
        mount_point: The mount point of the volume.
        devices: Those of attached volumes.
    """

    def __init__(self, *, mount_point: Path, devices: DeviceLinks) -> None:
        self._mount_point = mount_point
        self._devices = devices

    @property
    def mount_point(self) -> Path:
        """The mount point of the volume."""
        return self._mount_point

    def survey(self) -> MachineVolumes:
        """List mounts and devices, and end the processes of an earlier agent."""
        devices = self._devices.attached()
        source = self._mounted_device()
        if source is None:
            return MachineVolumes(devices=tuple(devices))
        end_users_of(self._mount_point, seconds=_END_SECONDS)
        mounted = next((volume for volume, device in devices.items() if device == source), "of another device")
        return MachineVolumes(mounted=mounted, devices=tuple(devices))

    def inspect(self, volume: str) -> str:
        """Wait for the volume's device, and read its file system's kind."""
        device = self._devices.wait_for(volume)
        found = _run(["blkid", "-p", "-o", "export", device], allowed=(0, _NOTHING_FOUND))
        if found.returncode == _NOTHING_FOUND:
            return ""
        facts = dict(line.partition("=")[::2] for line in found.stdout.splitlines())
        if facts.get("USAGE") == "filesystem" and facts.get("TYPE"):
            return facts["TYPE"]
        what = (facts.get("PTTYPE") and "a partition table") or facts.get("TYPE") or "something unknown"
        raise VolumeError(
            f"{volume} holds {what}, not a file system: use a volume that as a whole is one file system (ext4, xfs)"
        )

    def format(self, volume: str) -> None:
        """Make an ext4 file system on a device that blkid finds nothing on."""
        if self.inspect(volume):
            raise VolumeError(f"{volume} has a file system already and is not formatted")
        # Its inode tables are made later, in the background: a large volume is ready at once.
        _run(
            ["mkfs.ext4", "-q", "-m", "0", "-L", "spotkeep", "-E", "lazy_itable_init=1", self._devices.wait_for(volume)]
        )

    def check(self, volume: str) -> None:
        """Let e2fsck make its safe repairs. XFS repairs itself at the mount."""
        if self.inspect(volume) not in _EXT:
            return
        _check(self._devices.wait_for(volume))

    def mount(self, volume: str) -> None:
        """Mount it, grown to its volume. ext4 grows before, XFS after."""
        kind, device = self.inspect(volume), self._devices.wait_for(volume)
        if kind in _EXT and _ext_bytes(device) < _device_bytes(device):
            # resize2fs wants a full check first; to grow it while it is mounted would need CAP_SYS_RESOURCE.
            _check(device, "-f")
            _grow(["resize2fs", device], volume)
        self._mount_point.mkdir(parents=True, exist_ok=True)
        _run(["mount", "-o", "noatime,nodev,nosuid", device, str(self._mount_point)])
        # Believe the kernel, not the exit code: what is not mounted would be the root disk.
        if self._mounted_device() != device:
            raise VolumeError(f"{volume} is not mounted on {self._mount_point}, although mount reported no error")
        if kind == "xfs":
            _grow(["xfs_growfs", str(self._mount_point)], volume)

    def unmount(self) -> None:
        """End the processes on it, flush it, unmount it."""
        os.sync()
        for _ in range(3):
            if self._mounted_device() is None:
                return
            left = end_users_of(self._mount_point, seconds=_END_SECONDS)
            done = _run(["umount", str(self._mount_point)], allowed=range(256))
            if done.returncode and left:
                time.sleep(_POLL_SECONDS)
        if self._mounted_device() is not None:
            raise BusyFilesystemError(f"{self._mount_point} cannot be unmounted: {done.stderr.strip()}")

    def _mounted_device(self) -> str | None:
        point = os.path.realpath(self._mount_point)
        found: str | None = None
        with open("/proc/self/mountinfo", encoding="utf-8") as lines:  # noqa: PTH123
            for line in lines:
                before, _, after = line.partition(" - ")
                if _unescaped(before.split()[4]) == point:
                    found = os.path.realpath(_unescaped(after.split()[1]))  # the last one covers the others
        return found


def _check(device: str, *options: str) -> None:
    done = _run(["e2fsck", "-p", *options, device], allowed=range(256))
    if done.returncode not in _REPAIRED:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise DamagedFilesystemError(
            f"its file system is damaged (e2fsck says {done.returncode}: {' / '.join(said[-3:])}); "
            "look at a copy of it with e2fsck -f"
        )


def _grow(command: Sequence[str], volume: str) -> None:
    try:
        _run(command)
    except VolumeError as error:
        # It is whole, only not as large as it could be.
        _logger.warning("%s was not grown to its volume: %s", volume, error)


def _device_bytes(device: str) -> int:
    with open(device, "rb") as file:  # noqa: PTH123
        return file.seek(0, os.SEEK_END)


def _ext_bytes(device: str) -> int:
    """Read from its superblock how large an ext file system is."""
    with open(device, "rb") as file:  # noqa: PTH123
        file.seek(_SUPERBLOCK_OFFSET)
        raw = file.read(_SUPERBLOCK_BYTES)
    low, log_block_size, incompatible, high = (
        int.from_bytes(raw[offset : offset + 4], "little") for offset in (0x4, 0x18, 0x60, 0x150)
    )
    blocks = low | (high << 32 if incompatible & _INCOMPAT_64BIT else 0)
    return blocks * (1024 << log_block_size)


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _run(command: Sequence[str], *, allowed: Sequence[int] | range = (0,)) -> subprocess.CompletedProcess[str]:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    program = shutil.which(command[0], path=path)
    if program is None:
        raise VolumeError(f"{command[0]} is not on this machine; use an image that has it")
    # No person answers a question here.
    done = subprocess.run(
        [program, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": path, "LC_ALL": "C"},
    )
    if done.returncode not in allowed:
        said = (done.stderr.strip() or done.stdout.strip()).replace("\n", " / ")
        raise VolumeError(f"{' '.join(command)} failed with {done.returncode}: {said}")
    return done
