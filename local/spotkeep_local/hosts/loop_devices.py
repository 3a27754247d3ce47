"""Loop devices, each an image file as a block device, which the kernel frees once no process has it open.

A device is set up with `autoclear` and held open by this process alone. When the server dies, the hosts with mounts of
the device die with it. Then the kernel frees the device, and nothing needs cleaning.

Source: loop(4).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path

_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_SET_STATUS64 = 0x4C00, 0x4C01, 0x4C04
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_TRIES = 50
_STATUS = struct.Struct("=5Q4I64s64s32s2Q")
"""struct loop_info64: device, inode, rdevice, offset, size limit; number, encryption type and key size, flags; ..."""


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
