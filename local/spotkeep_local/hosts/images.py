"""The bytes of volumes and snapshots: sparse image files where volumes are block devices, directories elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from spotkeep_local.hosts import loop_devices

_GIB = 1 << 30


class Images(Protocol):
    """Where the bytes of volumes and snapshots lie, by id."""

    def create(self, image_id: str, *, size_gib: int, source_id: str | None = None) -> None:
        """Makes an image: empty, or a copy of another as it is at this moment."""
        ...

    def used_bytes(self, image_id: str) -> int:
        """How many bytes of it hold data."""
        ...

    def path(self, image_id: str) -> Path:
        """The file or the directory."""
        ...

    def delete(self, image_id: str) -> None:
        """Removes it; nothing happens when it is not there."""
        ...

    def ids(self) -> set[str]:
        """All there are."""
        ...

    def wait_until_unused(self, *, seconds: float) -> bool:
        """Waits until nothing of a server that was killed uses any; False when that takes longer."""
        ...


class BlockImages:
    """Sparse files.

    Args:
        folder: Where they are; made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def create(self, image_id: str, *, size_gib: int, source_id: str | None = None) -> None:
        """See `Images`. Copies what holds data, and shares it with the source where the file system can."""
        draft = self._folder / f"{image_id}.draft"
        if source_id is None:
            draft.touch()
        else:
            subprocess.run(
                ["cp", "--sparse=always", "--reflink=auto", str(self.path(source_id)), str(draft)],
                check=True,
                capture_output=True,
            )
        os.truncate(draft, max(size_gib * _GIB, draft.stat().st_size))
        draft.replace(self.path(image_id))

    def used_bytes(self, image_id: str) -> int:
        """See `Images`."""
        return self.path(image_id).stat().st_blocks * 512

    def path(self, image_id: str) -> Path:
        """See `Images`."""
        return self._folder / f"{image_id}.img"

    def delete(self, image_id: str) -> None:
        """See `Images`."""
        self.path(image_id).unlink(missing_ok=True)

    def ids(self) -> set[str]:
        """See `Images`. Removes what a dead server was writing."""
        for draft in self._folder.glob("*.draft"):
            draft.unlink()
        return {path.stem for path in self._folder.glob("*.img")}

    def wait_until_unused(self, *, seconds: float) -> bool:
        """See `Images`."""
        return loop_devices.wait_until_unused(self._folder, seconds=seconds)


class DirectoryImages:
    """Directories. Their size is not enforced.

    Args:
        folder: Where they are; made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def create(self, image_id: str, *, size_gib: int, source_id: str | None = None) -> None:  # noqa: ARG002
        """See `Images`. A copy of a directory that is being written to holds each file as it was at some moment."""
        draft = self._folder / f"{image_id}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        if source_id is None:
            draft.mkdir()
        else:
            # Not copytree: a file that a live instance replaces meanwhile would end it.
            flags = "-a" if sys.platform == "linux" else "-pPR"
            subprocess.run(["cp", flags, str(self.path(source_id)), str(draft)], check=False, capture_output=True)
            draft.mkdir(exist_ok=True)
        draft.rename(self.path(image_id))

    def used_bytes(self, image_id: str) -> int:
        """See `Images`."""
        return sum(path.stat().st_size for path in self.path(image_id).rglob("*") if path.is_file())

    def path(self, image_id: str) -> Path:
        """See `Images`."""
        return self._folder / image_id

    def delete(self, image_id: str) -> None:
        """See `Images`."""
        shutil.rmtree(self.path(image_id), ignore_errors=True)

    def ids(self) -> set[str]:
        """See `Images`."""
        for draft in self._folder.glob("*.draft"):
            shutil.rmtree(draft, ignore_errors=True)
        return {path.name for path in self._folder.iterdir() if path.is_dir()}

    def wait_until_unused(self, *, seconds: float) -> bool:  # noqa: ARG002 - the processes are waited for
        """See `Images`."""
        return True
