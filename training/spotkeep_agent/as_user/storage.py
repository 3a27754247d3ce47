"""Checkpoints on the volume for the library's own reader and writer, which reach the disk with the user's rights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from spotkeep.disk.storage import LocalStorage, ReadableFile

from .files import UserFiles
from .operations import FILE, FOLDER


class UserStorage(LocalStorage):
    """A `LocalStorage` below a folder of the user that trains.

    Args:
        files: Below that folder.
    """

    def __init__(self, files: UserFiles) -> None:
        self._files = files

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents. An existing one is no error."""
        self._files.make_folder(self._files.relative(path))

    def names(self, path: Path) -> list[str]:
        """List a directory. A missing one is empty."""
        return self._files.names(self._files.relative(path))

    def is_directory(self, path: Path) -> bool:
        """Return True for a directory itself, and False for a link to one."""
        (found,) = self._files.find([self._files.relative(path)])
        return found is not None and found.kind == FOLDER

    @contextlib.contextmanager
    def create(self, path: Path, *, direct: bool = False) -> Iterator[int]:
        """Make a new file through the page cache and give its descriptor. It replaces an existing one."""
        del direct
        descriptor = self._files.create(self._files.relative(path))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_to_fill(self, path: Path) -> int:
        """Open a regular file for reading and writing, made if it is missing, without following a link to it."""
        place = self._files.relative(path)
        (found,) = self._files.find([place])
        if found is not None and found.kind != FILE:
            self._files.remove(place)
        return self._files.open_to_fill(place)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, at once and whole."""
        self._files.rename(self._files.relative(source), self._files.relative(target))

    def sync_directory(self, path: Path) -> None:
        """Wait until the disk has a directory's entries."""
        self._files.sync_folder(self._files.relative(path))

    def fingerprint(self, path: Path) -> tuple[int, int, int] | None:
        """Return numbers that change when a file is replaced or written to, or None when there is no such file."""
        (found,) = self._files.find([self._files.relative(path)])
        return None if found is None else (found.inode, found.size, found.modified_ns)

    def open(self, path: Path) -> ReadableFile:
        """Open a regular file for reading."""
        return ReadableFile(path, descriptor=self._files.open(self._files.relative(path)))

    def remove_file(self, path: Path) -> None:
        """Remove a file. A missing one is no error."""
        self._files.remove(self._files.relative(path))

    def remove_tree(self, path: Path) -> None:
        """Remove whatever this is, without following links."""
        self._files.remove(self._files.relative(path))
