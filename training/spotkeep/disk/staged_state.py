"""One copy of the state in memory, which is written while the training goes on. It is kept and used again.

Fresh memory costs many times more than a copy into used memory, because the system hands it out page by page. So the
memory is taken once, touched, and kept. It has the size of one state, and saving takes no other memory beyond the
state.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import math
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable

from spotkeep.state.arrays import DeviceBytes
from spotkeep.state.encoding import Blob, StreamPart

from .checksum_copy import FileCopy, copy_bytes, file_copy, unlocked
from .manifest import CHUNK_BYTES
from .shared_work import ItemsLeft, Piece, memory_threads, pieces, share

MAX_FILE_BYTES = 2**30
"""The largest data file. What is beyond goes into the next one of the stream. It has whole chunks."""

FIRST_COPY_BYTES = 4 * CHUNK_BYTES
"""At most as much is copied before the disk gets something to write."""

_LARGEST_COPY_BYTES = 16 * CHUNK_BYTES
_LATE_COPY_BYTES = 4 * CHUNK_BYTES
"""A piece is short, because the training waits for the one that is being copied when the state is about to change."""

_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", 14)
_NOT_FOR_CHILDREN = getattr(mmap, "MADV_DONTFORK", 10)
_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it.
_POPULATE_BYTES = 64 * 2**20
_PORTABLE = 1  # cudaHostRegisterPortable: for the GPUs of all contexts


class AbandonedStagingError(Exception):
    """The copy was broken off, so there is nothing whole to write."""


@dataclass(frozen=True)
class FileImage:
    """The content of one data file.

    Attributes:
        part: The number of the stream part that it belongs to. A part has its files in order.
        raw: Its bytes. A multiple of 4096, aligned in memory. They are valid up to the end that `StagedState.wait` has
            waited for.
        start: The offset of its first byte in the staged state.
        blobs: The sources of its bytes. Their offsets count from its beginning.
        checksums: The checksums of its chunks, valid when their bytes are.
    """

    part: int
    raw: memoryview
    start: int
    blobs: tuple[Blob, ...] = field(repr=False, compare=False)
    checksums: list[str] = field(repr=False, compare=False)


class RestOfCopy:
    """What of a state is not copied yet. Any thread may copy some of it.

    Args:
        pieces: Functions that copy a piece each, in the order of their places.
        staged: The copy that they belong to.
    """

    def __init__(self, pieces: Sequence[Callable[[], None]], staged: StagedState) -> None:
        self._count = len(pieces)
        self._left = ItemsLeft(pieces)
        self._staged = staged

    def copy(self) -> None:
        """Copy until nothing is left, in this thread."""
        try:
            for copy_piece in self._left:
                copy_piece()
        except BaseException as problem:
            self._left.problem = problem
            self._staged.abandon()
            raise

    def finish(self) -> None:
        """Copy what is left with all processors, and wait for the pieces of other threads.

        Raises:
            AbandonedStagingError: Another thread could not copy its piece.
        """
        if self._left:
            threads = memory_threads()
            share(range(threads), lambda _: self.copy(), threads=threads)
        if self._count:
            self._staged.wait_for_all()


class StagedState:
    """A copy of the blobs of a state in the layout of the data files.

    The training's thread calls `arrange` and `copy`. Other threads may write the bytes that `wait` has waited for.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._unlock: weakref.finalize[Any, Any] | None = None
        self._end = 0
        self._copied_end = 0
        self._copied_beyond: dict[int, int] = {}
        self._awaited_end = math.inf
        self._abandoned = False
        self._progress = threading.Condition()

    @property
    def capacity_bytes(self) -> int:
        """The size of the memory held, in bytes."""
        return 0 if self._memory is None else len(self._memory)

    def arrange(self, parts: Sequence[StreamPart]) -> list[FileImage]:
        """Lay the files out, without their content. The writer of the images of before has finished.

        Raises:
            MemoryError: If there is not enough memory.
        """
        self._hold(sum(part.size for part in parts))
        self._copied_end, self._copied_beyond, self._abandoned = 0, {}, False
        self._awaited_end = math.inf
        images, start = [], 0
        for number, part in enumerate(parts):
            for low, high in pieces(part.size, MAX_FILE_BYTES):
                raw = memoryview(self._memory or b"")[start : start + high - low]
                checksums = [""] * -(-len(raw) // CHUNK_BYTES)
                images.append(FileImage(number, raw, start, part.between(low, high).blobs, checksums))
                start += len(raw)
        self._end = start
        return images

    def copy(
        self,
        images: Sequence[FileImage],
        *,
        late: Callable[[Blob], Piece | None] = lambda _: None,
        before_late: Callable[[int, int], None] = lambda _start, _end: None,
    ) -> RestOfCopy:
        """Copy the blobs in, add them up and wake the waiting threads. The state must not change meanwhile.

        All processors do that. The data on a GPU comes first, all of it at once, into locked pages.

        Args:
            images: The files.
            late: Gives the part of a blob that may be copied later. Its memory does not change before it is copied. The
                bytes of a GPU are in their place by then.
            before_late: Called with the place of a piece in the staged state, right before it is copied later.

        Returns:
            What is left to copy. Nothing without late parts.
        """
        rest: list[Callable[[], None]] = []
        try:
            self._copy_from_devices(images, late)
            for image in images:
                division = divided(image, late)
                content = file_copy(image.raw, division.blobs)
                threads = memory_threads()
                for start, end in division.now:
                    row = ((start + low, start + high) for low, high in pieces_to_copy(end - start, threads=threads))
                    share(row, partial(self._copy_pieces, image, content), threads=threads)
                rest += [
                    partial(self._copy_late, image, content, (start + low, start + high), before_late)
                    for start, end in division.later
                    for low, high in pieces(end - start, _LATE_COPY_BYTES)
                ]
        except BaseException:
            self.abandon()
            raise
        return RestOfCopy(rest, self)

    def abandon(self) -> None:
        """Give the copy up, and wake the threads that wait for it with an error."""
        with self._progress:
            self._abandoned = True
            self._progress.notify_all()

    def wait(self, end: int) -> None:
        """Wait until all that comes before a place is copied.

        Args:
            end: The place in the staged state.

        Raises:
            AbandonedStagingError: If it never will be.
        """
        with self._progress:
            while self._copied_end < end and not self._abandoned:
                self._awaited_end = min(self._awaited_end, end)
                self._progress.wait()
            if self._abandoned:
                raise AbandonedStagingError("the copy of the state was broken off")

    def wait_for_all(self) -> None:
        """Wait until all is copied.

        Raises:
            AbandonedStagingError: If it never will be.
        """
        self.wait(self._end)

    def lock_pages(self) -> None:
        """Let GPUs copy to the memory at full speed."""
        if self._unlock is None and self._memory is not None:
            # Memory that the driver refuses is not offered again.
            unlock = lock_pages(self._memory) or (lambda: None)
            self._unlock = weakref.finalize(self, unlock)

    def _copy_from_devices(self, images: Sequence[FileImage], late: Callable[[Blob], Piece | None]) -> None:
        waits = []
        for raw, blob in ((image.raw, blob) for image in images for blob in image.blobs):
            if isinstance(blob.raw, DeviceBytes) and late(blob) is None:
                self.lock_pages()
                waits.append(blob.raw.start_copy(raw[blob.offset : blob.offset + len(blob.raw)]))
        for wait in waits:
            wait()

    def _copy_late(self, image: FileImage, content: FileCopy, piece: Piece, before: Callable[[int, int], None]) -> None:
        before(image.start + piece[0], image.start + piece[1])
        self._copy_pieces(image, content, [piece])

    def _copy_pieces(self, image: FileImage, content: FileCopy, left: Iterable[Piece]) -> None:
        for start, end in left:
            image.checksums[start // CHUNK_BYTES : -(-end // CHUNK_BYTES)] = content.copy(start, end)
            with self._progress:
                self._copied_beyond[image.start + start] = image.start + end
                while self._copied_end in self._copied_beyond:
                    self._copied_end = self._copied_beyond.pop(self._copied_end)
                if self._copied_end >= self._awaited_end:
                    self._awaited_end = math.inf
                    self._progress.notify_all()

    def _hold(self, size: int) -> None:
        if size <= self.capacity_bytes:
            return
        # Let go of the old memory first: there are never two.
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
        self._memory = None
        try:
            self._memory = new_memory(size)
        except OSError as error:
            raise MemoryError(f"no {size:,} bytes of memory for a copy of the state: {error}") from error
        # While a forked child has the same pages, each of them would be copied when the next save writes to it.
        with contextlib.suppress(OSError):
            self._memory.madvise(_NOT_FOR_CHILDREN)
        _holding.add(self)
        # Where the system cannot hand memory out at once, the first copy takes it page by page.
        with contextlib.suppress(OSError, ValueError):
            for start in range(0, size, _POPULATE_BYTES):
                self._memory.madvise(_POPULATE_WRITE, start, min(_POPULATE_BYTES, size - start))

    def _forget_after_fork(self) -> None:
        if self._unlock is not None:
            self._unlock.detach()  # What is locked is the parent's.
            self._unlock = None
        # Never given back: its addresses may belong to something else of the child's by then.
        _of_parents.append(self._memory)
        self._memory = None


@dataclass(frozen=True)
class DividedFile:
    """A data file in two parts. The bytes of one are copied at once, and those of the other one later.

    Attributes:
        blobs: The sources of its bytes, in the order of their places.
        now: The whole chunks that are copied at once.
        later: The other chunks.
    """

    blobs: tuple[Blob, ...] = field(repr=False)
    now: tuple[Piece, ...]
    later: tuple[Piece, ...]


def divided(image: FileImage, late: Callable[[Blob], Piece | None]) -> DividedFile:
    """Divide a data file into what is copied at once and what may be copied later.

    A chunk that has some of both is copied later, because it has one checksum. So its bytes that do not wait are put
    into their place here, and count as that place.

    Args:
        image: The file.
        late: Gives the part of a blob that may be copied later.
    """
    size = len(image.raw)
    lates = {blob.offset: part for blob in image.blobs if (part := late(blob)) is not None}
    later: list[Piece] = []
    for offset, (low, high) in lates.items():
        start = (offset + low) // CHUNK_BYTES * CHUNK_BYTES
        end = min(-(-(offset + high) // CHUNK_BYTES) * CHUNK_BYTES, size)
        if later and start <= later[-1][1]:
            later[-1] = (later[-1][0], max(end, later[-1][1]))
        else:
            later.append((start, end))
    if not later:
        return DividedFile(image.blobs, ((0, size),), ())
    ends = [0, *(edge for piece in later for edge in piece), size]
    now = tuple((start, end) for start, end in zip(ends[::2], ends[1::2]) if start < end)
    blobs: list[Blob] = []
    for blob in image.blobs:
        if isinstance(blob.raw, DeviceBytes):
            blobs.append(blob)  # its bytes are in their place
        else:
            blobs += _in_parts(blob, lates.get(blob.offset, (0, 0)), later, image.raw)
    return DividedFile(tuple(blobs), now, tuple(later))


def _in_parts(blob: Blob, late: Piece, later: Sequence[Piece], raw: memoryview) -> Iterator[Blob]:
    """Cut a blob where its bytes begin or cease to wait. Those that do not wait, in chunks that do, are copied."""
    source, offset = memoryview(blob.raw), blob.offset  # type: ignore[arg-type]
    first = max(bisect.bisect_right(later, (offset, math.inf)) - 1, 0)
    last = bisect.bisect_left(later, (offset + len(source), 0))
    edges = {0, len(source), *late, *(edge - offset for piece in later[first:last] for edge in piece)}
    cuts = sorted(edge for edge in edges if 0 <= edge <= len(source))
    for start, end in zip(cuts, cuts[1:]):
        place = raw[offset + start : offset + end]
        around = later[max(bisect.bisect_right(later, (offset + start, math.inf)) - 1, 0)]
        waits = around[0] <= offset + start < around[1]
        if waits and not late[0] <= start < late[1]:
            copy_bytes(unlocked(place), unlocked(source[start:end]))
            yield Blob(offset + start, place)
        else:
            yield Blob(offset + start, source[start:end])


def pieces_to_copy(size: int, *, threads: int) -> Iterator[Piece]:
    """Cut a file into whole chunks that threads take in turn, copy and report.

    Small pieces come first, so that the disk soon has something to write. Then come large ones, because Python takes
    its time for each. Ever smaller ones follow, so that no thread has a large one when the others are done. Each is
    half of a thread's part of the rest (guided self-scheduling, Polychronopoulos and Kuck 1987,
    doi.org/10.1109/TC.1987.5009495).
    """
    start = 0
    while start < size:
        part = (size - start) // (2 * threads) // CHUNK_BYTES * CHUNK_BYTES
        piece = min(max(part, CHUNK_BYTES), max(start, FIRST_COPY_BYTES), _LARGEST_COPY_BYTES)
        end = min(start + piece, size)
        yield start, end
        start = end


_holding: weakref.WeakSet[StagedState] = weakref.WeakSet()
_of_parents: list[object] = []


def _forget_all_after_fork() -> None:
    """Let a child process take memory of its own when it saves, because its parent's memory is not there."""
    for staged in list(_holding):
        staged._forget_after_fork()
    _holding.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_after_fork)


def new_memory(size: int) -> mmap.mmap:
    """Take memory from the system, aligned for direct I/O, in large pages where it has them.

    Large pages make a write of it eight times cheaper for the processor. Linux has them for private memory. Python's
    default mapping is shared with children, and comes in small pages.

    Raises:
        OSError: If there is not enough.
    """
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size, **private)
    with contextlib.suppress(OSError):
        memory.madvise(_HUGE_PAGES)
    return memory


def lock_pages(memory: Any) -> Callable[[], None] | None:
    """Register memory with the CUDA driver that torch uses, so that a GPU copies to it at full speed.

    Args:
        memory: A writable buffer that stays where it is.

    Returns:
        A function that gives the memory back, to be called before the memory goes. None where the driver refuses, as it
        does beyond the limit on locked memory. Copies work then too, only slower.
    """
    torch: Any = sys.modules["torch"]
    cudart = torch.cuda.cudart()
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if int(cudart.cudaHostRegister(address, len(memory), _PORTABLE)) != 0:
        # CUDA keeps an error for the next call that asks for the last one (cudaGetLastError), and torch asks after
        # each kernel that it launches: the training's next would fail for it. So it is asked here, with a kernel of
        # our own.
        with contextlib.suppress(RuntimeError):
            torch.ones(1, device="cuda")
        return None

    def unlock() -> None:
        cudart.cudaHostUnregister(address)

    return unlock
