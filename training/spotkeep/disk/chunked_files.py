"""Data files.

They are written while they are still being copied, and read straight into the memory that waits for them.

Threads share the pieces of a file, so some work while others wait for the disk. Bytes in the page cache are read into
their target and verified there. Bytes on the disk are read past the page cache into aligned memory. They are verified
while they are copied to their target.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Protocol, Union

from spotkeep.native.crc32 import crc32
from spotkeep.state.resharding import Scattered

from .checksum_copy import MemoryOfFile, copy_bytes, copy_chunks, unlocked
from .chunk_checksums import chunk_checksums
from .manifest import CHUNK_BYTES
from .shared_work import Piece as Span
from .shared_work import memory_threads, pieces, share
from .staged_state import FIRST_COPY_BYTES, new_memory
from .storage import ALIGNMENT_BYTES, WRITE_BYTES, LocalStorage, ReadableFile

# From the page cache. More goes through memory that is new and out of the processor's cache, less waits for the
# interpreter's lock more often.
_READ_BYTES = 2 * CHUNK_BYTES
# Most of them wait for the disk, while others add up and copy what it gave. Larger reads cost the processor less, but
# the first comes later, and more is left to do when the disk has given the last.
_DISK_READERS = 24
_DISK_READ_BYTES = CHUNK_BYTES

_COMPARED_BYTES = 16 * CHUNK_BYTES


class TakesBytes(Protocol):
    """Takes the bytes of a place in a file, in parts and from several threads."""

    def __len__(self) -> int:
        """Give the number of bytes."""

    def put(self, start: int, raw: memoryview) -> None:
        """Take some of the bytes, from `start` on."""


Target = tuple[int, Union[memoryview, TakesBytes]]
"""A place in a file, and the memory that its bytes belong to."""

CutChunks = dict[Span, int]
"""The CRC-32 of bytes between two places of a file, for chunks of which a rank needs a part."""


class AlteredChunkError(Exception):
    """A chunk does not match its checksum.

    Attributes:
        offsets: Its first byte and the one after its last.
    """

    def __init__(self, problem: str, *, offsets: tuple[int, int]) -> None:
        self.offsets = offsets
        super().__init__(problem)


def write_file(
    storage: LocalStorage,
    path: Path,
    raw: memoryview,
    *,
    wait: Callable[[int], None] | None = None,
) -> None:
    """Write a data file and wait until the disk has it.

    Args:
        storage: The disk.
        path: The path, with no file yet.
        raw: Its bytes.
        wait: Called with a piece's end before its write. Returns when all bytes before it are there.

    Raises:
        OSError: The disk refuses.
    """
    with storage.create(path, direct=True) as descriptor:

        def write_pieces(left: Iterator[Span]) -> None:
            for start, end in left:
                if wait is not None:
                    wait(end)
                storage.write_at(descriptor, raw[start:end], start)

        share(_growing_pieces(len(raw)), write_pieces)
        storage.sync(descriptor)


def read_data_file(
    file: ReadableFile,
    checksums: Sequence[str],
    targets: Sequence[Target] | None = None,
    *,
    cut: CutChunks | None = None,
) -> None:
    """Read and verify a data file, and put its bytes into their targets.

    Args:
        file: The file. `file.size` is its expected size.
        checksums: The checksums of its chunks.
        targets: In the order of their places, never overlapping. Only chunks that hold bytes of theirs are read. None
            to verify the whole file.
        cut: Takes note of chunks that hold other bytes as well.

    Raises:
        OSError: The disk refuses.
        AlteredChunkError: A chunk has changed. Some targets have been filled then, the one of that chunk too.
    """
    reader = _Reader(file, checksums, targets or (), {} if cut is None else cut)
    needed = [(0, file.size)] if targets is None else list(_needed_chunks(targets, file.size))
    if file.is_cached():
        share(_within(needed, _READ_BYTES), reader.read_cached, threads=memory_threads())
        return
    row = list(_within(needed, _DISK_READ_BYTES))
    if not row:
        return
    # In one piece, so that most of it is large pages, which the disk reads into faster.
    memory = memoryview(new_memory(min(_DISK_READERS, len(row)) * _DISK_READ_BYTES))
    places = [memory[start:end] for start, end in pieces(len(memory), _DISK_READ_BYTES)]
    share(row, lambda left: reader.read_from_disk(left, places.pop()), threads=len(places))


def _needed_chunks(targets: Sequence[Target], size: int) -> Iterator[Span]:
    """Give the whole chunks that hold bytes of the targets, as long as they go on without a gap."""
    start = end = 0
    for place, target in targets:
        low = place // CHUNK_BYTES * CHUNK_BYTES
        if low > end:
            yield start, end
            start = low
        end = max(end, min(-(-(place + len(target)) // CHUNK_BYTES) * CHUNK_BYTES, size))
    yield start, end


def _within(spans: Sequence[Span], piece_bytes: int) -> Iterator[Span]:
    """Cut spans into pieces."""
    return ((start + low, start + high) for start, end in spans for low, high in pieces(end - start, piece_bytes))


def read_part(file: ReadableFile, checksums: Sequence[str], offset: int, size: int) -> bytes:
    """Read some bytes of a data file, verified.

    Raises:
        OSError: The disk refuses.
        AlteredChunkError: A chunk that holds some of them has changed.
    """
    found = bytearray()
    for start in range(offset - offset % CHUNK_BYTES, offset + size, CHUNK_BYTES):
        chunk = memoryview(new_memory(min(CHUNK_BYTES, file.size - start)))
        _fill(file, chunk, start, cached=True)
        _verify(chunk, start, checksums)
        found += chunk[max(offset - start, 0) : offset + size - start]
    return bytes(found)


def read_chunks(file: ReadableFile, checksums: Sequence[str], offset: int, memory: memoryview) -> int:
    """Read whole chunks of a data file into memory, verified. Gives the CRC-32 of all of them.

    The last one may be the shorter last one of the file. The processor's cache has each while it is added up.

    Raises:
        OSError: The disk refuses.
        AlteredChunkError: A chunk has changed. The memory holds anything then.
    """
    found = 0
    for start, end in pieces(len(memory), CHUNK_BYTES):
        chunk = memory[start:end]
        _fill(file, chunk, offset + start, cached=True)
        _verify(chunk, offset + start, checksums)
        found = crc32(chunk, found)
    return found


def altered_memory(
    file: ReadableFile, checksums: Sequence[str], memory: Sequence[Target], *, cut: Mapping[Span, int] | None = None
) -> list[int]:
    """Find the memory that differs from its place in a data file.

    Equal checksums show equality from the memory alone. Only the chunks with other checksums are read again.

    Args:
        file: The file. `file.size` is its expected size.
        checksums: The checksums of its chunks.
        memory: In the order of their places, never overlapping.
        cut: The CRC-32 of some of its bytes, as `read_data_file` noted them. These are not read again.

    Returns:
        The indices of those that differ.

    Raises:
        OSError: The disk refuses.
        AlteredChunkError: A chunk that was read again has changed.
    """
    in_one_piece = [(index, place, held) for index, (place, held) in enumerate(memory) if isinstance(held, memoryview)]
    runs = [(place, held) for _, place, held in in_one_piece]
    content = MemoryOfFile(runs)
    suspicious: list[int] = []

    def look(left: Iterator[Span]) -> None:
        for start, end in left:
            for number, found in enumerate(content.checksums(start, end), start // CHUNK_BYTES):
                # Of several ranks each has the chunks that it needs.
                is_here = content.between(number * CHUNK_BYTES, (number + 1) * CHUNK_BYTES)
                if found != checksums[number] and is_here:
                    suspicious.append(number)

    threads = memory_threads()
    share(content.pieces(file.size, _COMPARED_BYTES), look, threads=threads)
    altered: set[int] = set()
    known = cut or {}
    for number in sorted(suspicious):
        start = number * CHUNK_BYTES
        end = min(start + CHUNK_BYTES, file.size)
        found = content.within(start, end)
        if all((low, high) in known for _, low, high, _ in found):
            altered |= {
                in_one_piece[index][0] for index, low, high, held in found if zlib.crc32(held) != known[low, high]
            }
            continue
        saved = memoryview(read_part(file, checksums, start, end - start))
        altered |= {
            in_one_piece[index][0]
            for index, low, high, held in found
            if bytes(held) != bytes(saved[low - start : high - start])
        }
    compared = {
        index: (place, _Compared(held)) for index, (place, held) in enumerate(memory) if isinstance(held, Scattered)
    }
    if compared:
        read_data_file(file, checksums, list(compared.values()))
    return sorted(altered | {index for index, (_, one) in compared.items() if one.differs})


class _Compared:
    """Takes the bytes of a file in the place of memory, and compares them with it."""

    def __init__(self, memory: Scattered) -> None:
        self._memory = memory
        self.differs = False

    def __len__(self) -> int:
        return len(self._memory)

    def put(self, start: int, raw: memoryview) -> None:
        """Compare bytes."""
        if self._memory.differs(start, raw):
            self.differs = True


def _growing_pieces(size: int) -> Iterator[Span]:
    """Cut a file into pieces for writing, small ones first, so that the disk does not wait for the copy."""
    start = 0
    while start < size:
        end = min(start + min(max(start, FIRST_COPY_BYTES), WRITE_BYTES), size)
        yield start, end
        start = end


class _Reader:
    """Reads pieces of one file, in any number of threads."""

    def __init__(self, file: ReadableFile, checksums: Sequence[str], targets: Sequence[Target], cut: CutChunks) -> None:
        self._file = file
        self._checksums = checksums
        self._targets = targets
        self._cut = cut
        self._places = [place for place, _ in targets]

    def read_from_disk(self, left: Iterator[Span], memory: memoryview) -> None:
        """Read past the page cache.

        Args:
            left: Pieces of whole chunks.
            memory: Room for one, aligned for direct I/O, for this thread alone.
        """
        for start, end in left:
            self._read_around(start, memory[: end - start], cached=False)

    def read_cached(self, left: Iterator[Span]) -> None:
        """Read as many whole chunks at once as lie in one target, and those that do not one by one."""
        memory = memoryview(b"")
        for piece in left:
            start, end = piece
            while start < end:
                stop = min(start + CHUNK_BYTES, end)
                around = bisect.bisect_right(self._places, start) - 1
                place, target = self._targets[around] if around >= 0 else (0, memoryview(b""))
                inside = place + len(target)
                if isinstance(target, memoryview) and stop <= inside:
                    stop = end if end <= inside else inside // CHUNK_BYTES * CHUNK_BYTES
                    self._read(target[start - place : stop - place], start, cached=True)
                else:
                    memory = memory or memoryview(new_memory(CHUNK_BYTES))
                    self._read_around(start, memory[: stop - start], cached=True)
                start = stop

    def _read_around(self, start: int, memory: memoryview, *, cached: bool) -> None:
        """Read whole chunks into memory of our own, and copy them to the targets."""
        _fill(self._file, memory, start, cached=cached)
        end = start + len(memory)
        first = max(bisect.bisect_right(self._places, start) - 1, 0)
        targets = self._targets[first : bisect.bisect_left(self._places, end)]
        if len(targets) == 1:
            ((place, target),) = targets
            if isinstance(target, memoryview) and place <= start and end <= place + len(target):
                _compare(copy_chunks(target[start - place : end - place], memory), start, end, self._checksums)
                return
        _verify(memory, start, self._checksums)
        held = [(max(place, start), min(place + len(target), end), place, target) for place, target in targets]
        held = [found for found in held if found[0] < found[1]]
        # Zeros that fill up to an aligned place are no bytes of others.
        is_cut = sum(high - low for low, high, *_ in held) + ALIGNMENT_BYTES * (len(held) + 1) < len(memory)
        for low, high, place, target in held:
            raw = memory[low - start : high - start]
            if isinstance(target, memoryview):
                if is_cut:
                    self._cut[low, high] = zlib.crc32(raw)
                copy_bytes(unlocked(target[low - place : high - place]), unlocked(raw))
            else:
                target.put(low - place, raw)

    def _read(self, memory: memoryview, start: int, *, cached: bool) -> None:
        _fill(self._file, memory, start, cached=cached)
        _verify(memory, start, self._checksums)


def _fill(file: ReadableFile, memory: memoryview, start: int, *, cached: bool) -> None:
    got = file.read_into(memory, start, cached=cached)
    if got != len(memory):
        raise AlteredChunkError(
            f"cut short while it was read: it ends at byte {start + got:,}", offsets=(start, start + len(memory))
        )


def _verify(memory: memoryview, start: int, checksums: Sequence[str]) -> None:
    _compare(chunk_checksums(memory, CHUNK_BYTES), start, start + len(memory), checksums)


def _compare(found: Sequence[str], start: int, end: int, checksums: Sequence[str]) -> None:
    for number, checksum in enumerate(found, start // CHUNK_BYTES):
        if checksum != checksums[number]:
            first = number * CHUNK_BYTES
            raise AlteredChunkError(
                f"altered: chunk {number} has checksum {checksum} instead of {checksums[number]}",
                offsets=(first, min(first + CHUNK_BYTES, end)),
            )
