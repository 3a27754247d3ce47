"""The devices, file systems and mounts of this machine, as the protocol needs them. One seam with two implementations.

block_device.py takes real devices and needs root. volume_directory.py takes directories for volumes, so that the same
protocol runs without root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from spotkeep_agent.volume.actions import MachineVolumes


class VolumeMachine(Protocol):
    """The seam."""

    @property
    def mount_point(self) -> Path:
        """The mount point of the volume."""

    def survey(self) -> MachineVolumes:
        """List mounts and devices, and end the processes of an earlier agent."""

    def inspect(self, volume: str) -> str:
        """Wait for the volume's device. Return the type of its file system, or an empty text without one.

        Raises:
            VolumeError: If the device does not appear, or holds something else, a partition table for example.
        """

    def format(self, volume: str) -> None:
        """Make a file system.

        Raises:
            VolumeError: If there is one already, or it cannot be made.
        """

    def check(self, volume: str) -> None:
        """Check the file system, and make safe repairs.

        Raises:
            DamagedFilesystemError: It needs more.
        """

    def mount(self, volume: str) -> None:
        """Mount it, grown to its volume.

        Raises:
            VolumeError: If it cannot be mounted. Nothing is mounted then.
        """

    def unmount(self) -> None:
        """End the processes on it, flush it, unmount it.

        Raises:
            BusyFilesystemError: It cannot be unmounted.
        """
