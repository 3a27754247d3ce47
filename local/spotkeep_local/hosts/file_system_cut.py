"""Cuts the power of a mounted file system: nothing that it has not yet written ever reaches its device.

Killing an instance's processes is not a power cut: the kernel then unmounts its file systems and writes what they hold
in memory. Shutting a file system down without flushing its journal is what ext4 and XFS offer for tests of just this.

Source: the kernel's `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN` (the same number), as xfstests' `godown` uses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = 2


def mount_points(process_id: int, device_number: int) -> list[Path]:
    """Return where a process's mount namespace has a device mounted, as this machine reaches it."""
    wanted = f"{os.major(device_number)}:{os.minor(device_number)}"
    try:
        lines = Path(f"/proc/{process_id}/mountinfo").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    fields = [line.split(" ") for line in lines]
    root = Path(f"/proc/{process_id}/root")
    return [root / _unescaped(field[4]).lstrip("/") for field in fields if field[2] == wanted]


def cut(process_id: int, device_number: int) -> None:
    """Cut every mounted file system of a device. One that knows no such request is left as it is."""
    for path in mount_points(process_id, device_number):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_JOURNAL))
            finally:
                os.close(descriptor)


def _unescaped(path: str) -> str:
    return path.encode().decode("unicode_escape")
