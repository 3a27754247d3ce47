"""Volumes as block devices, with the machine's own tools: blkid, mkfs.ext4, e2fsck, mount. Needs root.

A device is found by its volume's id, never by a letter: `/dev/nvme*n1` come in any order, and instance stores look
alike.
Sources: "Map NVMe disks to volumes" and "Make an Amazon EBS volume available for use", EBS user guide; e2fsck(8).
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

from spotkeep_agent.errors import BusyFilesystemError, DamagedFilesystemError, VolumeError

from .facts import Here
from .machine import link_name, volume_of_link
from .ownership import give_tree
from .processes import end_users_of

BY_ID = Path("/dev/disk/by-id")
_DEVICE_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 5.0
_NOTHING_FOUND = 2  # blkid(8)
_REPAIRED = (0, 1, 2)  # e2fsck(8): no errors, errors corrected, corrected and a reboot advised for a root file system
_EXT = ("ext2", "ext3", "ext4")

_logger = logging.getLogger("spotkeep.agent")


class BlockDeviceMachine:
    """Block devices of this machine.

    Args:
        mount_point: Where the volume is mounted.
        by_id: Where devices are linked by their ids.
        sleep: Waits between two looks.
        device_seconds: How long a device may take to appear.
    """

    def __init__(
        self,
        *,
        mount_point: Path,
        by_id: Path = BY_ID,
        sleep: Callable[[float], None] = time.sleep,
        device_seconds: float = _DEVICE_SECONDS,
    ) -> None:
        self._mount_point = mount_point
        self._by_id = by_id
        self._sleep = sleep
        self._device_seconds = device_seconds

    @property
    def mount_point(self) -> Path:
        """Where the volume is mounted."""
        return self._mount_point

    def look(self) -> Here:
        """See what is mounted and which devices are there; end what a former agent left running."""
        devices = {}
        if self._by_id.is_dir():
            for link in sorted(self._by_id.iterdir()):
                volume = volume_of_link(link.name)
                if volume is not None and link.exists():
                    devices[volume] = os.path.realpath(link)
        source = self._mounted_device()
        if source is None:
            return Here(devices=tuple(devices))
        end_users_of(self._mount_point, seconds=_END_SECONDS)
        mounted = next((volume for volume, device in devices.items() if device == source), "of another device")
        return Here(mounted=mounted, devices=tuple(devices))

    def inspect(self, volume: str) -> str:
        """Wait for the volume's device, and see what it holds."""
        device = self._device(volume)
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
        _run(["mkfs.ext4", "-q", "-m", "0", "-L", "spotkeep", "-E", "lazy_itable_init=1", self._device(volume)])

    def check(self, volume: str) -> None:
        """Let e2fsck repair what it holds for safe; XFS repairs itself when it is mounted."""
        if self.inspect(volume) not in _EXT:
            return
        done = _run(["e2fsck", "-p", self._device(volume)], allowed=range(256))
        if done.returncode not in _REPAIRED:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise DamagedFilesystemError(
                f"its file system is damaged (e2fsck says {done.returncode}: {' / '.join(said[-3:])}); "
                "look at a copy of it with e2fsck -f"
            )

    def mount(self, volume: str) -> None:
        """Mount it, and grow it to its volume."""
        kind, device = self.inspect(volume), self._device(volume)
        self._mount_point.mkdir(parents=True, exist_ok=True)
        _run(["mount", "-o", "noatime,nodev,nosuid", device, str(self._mount_point)])
        # Believe the kernel, not the exit code: what is not mounted would be the root disk.
        if self._mounted_device() != device:
            raise VolumeError(f"{volume} is not mounted on {self._mount_point}, although mount reported no error")
        grow = {"xfs": ["xfs_growfs", str(self._mount_point)]}.get(kind, ["resize2fs", device])
        if kind in (*_EXT, "xfs"):
            try:
                _run(grow)
            except VolumeError as error:
                # It is whole and mounted, only not as large as it could be.
                _logger.warning("%s was not grown to its volume: %s", volume, error)

    def unmount(self) -> None:
        """End what uses it, flush it, unmount it."""
        os.sync()
        for _ in range(3):
            if self._mounted_device() is None:
                return
            left = end_users_of(self._mount_point, seconds=_END_SECONDS)
            done = _run(["umount", str(self._mount_point)], allowed=range(256))
            if done.returncode and left:
                self._sleep(_LOOK_SECONDS)
        if self._mounted_device() is not None:
            raise BusyFilesystemError(f"{self._mount_point} cannot be unmounted: {done.stderr.strip()}")

    def own(self, path: Path, *, uid: int, gid: int) -> None:
        """Give a tree to the user that trains."""
        give_tree(path, uid=uid, gid=gid)

    def _device(self, volume: str) -> str:
        link = self._by_id / link_name(volume)
        waited = 0.0
        while not link.exists():
            if waited >= self._device_seconds:
                raise VolumeError(
                    f"the device of {volume} did not appear as {link}: instance types must be of the Nitro system"
                )
            self._sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
        return os.path.realpath(link)

    def _mounted_device(self) -> str | None:
        point = os.path.realpath(self._mount_point)
        found: str | None = None
        with open("/proc/self/mountinfo", encoding="utf-8") as lines:  # noqa: PTH123
            for line in lines:
                before, _, after = line.partition(" - ")
                if _unescaped(before.split()[4]) == point:
                    found = os.path.realpath(_unescaped(after.split()[1]))  # the last one covers the others
        return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _run(command: Sequence[str], *, allowed: Sequence[int] | range = (0,)) -> subprocess.CompletedProcess[str]:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    program = shutil.which(command[0], path=path)
    if program is None:
        raise VolumeError(f"{command[0]} is not on this machine; use an image that has it")
    # Nobody answers a question here.
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
