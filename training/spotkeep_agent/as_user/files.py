"""Files below a folder of the user that trains, and the checkpoints on the volume among them.

A process with that user's rights resolves paths, and the caller moves the bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spotkeep.disk.storage import LocalStorage, ReadableFile

from .operations import FILE, FOLDER, PathStatus
from .process import SECONDS, Perform, perform_here

_TREE_SECONDS = 3600.0  # to walk a whole tree, to remove it, to pack it
_DRAFT_SUFFIX = ".spotkeep-draft"


class UserFiles:
    """The files below one folder. Paths are relative to it, with slashes. Every method raises OSError.

    Args:
        base: The folder.
        perform: Performs the operations. It is a `UserProcess`, or this process with only one user.
    """

    def __init__(self, base: Path, *, perform: Perform = perform_here) -> None:
        self.base = base
        self._perform_operation = perform

    def relative(self, path: Path) -> str:
        """Return an absolute path as one relative to the folder.

        Raises:
            ValueError: If it is not below it.
        """
        found = path.relative_to(self.base).as_posix()
        return "" if found == "." else found

    def names(self, path: str) -> list[str]:
        """List a folder. A missing one is empty."""
        return [str(name) for name in self._perform("names", path)]

    def find(self, paths: Sequence[str]) -> list[PathStatus | None]:
        """Return the status of each of these paths, with None for a missing one."""
        return [None if found is None else PathStatus(*found) for found in self._perform("find", list(paths))]

    def scan(self, path: str) -> dict[str, tuple[int, int]]:
        """List the regular files below a folder by relative paths, with size and time of the last write in ns."""
        found = self._perform("scan", path, seconds=_TREE_SECONDS)
        return {str(name): (int(size), int(at)) for name, (size, at) in found.items()}

    # The caller closes what these open.

    def open(self, path: str) -> int:
        """Open a regular file for reading. Return its descriptor."""
        return int(self._perform("open_file", path))

    def open_within(self, folder: str, path: str) -> int:
        """Open a regular file of a folder for reading, through links as well, as long as they stay in the folder."""
        return int(self._perform("open_within", folder, path))

    def open_to_fill(self, path: str) -> int:
        """Open a regular file for reading and writing, and make a missing one. Its content stays."""
        return int(self._perform("open_to_fill", path))

    def create(self, path: str) -> int:
        """Make a new file, in the place of anything there but a folder. Return its descriptor."""
        return int(self._perform("create", path))

    def read(self, path: str, *, most_bytes: int) -> bytes:
        """Read the first bytes of a regular file."""
        descriptor = self.open(path)
        try:
            return os.pread(descriptor, most_bytes, 0)
        finally:
            os.close(descriptor)

    def write(self, path: str, raw: bytes) -> None:
        """Write a file, whole or not at all. Afterwards it is on the disk."""
        draft = path + _DRAFT_SUFFIX
        descriptor = self.create(draft)
        try:
            write_all(descriptor, raw, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.rename(draft, path)

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents. An existing one is no error."""
        self._perform("make_folder", path)

    def rename(self, source: str, target: str) -> None:
        """Give a file its final name, at once and whole."""
        self._perform("rename", source, target)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content. A missing one is no error."""
        self._perform("remove", path, seconds=_TREE_SECONDS)

    def link(self, path: str, target: str) -> None:
        """Make a link to any path of this machine. Nothing may be at its own."""
        self._perform("link", path, target)

    def link_target(self, path: str) -> str | None:
        """Return the path that a link leads to. None for anything else."""
        found: str | None = self._perform("link_target", path)
        return found

    def sync_folder(self, path: str) -> None:
        """Wait until the disk has a folder's entries."""
        self._perform("sync_folder", path)

    def pack(self, path: str, descriptor: int) -> bool:
        """Pack a folder into a compressed archive that is open for writing. Return True when it holds anything."""
        return bool(self._perform("pack", path, descriptor=descriptor, seconds=_TREE_SECONDS))

    def _perform(self, name: str, *arguments: Any, descriptor: int | None = None, seconds: float = SECONDS) -> Any:
        return self._perform_operation(name, *arguments, base=self.base, descriptor=descriptor, seconds=seconds)


def write_all(descriptor: int, raw: bytes, offset: int) -> None:
    """Write all of these bytes to a place in an open file."""
    view = memoryview(raw)
    while view:
        view = view[os.pwrite(descriptor, view, offset + len(raw) - len(view)) :]


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
