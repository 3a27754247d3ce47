"""Data files: written while they are still being copied, read straight into the memory that waits for them.

Two threads share the pieces of a file, so one works while the other waits for the disk. What the page cache has is read
into its target and verified there, while the processor's cache still has it. What is on the disk is read past the page
cache in larger pieces, into memory that is aligned for that, verified, and copied to where it belongs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

from .chunk_checksums import chunk_checksum
from .manifest import CHUNK_BYTES
from .shared_work import Piece, pieces, share
from .snapshot import copy_bytes, new_memory
from .storage import WRITE_BYTES, LocalStorage, ReadableFile

_READ_BYTES = 8 * CHUNK_BYTES

Target = tuple[int, memoryview]
"""Where in a file some bytes are, and the memory they belong to."""


class AlteredChunkError(Exception):
    """A chunk is not what its checksum vouches for.

    Attributes:
        offsets: Its first byte and the one after its last.
    """

    def __init__(self, problem: str, *, offsets: tuple[int, int]) -> None:
        self.offsets = offsets
        super().__init__(problem)


def write_file(
    storage: LocalStorage, path: Path, raw: memoryview, *, wait: Callable[[int], None] | None = None
) -> None:
    """Write a data file and wait until the disk has it.

    Args:
        storage: The disk.
        path: Where; nothing may be there.
        raw: Its bytes.
        wait: Called with the end of a piece of `WRITE_BYTES` before it is written; returns when its bytes are there.

    Raises:
        OSError: If the disk refuses.
    """
    with storage.create(path, direct=True) as descriptor:

        def write_pieces(left: Iterator[Piece]) -> None:
            for start, end in left:
                if wait is not None:
                    wait(end)
                storage.write_at(descriptor, raw[start:end], start)

        share(len(raw), WRITE_BYTES, write_pieces)
        storage.sync(descriptor)


def read_file(file: ReadableFile, checksums: Sequence[str], targets: Sequence[Target] = ()) -> None:
    """Read a whole data file, verify it, and put its bytes where they belong.

    Args:
        file: The file; `file.size` is what it should be.
        checksums: Those of its chunks.
        targets: In the order of their places, never overlapping.

    Raises:
        OSError: If the disk refuses.
        AlteredChunkError: If a chunk is not what it was. Some targets have been filled then, the one of that chunk
            too.
    """
    share(file.size, _READ_BYTES, lambda left: _Reader(file, checksums, targets).read(left))


def read_part(file: ReadableFile, checksums: Sequence[str], offset: int, size: int) -> bytes:
    """Read some bytes of a data file, verified.

    Raises:
        OSError: If the disk refuses.
        AlteredChunkError: If a chunk that holds some of them is not what it was.
    """
    found = bytearray()
    for start in range(offset - offset % CHUNK_BYTES, offset + size, CHUNK_BYTES):
        chunk = memoryview(new_memory(min(CHUNK_BYTES, file.size - start)))
        _fill(file, chunk, start, cached=file.is_cached(start))
        _verify(chunk, start, checksums)
        found += chunk[max(offset - start, 0) : offset + size - start]
    return bytes(found)


class _Reader:
    """Reads pieces of one file in one thread."""

    def __init__(self, file: ReadableFile, checksums: Sequence[str], targets: Sequence[Target]) -> None:
        self._file = file
        self._checksums = checksums
        self._targets = targets
        self._places = [place for place, _ in targets]
        self._memory = memoryview(b"")

    def read(self, left: Iterator[Piece]) -> None:
        for start, end in left:
            chunks = [(start + first, start + last) for first, last in pieces(end - start, CHUNK_BYTES)]
            if self._file.is_cached(start):
                for first, last in chunks:
                    self._read_cached(first, last)
            else:
                found = self._own_memory(end - start)
                _fill(self._file, found, start, cached=False)
                for first, last in chunks:
                    self._hand_out(found[first - start : last - start], first)

    def _read_cached(self, start: int, end: int) -> None:
        around = bisect.bisect_right(self._places, start) - 1
        if around >= 0:
            place, target = self._targets[around]
            if end <= place + len(target):
                chunk = target[start - place : end - place]
                _fill(self._file, chunk, start, cached=True)
                _verify(chunk, start, self._checksums)
                return
        chunk = self._own_memory(end - start)
        _fill(self._file, chunk, start, cached=True)
        self._hand_out(chunk, start)

    def _hand_out(self, chunk: memoryview, start: int) -> None:
        _verify(chunk, start, self._checksums)
        end = start + len(chunk)
        first = max(bisect.bisect_right(self._places, start) - 1, 0)
        for place, target in self._targets[first : bisect.bisect_left(self._places, end)]:
            low, high = max(place, start), min(place + len(target), end)
            if low < high:
                copy_bytes(target[low - place : high - place], chunk[low - start : high - start])

    def _own_memory(self, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = memoryview(new_memory(size))
        return self._memory[:size]


def _fill(file: ReadableFile, memory: memoryview, start: int, *, cached: bool) -> None:
    got = file.read_into(memory, start, cached=cached)
    if got != len(memory):
        raise AlteredChunkError(
            f"cut short while it was read: it ends at byte {start + got:,}", offsets=(start, start + len(memory))
        )


def _verify(chunk: memoryview, start: int, checksums: Sequence[str]) -> None:
    number = start // CHUNK_BYTES
    found = chunk_checksum(chunk)
    if found != checksums[number]:
        raise AlteredChunkError(
            f"altered: chunk {number} has checksum {found} instead of {checksums[number]}",
            offsets=(start, start + len(chunk)),
        )
