"""Reads parts of files that hosts write. Such a file may be a log of any length, a device or a named pipe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def read_beginning(path: Path, *, most_bytes: int) -> bytes:
    """Return a file's first bytes.

    Raises:
        OSError: It cannot be read.
    """
    with opened(path) as file:
        return file.read(most_bytes)


def read_end(path: Path, *, most_bytes: int) -> bytes:
    """Return the last bytes of a regular file.

    Raises:
        OSError: It cannot be read.
    """
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes)


def opened(path: Path) -> BinaryIO:
    """Return a file that is open for reading. A named pipe without a writer is empty, and is not waited for.

    Raises:
        OSError: It cannot be opened.
    """
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
