"""Data files, chunk by chunk: checksums while the disk is busy with another chunk.

Two threads share the chunks of a file. While one waits for the disk, the other computes a checksum, so a file takes
about as long as the disk alone. Reading takes a chunk of memory for each thread and no more: a chunk is verified
there, in the processor's cache, and then copied to where it belongs. No byte that was not verified reaches its target.
"""

from __future__ import annotations

import bisect
import mmap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

from .chunk_checksums import chunk_checksum
from .manifest import CHUNK_BYTES
from .snapshot import copy_bytes, pieces
from .storage import LocalStorage, ReadableFile

_WRITE_BYTES = 4 * CHUNK_BYTES  # A disk likes its writes larger than a processor's cache likes its chunks.

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
) -> tuple[str, ...]:
    """Write a data file and wait until the disk has it. Gives the checksum of each chunk.

    Args:
        storage: The disk.
        path: Where; nothing may be there.
        raw: Its bytes.
        wait: Called with the end of a chunk before it is looked at; returns when its bytes are there.

    Raises:
        OSError: If the disk refuses.
    """
    checksums = [""] * -(-len(raw) // CHUNK_BYTES)
    with storage.create(path, direct=True) as descriptor:

        def write_chunks(chunks: Iterator[tuple[int, int]]) -> None:
            for start, end in chunks:
                if wait is not None:
                    wait(end)
                for first, last in pieces(end - start, CHUNK_BYTES):
                    checksums[(start + first) // CHUNK_BYTES] = chunk_checksum(raw[start + first : start + last])
                storage.write_at(descriptor, raw[start:end], start)

        _share(len(raw), _WRITE_BYTES, write_chunks)
        storage.sync(descriptor)
    return tuple(checksums)


def read_file(file: ReadableFile, checksums: Sequence[str], targets: Sequence[Target] = ()) -> None:
    """Read a whole data file, verify it, and put its bytes where they belong.

    Args:
        file: The file; `file.size` is what it should be.
        checksums: Those of its chunks.
        targets: In the order of their places, never overlapping.

    Raises:
        OSError: If the disk refuses.
        AlteredChunkError: If a chunk is not what it was. Some targets may have been filled then.
    """
    places = [place for place, _ in targets]

    def read_chunks(chunks: Iterator[tuple[int, int]]) -> None:
        memory = memoryview(mmap.mmap(-1, max(min(CHUNK_BYTES, file.size), 1)))
        for start, end in chunks:
            chunk = memory[: end - start]
            _read_chunk(file, chunk, start, checksums[start // CHUNK_BYTES])
            first = max(bisect.bisect_right(places, start) - 1, 0)
            for place, target in targets[first : bisect.bisect_left(places, end)]:
                low, high = max(place, start), min(place + len(target), end)
                if low < high:
                    copy_bytes(target[low - place : high - place], chunk[low - start : high - start])

    _share(file.size, CHUNK_BYTES, read_chunks)


def read_part(file: ReadableFile, checksums: Sequence[str], offset: int, size: int) -> bytes:
    """Read some bytes of a data file, verified.

    Raises:
        OSError: If the disk refuses.
        AlteredChunkError: If a chunk that holds some of them is not what it was.
    """
    found = bytearray()
    for start in range(offset - offset % CHUNK_BYTES, offset + size, CHUNK_BYTES):
        chunk = memoryview(mmap.mmap(-1, min(CHUNK_BYTES, file.size - start)))
        _read_chunk(file, chunk, start, checksums[start // CHUNK_BYTES])
        found += chunk[max(offset - start, 0) : offset + size - start]
    return bytes(found)


def _read_chunk(file: ReadableFile, chunk: memoryview, start: int, expected: str) -> None:
    got = file.read_into(chunk, start)
    offsets = (start, start + len(chunk))
    if got != len(chunk):
        raise AlteredChunkError(f"cut short while it was read: it ends at byte {start + got:,}", offsets=offsets)
    found = chunk_checksum(chunk)
    if found != expected:
        number = start // CHUNK_BYTES
        raise AlteredChunkError(f"altered: chunk {number} has checksum {found} instead of {expected}", offsets=offsets)


class _SharedChunks:
    """The pieces that are left, for all threads, until one of them fails."""

    def __init__(self, size: int, piece_bytes: int) -> None:
        self._left = pieces(size, piece_bytes)
        self._lock = threading.Lock()
        self.problem: BaseException | None = None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return self

    def __next__(self) -> tuple[int, int]:
        with self._lock:
            if self.problem is not None:
                raise StopIteration
            return next(self._left)


def _share(size: int, piece_bytes: int, work: Callable[[Iterator[tuple[int, int]]], None]) -> None:
    """Let this thread and, for more than one piece, another go through the pieces."""
    chunks = _SharedChunks(size, piece_bytes)

    def help_along() -> None:
        try:
            work(chunks)
        except BaseException as problem:  # noqa: BLE001 - it is raised again below, in the thread that asked
            chunks.problem = chunks.problem or problem

    helper = threading.Thread(target=help_along, name="spotkeep-chunks", daemon=True)
    if size > piece_bytes:
        helper.start()
    help_along()
    if size > piece_bytes:
        helper.join()
    if chunks.problem is not None:
        raise chunks.problem
