"""Unpacks the archive of a function or of a layer once, for all processes in which it runs.

ministack unpacks both for each process: most of a second of processor time, and what is in them is compiled anew. Here
a process gets links to what is there, with the byte code that the first one has written. A function does not write
there itself: on AWS it cannot.

What is unpacked stays for the next server on the same state, as long as each server runs something of it.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import zipfile
from pathlib import Path


class UnpackedArchives:
    """What was unpacked so far.

    Args:
        directory: Where it is; it need not be there yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._unpacking = threading.Lock()
        self._used: set[Path] = set()

    def link(self, archive: Path, target: Path) -> None:
        """Put links to what an archive holds into a directory.

        Args:
            archive: A ZIP archive.
            target: There, and empty.

        Raises:
            OSError: The disk refuses.
            zipfile.BadZipFile: It is no such archive.
        """
        for entry in self._unpacked(archive).iterdir():
            (target / entry.name).symlink_to(entry)

    def remove_unused(self) -> None:
        """Remove what an earlier server has unpacked and nothing has run since: of functions that have changed."""
        for place in self._directory.glob("*"):
            if place not in self._used:
                shutil.rmtree(place, ignore_errors=True)

    def _unpacked(self, archive: Path) -> Path:
        place = self._directory / hashlib.sha256(archive.read_bytes()).hexdigest()
        with self._unpacking:
            if not place.exists():
                whole_later = place.with_suffix(".part")
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(whole_later)
                whole_later.rename(place)
            self._used.add(place)
        return place
