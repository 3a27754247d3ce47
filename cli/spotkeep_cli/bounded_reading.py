"""Reads files and answers of others up to a size. A device has no end, and memory has one.

A file that is too large is an `OSError`, like every other unreadable file. Its `strerror` names the bound.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

from spotkeep_local.hosts.written_files import opened

if TYPE_CHECKING:
    from pathlib import Path


class Readable(Protocol):
    """An open file, or the body of an answer."""

    def read(self, amount: int, /) -> bytes:
        """Return at most so many bytes. Fewer at the end alone."""


def read_file(path: Path, *, most_bytes: int) -> bytes:
    """Return a file's whole content.

    Raises:
        OSError: It cannot be read, or is larger (EFBIG).
    """
    with opened(path) as file:
        return read_answer(file, most_bytes=most_bytes)


def read_answer(answer: Readable, *, most_bytes: int) -> bytes:
    """Return the whole rest of an answer or an open file.

    Raises:
        OSError: It is larger (EFBIG), or the connection broke.
    """
    content = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes:,} bytes, or without an end")
    return content
