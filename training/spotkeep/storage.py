"""The few file operations that a checkpoint rests on: the one seam between the format and a disk.

Reading trusts nothing: no link is followed, only regular files are opened, and a size is known before a byte is read.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from .arrays import Buffer

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class NotARegularFileError(OSError):
    """Something that is not a plain file stands where one is expected: a link, a directory, a device, a pipe."""


class LocalStorage:
    """Files on a local disk. Every method raises OSError when the disk refuses."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents; an existing one is fine."""
        path.mkdir(parents=True, exist_ok=True)

    def names(self, path: Path) -> list[str]:
        """List a directory; one that does not exist is empty."""
        try:
            return sorted(entry.name for entry in path.iterdir())
        except FileNotFoundError:
            return []

    def is_directory(self, path: Path) -> bool:
        """Say whether this is a directory itself, not a link to one."""
        return path.is_dir() and not path.is_symlink()

    def write(self, path: Path, pieces: Iterable[Buffer]) -> int:
        """Write a new file and wait until the disk has it. Gives its size in bytes."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            size = 0
            for piece in pieces:
                view = memoryview(piece)
                while len(view):
                    written = self.write_some(descriptor, view)
                    size += written
                    view = view[written:]
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        return size

    def write_some(self, descriptor: int, raw: memoryview) -> int:
        """Write as many of these bytes as the system takes at once; gives how many."""
        return os.write(descriptor, raw)

    def sync(self, descriptor: int) -> None:
        """Wait until the disk has what was written."""
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, at once and whole."""
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        """Wait until the disk has a directory's entries."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def fingerprint(self, path: Path) -> tuple[int, int, int] | None:
        """Give numbers that change when a file is replaced or written to, or None when there is no such file.

        They are its inode, its size, and the time of the last write in nanoseconds.
        """
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def read(self, path: Path, *, max_bytes: int) -> bytearray:
        """Read a whole regular file.

        Raises:
            NotARegularFileError: If it is anything else.
            ValueError: If it is larger than `max_bytes`.
        """
        descriptor = os.open(path, _READ_FLAGS)
        try:
            size = self._regular(path, os.fstat(descriptor)).st_size
            if size > max_bytes:
                raise ValueError(f"{size:,} bytes, more than the {max_bytes:,} expected")
            raw = bytearray(size)
            view, filled = memoryview(raw), 0
            while filled < size:
                got = os.readv(descriptor, [view[filled:]])
                if not got:
                    break
                filled += got
            return raw if filled == size else raw[:filled]
        finally:
            os.close(descriptor)

    def remove_file(self, path: Path) -> None:
        """Remove a file; one that does not exist is fine."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove whatever this is, without following links."""
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
        elif path.exists():
            shutil.rmtree(path)

    @staticmethod
    def _regular(path: Path, found: os.stat_result) -> os.stat_result:
        if not stat.S_ISREG(found.st_mode):
            raise NotARegularFileError(f"{path.name} is not a regular file")
        return found
