"""Copies with checksums on the way, of a state into the memory of its data files, and of read bytes to their place.

The compiled routine does both in one pass, past the processor's cache. Without it each chunk is copied and then added
up, while the cache still has half of it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from spotkeep.loaded import loaded
from spotkeep.native.copy_and_add import CopyAndAdd, is_available
from spotkeep.state.arrays import Buffer, DeviceBytes
from spotkeep.state.encoding import Blob

from .chunk_checksums import checksum_from_rest, checksum_from_sums, chunk_checksum, chunk_checksums, rest_start
from .manifest import CHUNK_BYTES
from .shared_work import Piece, pieces

# Below this, handing the interpreter's lock over costs more than the copy.
_SMALL_COPY_BYTES = 2**14


class FileCopy(Protocol):
    """The content of one file. The sources of its bytes are known, and nothing of it is copied yet."""

    def copy(self, start: int, end: int) -> list[str]:
        """Copy the bytes between two places. Several threads may copy different parts.

        Args:
            start: The beginning of a chunk.
            end: The end of a chunk or of the file.

        Returns:
            The checksums of the chunks there.
        """


def file_copy(raw: memoryview, blobs: Iterable[Blob]) -> FileCopy:
    """Find the source of each byte, and put zeros where there is none.

    All of it comes before the first copy, because Python code in one thread holds the others up.

    Args:
        raw: The memory of the file.
        blobs: Its blobs, in the order of their places. Those of a GPU are there already.

    Raises:
        TypeError: A blob has no bytes to copy.
    """
    blobs = list(blobs)
    end = 0
    for blob in blobs:
        _clear(raw[end : blob.offset])
        end = blob.offset + len(blob.raw)
    _clear(raw[end:])
    return _OnePass(raw, blobs) if is_available() else _TwoPasses(raw, blobs)


class _OnePass:
    """By the compiled routine."""

    def __init__(self, raw: memoryview, blobs: Iterable[Blob]) -> None:
        self._raw = raw
        self._content = CopyAndAdd([(blob.offset, _here(blob, raw)) for blob in blobs], file=raw)

    def copy(self, start: int, end: int) -> list[str]:
        sums = self._content.column_sums(start, end, chunk_bytes=CHUNK_BYTES)
        chunks = (self._raw[low : min(low + CHUNK_BYTES, end)] for low in range(start, end, CHUNK_BYTES))
        return [checksum_from_sums(found, chunk) for found, chunk in zip(sums, chunks)]


class _TwoPasses:
    """Copies and adds up in two passes, with NumPy, torch, or Python alone."""

    def __init__(self, raw: memoryview, blobs: Iterable[Blob]) -> None:
        self._raw = raw
        self._copies: list[list[tuple[Any, Any]]] = [[] for _ in pieces(len(raw), CHUNK_BYTES)]
        for blob in blobs:
            if isinstance(blob.raw, DeviceBytes):
                continue
            start, end = blob.offset, blob.offset + len(blob.raw)
            targets, sources = _chunks(raw[start:end], start), _chunks(blob.raw, start)
            for number, copy in enumerate(zip(targets, sources), start // CHUNK_BYTES):
                self._copies[number].append(copy)

    def copy(self, start: int, end: int) -> list[str]:
        checksums = []
        for low in range(start, end, CHUNK_BYTES):
            for target, source in self._copies[low // CHUNK_BYTES]:
                copy_bytes(target, source)
            checksums.append(chunk_checksum(self._raw[low : min(low + CHUNK_BYTES, end)]))
        return checksums


class MemoryOfFile:
    """Memory, as the parts of a data file that it should be equal to. Nothing is copied.

    Args:
        runs: The places in the file, and the memory, in the order of the places, never overlapping. Bytes between them
            count as zeros.
    """

    def __init__(self, runs: Sequence[tuple[int, memoryview]]) -> None:
        self._runs = runs
        self._starts = [start for start, _ in runs]
        self._ends = [start + len(memory) for start, memory in runs]
        self._routine = CopyAndAdd(runs) if is_available() else None

    def pieces(self, size: int, piece_bytes: int) -> list[Piece]:
        """Cut a file into pieces of whole chunks, those of them that some of the memory belongs to.

        Args:
            size: The size of the file.
            piece_bytes: The size of a piece.
        """
        return [piece for piece in pieces(size, piece_bytes) if self.between(*piece)]

    def between(self, start: int, end: int) -> range:
        """Give the indices of the runs that have bytes between two places."""
        return range(bisect.bisect_right(self._ends, start), bisect.bisect_left(self._starts, end))

    def within(self, start: int, end: int) -> list[tuple[int, int, int, memoryview]]:
        """Give the memory between two places, each piece with the index of its run, its beginning and its end."""
        found = []
        for index in self.between(start, end):
            place, memory = self._runs[index]
            low, high = max(place, start), min(place + len(memory), end)
            found.append((index, low, high, memory[low - place : high - place]))
        return found

    def checksums(self, start: int, end: int) -> list[str]:
        """Give the checksums of the chunks between two places, a chunk's beginning and the end of one, or of the file.

        A chunk that none of the memory belongs to has that of zeros.
        """
        chunks = list(pieces(end - start, CHUNK_BYTES))
        if self._routine is None:
            return [chunk_checksum(self._gathered(start + low, start + high)) for low, high in chunks]
        sums = self._routine.column_sums(start, end, chunk_bytes=CHUNK_BYTES)
        found = []
        for chunk_sums, (low, high) in zip(sums, chunks):
            rest = rest_start(high - low)
            found.append(
                checksum_from_rest(chunk_sums, self._gathered(start + low + rest, start + high), whole=not rest)
            )
        return found

    def _gathered(self, start: int, end: int) -> bytearray:
        found = bytearray(end - start)
        for _, low, high, memory in self.within(start, end):
            found[low - start : high - start] = memory
        return found


def copy_chunks(target: memoryview, source: memoryview) -> list[str]:
    """Copy chunks of a file, the last perhaps shorter, and give their checksums. Other threads run meanwhile."""
    if is_available():
        sums = CopyAndAdd([(0, source)], file=target).column_sums(0, len(source), chunk_bytes=CHUNK_BYTES)
        chunks = (source[low:high] for low, high in pieces(len(source), CHUNK_BYTES))
        return [checksum_from_sums(found, chunk) for found, chunk in zip(sums, chunks)]
    copy_bytes(unlocked(target), unlocked(source))
    return chunk_checksums(source, CHUNK_BYTES)


def _here(blob: Blob, raw: memoryview) -> Buffer:
    """Give the bytes of a blob. Those from a GPU are in the file's memory already."""
    return raw[blob.offset : blob.offset + len(blob.raw)] if isinstance(blob.raw, DeviceBytes) else blob.raw


def _chunks(raw: Any, start: int) -> list[Any]:
    """Cut bytes at the chunks of their file, and give them `unlocked`.

    Args:
        raw: The bytes.
        start: Their place in the file.
    """
    raw = unlocked(raw)
    edges = [0, *range(-start % CHUNK_BYTES, len(raw), CHUNK_BYTES), len(raw)]
    return [raw[low:high] for low, high in zip(edges, edges[1:]) if low < high]


def _clear(raw: memoryview) -> None:
    if len(raw):
        raw[:] = bytes(len(raw))


def unlocked(raw: Any) -> Any:
    """Give bytes in a form that is copied while other threads run.

    That is an array, if NumPy is there and they are many.
    """
    numpy = loaded("numpy")
    return memoryview(raw) if numpy is None or len(raw) < _SMALL_COPY_BYTES else numpy.frombuffer(raw, dtype="u1")


def copy_bytes(target: Any, source: Any) -> None:
    """Copy bytes. Both are memory, or both are `unlocked`."""
    target[:] = source
