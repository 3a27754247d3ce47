"""The bytes of volumes and snapshots, in sparse image files for block devices, and in directories elsewhere."""

from __future__ import annotations

import abc
import os
import shutil
import subprocess
import sys
from pathlib import Path

_GIB = 1 << 30


class Images(abc.ABC):
    """The images of volumes and snapshots, by id.

    Args:
        folder: Their folder. A missing one is made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    @abc.abstractmethod
    def path(self, image_id: str) -> Path:
        """Return the file or the directory."""

    @abc.abstractmethod
    def create(self, image_id: str, *, size_gib: int, source_id: str | None = None) -> None:
        """Make an image, empty or a copy of another at this moment."""

    @abc.abstractmethod
    def used_bytes(self, image_id: str) -> int:
        """Return the number of its bytes that hold data."""

    @abc.abstractmethod
    def delete(self, image_id: str) -> None:
        """Remove it. A missing one is no error."""


class BlockImages(Images):
    """Sparse files."""

    def path(self, image_id: str) -> Path:
        """Return the file."""
        return self._folder / f"{image_id}.img"

    def create(self, image_id: str, *, size_gib: int, source_id: str | None = None) -> None:
        """Copy the blocks with data, and share them with the source where the file system can."""
        path = self.path(image_id)
        if source_id is None:
            path.touch()
        else:
            subprocess.run(
                ["cp", "--sparse=always", "--reflink=auto", str(self.path(source_id)), str(path)],
                check=True,
                capture_output=True,
            )
        os.truncate(path, max(size_gib * _GIB, path.stat().st_size))

    def used_bytes(self, image_id: str) -> int:
        """Return the file's size on the disk."""
        return self.path(image_id).stat().st_blocks * 512

    def delete(self, image_id: str) -> None:
        """Remove the file."""
        self.path(image_id).unlink(missing_ok=True)


class DirectoryImages(Images):
    """Directories. Their size is not enforced."""

    def path(self, image_id: str) -> Path:
        """Return the directory."""
        return self._folder / image_id

    def create(self, image_id: str, *, size_gib: int, source_id: str | None = None) -> None:  # noqa: ARG002
        """Copy a directory. During writes to it, the copy holds each file at some moment."""
        path = self.path(image_id)
        if source_id is not None:
            # Not copytree: a file that a live instance replaces meanwhile would end it.
            flags = "-a" if sys.platform == "linux" else "-pPR"
            subprocess.run(["cp", flags, str(self.path(source_id)), str(path)], check=False, capture_output=True)
        path.mkdir(exist_ok=True)

    def used_bytes(self, image_id: str) -> int:
        """Return the size of all files."""
        return sum(path.stat().st_size for path in self.path(image_id).rglob("*") if path.is_file())

    def delete(self, image_id: str) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path(image_id), ignore_errors=True)
