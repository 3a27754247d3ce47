"""Finds attached volumes by their ids, in the links below /dev/disk/by-id, which come and go with attachments.

A volume is found by its id, never by a letter. `/dev/nvme*n1` come in any order, and instance stores look alike.
Source: "Map NVMe disks to volumes", EBS user guide.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

from spotkeep_agent.errors import VolumeError

BY_ID = Path("/dev/disk/by-id")
PREFIX = "nvme-Amazon_Elastic_Block_Store_"
"""On Nitro, the serial number of an EBS volume's device is the volume's id."""

_APPEARS_SECONDS = 120.0
_POLL_SECONDS = 0.05


def link_name(volume: str) -> str:
    """Return the name of a volume's device below /dev/disk/by-id."""
    return PREFIX + volume.replace("-", "")


def volume_of_link(name: str) -> str | None:
    """Return the volume of such a name, or None for other names and for a device's partitions."""
    digits = name[len(PREFIX) :]
    if not name.startswith(PREFIX) or not digits.startswith("vol") or not digits.isalnum():
        return None
    return "vol-" + digits[3:]


class DeviceLinks:
    """The volumes that are attached to this machine.

    Args:
        folder: The folder in which they are linked by their ids.
        sleep: Waits before the links are read again.
        appears_seconds: The most seconds until an attached volume appears.
    """

    def __init__(
        self,
        folder: Path = BY_ID,
        *,
        sleep: Callable[[float], None] = time.sleep,
        appears_seconds: float = _APPEARS_SECONDS,
    ) -> None:
        self._folder = folder
        self._sleep = sleep
        self._appears_seconds = appears_seconds

    def attached(self) -> dict[str, str]:
        """Return the target of each volume's link, which is a device, or a directory on machines without root."""
        if not self._folder.is_dir():
            return {}
        return {
            volume: os.path.realpath(link)
            for link in sorted(self._folder.iterdir())
            if (volume := volume_of_link(link.name)) is not None and link.exists()
        }

    def wait_for(self, volume: str) -> str:
        """Wait until a volume appears. Return the target of its link.

        Raises:
            VolumeError: If it does not.
        """
        link = self._folder / link_name(volume)
        waited = 0.0
        while not link.exists():
            if waited >= self._appears_seconds:
                raise VolumeError(
                    f"the device of {volume} did not appear as {link}: instance types must be of the Nitro system"
                )
            self._sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        return os.path.realpath(link)
