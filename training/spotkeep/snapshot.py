"""One copy of the state in memory that is kept and used again: what is written while the training goes on.

Fresh memory costs many times what a copy into used memory does, because the system hands it out page by page. So the
memory is taken once, touched, and kept: one state's worth, the only memory beyond the state that saving takes.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .state_encoding import Blob
from .storage import ALIGNMENT_BYTES

_PIECE_BYTES = 4 * 2**20
_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", 14)
_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it.
_POPULATE_BYTES = 64 * 2**20


class AbandonedSnapshotError(Exception):
    """The copy was broken off, so there is nothing whole to write."""


@dataclass(frozen=True)
class FileImage:
    """The content of one data file.

    Attributes:
        index: Its number.
        raw: Its bytes; a multiple of 4096, aligned in memory. They are there as far as `Snapshot.wait` says.
        start: Where it begins in the snapshot.
    """

    index: int
    raw: memoryview
    start: int


class Snapshot:
    """A copy of the blobs of a state, laid out as the data files will be.

    The training's thread calls `arrange` and `copy`. Others may write what `wait` says is there.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._copied = 0
        self._abandoned = False
        self._progress = threading.Condition()

    @property
    def capacity_bytes(self) -> int:
        """How much memory is held."""
        return 0 if self._memory is None else len(self._memory)

    def arrange(self, blobs: Sequence[Blob]) -> list[FileImage]:
        """Lay the files out, without their content. Whoever wrote the images of before has finished.

        Raises:
            MemoryError: If there is not enough memory.
        """
        ends: dict[int, int] = {}
        for blob in blobs:
            ends[blob.file_index] = blob.offset + len(blob.raw)
        sizes = {index: -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for index, end in sorted(ends.items())}
        self._hold(sum(sizes.values()))
        self._copied, self._abandoned = 0, False
        images, start = [], 0
        for index, size in sizes.items():
            images.append(
                FileImage(index=index, raw=memoryview(self._memory or b"")[start : start + size], start=start)
            )
            start += size
        return images

    def copy(self, blobs: Sequence[Blob], images: Sequence[FileImage]) -> None:
        """Copy the blobs in, telling those who wait. The state must not change meanwhile."""
        try:
            for image in images:
                end = 0
                for blob in (blob for blob in blobs if blob.file_index == image.index):
                    image.raw[end : blob.offset] = bytes(blob.offset - end)
                    raw = memoryview(blob.raw)
                    end = blob.offset + len(raw)
                    for piece in range(0, len(raw), _PIECE_BYTES):
                        source = raw[piece : piece + _PIECE_BYTES]
                        place = blob.offset + piece
                        copy_bytes(image.raw[place : place + len(source)], source)
                        self._advance(image.start + place + len(source))
                image.raw[end:] = bytes(len(image.raw) - end)
                self._advance(image.start + len(image.raw))
        except BaseException:
            with self._progress:
                self._abandoned = True
                self._progress.notify_all()
            raise

    def wait(self, end: int) -> None:
        """Wait until all bytes before `end` are copied.

        Raises:
            AbandonedSnapshotError: If they never will be.
        """
        with self._progress:
            self._progress.wait_for(lambda: self._abandoned or self._copied >= end)
            if self._abandoned:
                raise AbandonedSnapshotError("the copy of the state was broken off")

    def _advance(self, copied: int) -> None:
        with self._progress:
            self._copied = copied
            self._progress.notify_all()

    def _hold(self, size: int) -> None:
        if size <= self.capacity_bytes:
            return
        # Let go of the old memory first: there are never two.
        self._memory = None
        try:
            self._memory = mmap.mmap(-1, size)
        except OSError as error:
            raise MemoryError(f"no {size:,} bytes of memory for a copy of the state: {error}") from error
        with contextlib.suppress(OSError):
            self._memory.madvise(_HUGE_PAGES)
        # Where the system cannot hand memory out at once, the first copy takes it page by page.
        with contextlib.suppress(OSError, ValueError):
            for start in range(0, size, _POPULATE_BYTES):
                self._memory.madvise(_POPULATE_WRITE, start, min(_POPULATE_BYTES, size - start))


def copy_bytes(target: memoryview, source: Any) -> None:
    """Copy bytes, letting other threads run meanwhile where NumPy is there to do it."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not len(source):
        target[:] = source
    else:
        numpy.copyto(numpy.frombuffer(target, dtype="u1"), numpy.frombuffer(source, dtype="u1"))


def pieces(size: int, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut a length into pieces: the start and end of each."""
    return ((start, min(start + piece_bytes, size)) for start in range(0, size, piece_bytes))
