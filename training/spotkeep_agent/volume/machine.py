"""What the protocol asks of this machine: devices, file systems, mounts. One seam, two ways to serve it.

block_device.py does it with real devices and needs root; volume_directory.py takes directories for volumes, so that the
same protocol runs where there is no root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from spotkeep_agent.volume.actions import MachineVolumes


class VolumeMachine(Protocol):
    """The seam."""

    @property
    def mount_point(self) -> Path:
        """Where the volume is mounted."""

    def survey(self) -> MachineVolumes:
        """See what is mounted and which devices are there; end what a former agent left running."""

    def inspect(self, volume: str) -> str:
        """Wait for the volume's device. Give the type of its file system, empty when there is none.

        Raises:
            VolumeError: If the device does not appear, or holds something else, a partition table for example.
        """

    def format(self, volume: str) -> None:
        """Make a file system.

        Raises:
            VolumeError: If there is one already, or it cannot be made.
        """

    def check(self, volume: str) -> None:
        """Check the file system, and repair what is safe to repair.

        Raises:
            DamagedFilesystemError: If more is needed.
        """

    def mount(self, volume: str) -> None:
        """Mount it, grown to its volume.

        Raises:
            VolumeError: If it cannot be mounted. Nothing is mounted then.
        """

    def unmount(self) -> None:
        """End what uses it, flush it, unmount it.

        Raises:
            BusyFilesystemError: If it cannot be unmounted.
        """
