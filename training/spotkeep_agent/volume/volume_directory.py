"""Volumes as directories, for machines where no process is root. The protocol is the same, without devices and mounts.

A host links an attached volume's directory where a device would be linked, under the same name. Mounting is a link from
the mount point to it. The mark of a file system is a file in it.
"""

from __future__ import annotations

import os
from pathlib import Path

from spotkeep_agent.errors import BusyFilesystemError, DamagedFilesystemError, VolumeError
from spotkeep_agent.volume.actions import MachineVolumes

from .device_links import DeviceLinks
from .processes import end_users_of

MARK = ".spotkeep-filesystem"
_KIND = "directory"
_END_SECONDS = 5.0


class DirectoryMachine:
    """Directories of this machine.

    Args:
        mount_point: The path that becomes a link to the volume.
        devices: The directories of attached volumes.
    """

    def __init__(self, *, mount_point: Path, devices: DeviceLinks) -> None:
        self._mount_point = mount_point
        self._devices = devices

    @property
    def mount_point(self) -> Path:
        """The path at which the volume is reached."""
        return self._mount_point

    def survey(self) -> MachineVolumes:
        """See which volume is linked. End the processes that a former agent left running in it."""
        devices = self._devices.attached()
        if not self._mount_point.is_symlink():
            return MachineVolumes(devices=tuple(devices))
        target = os.path.realpath(self._mount_point)
        end_users_of(Path(target), seconds=_END_SECONDS)
        mounted = next((volume for volume, directory in devices.items() if directory == target), "of another host")
        return MachineVolumes(mounted=mounted, devices=tuple(devices))

    def inspect(self, volume: str) -> str:
        """Wait for the directory. See if it has ever had a file system made."""
        return _KIND if (self._directory(volume) / MARK).exists() else ""

    def format(self, volume: str) -> None:
        """Mark an empty directory."""
        directory = self._directory(volume)
        if any(directory.iterdir()):
            raise VolumeError(f"{volume} is not empty and is not formatted")
        (directory / MARK).write_text("ok\n", encoding="utf-8")

    def check(self, volume: str) -> None:
        """Check that the mark is the written one."""
        if (self._directory(volume) / MARK).read_text(encoding="utf-8", errors="replace") != "ok\n":
            raise DamagedFilesystemError(f"its mark {MARK} is damaged")

    def mount(self, volume: str) -> None:
        """Link it."""
        self._mount_point.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._mount_point.symlink_to(self._directory(volume), target_is_directory=True)
        except OSError as error:
            raise VolumeError(f"{volume} cannot be linked to {self._mount_point}: {error}") from error

    def unmount(self) -> None:
        """End the processes that use it, flush it, and remove the link."""
        os.sync()
        left = end_users_of(Path(os.path.realpath(self._mount_point)), seconds=_END_SECONDS)
        if left:
            raise BusyFilesystemError(f"{self._mount_point} is used by the processes {left}")
        self._mount_point.unlink(missing_ok=True)

    def _directory(self, volume: str) -> Path:
        return Path(self._devices.wait_for(volume))
