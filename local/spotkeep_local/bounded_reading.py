"""Reads what others made, up to a size: a device has no end, a log may have any length, and memory has an end.

What is too large is an `OSError` like every other reason why a file cannot be read; its `strerror` says the bound.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Readable(Protocol):
    """An open file, or the body of an answer."""

    def read(self, amount: int, /) -> bytes:
        """At most so many bytes; fewer at the end alone."""


def read_file(path: Path, *, most_bytes: int) -> bytes:
    """Return a file's whole content.

    Raises:
        OSError: It cannot be read, or is larger (EFBIG).
    """
    with _opened(path) as file:
        return read_answer(file, most_bytes=most_bytes)


def read_beginning(path: Path, *, most_bytes: int) -> bytes:
    """Return a file's first bytes.

    Raises:
        OSError: It cannot be read.
    """
    with _opened(path) as file:
        return file.read(most_bytes)


def read_end(path: Path, *, most_bytes: int) -> bytes:
    """Return the last bytes of a regular file.

    Raises:
        OSError: It cannot be read.
    """
    with _opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes)


def read_answer(answer: Readable, *, most_bytes: int) -> bytes:
    """Return the whole of what is left of an answer or an open file.

    Raises:
        OSError: It is larger (EFBIG), or the connection broke.
    """
    content = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes:,} bytes, or without an end")
    return content


def _opened(path: Path) -> BinaryIO:
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    # A named pipe that has no writer is empty; to open it otherwise would wait for one.
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
