"""One copy of the state in memory, which is written while the training goes on. It is kept and used again.

Fresh memory costs many times more than a copy into used memory, because the system hands it out page by page. So the
memory is taken once, touched, and kept. It has the size of one state, and saving takes no other memory beyond the
state.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable

from spotkeep.state.arrays import DeviceBytes
from spotkeep.state.encoding import Blob, StreamPart

from .checksum_copy import FileCopy, file_copy
from .manifest import CHUNK_BYTES
from .shared_work import Piece, memory_threads, pieces, share

MAX_FILE_BYTES = 2**30
"""The largest data file. What is beyond goes into the next one of the stream. It has whole chunks."""

FIRST_COPY_BYTES = 4 * CHUNK_BYTES
"""At most as much is copied before the disk gets something to write."""

_LARGEST_COPY_BYTES = 16 * CHUNK_BYTES
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


class StagedState:
    """A copy of the blobs of a state in the layout of the data files.

    The training's thread calls `arrange` and `copy`. Other threads may write the bytes that `wait` has waited for.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._unlock: weakref.finalize[Any, Any] | None = None
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
        images, start = [], 0
        for number, part in enumerate(parts):
            for low, high in pieces(part.size, MAX_FILE_BYTES):
                raw = memoryview(self._memory or b"")[start : start + high - low]
                checksums = [""] * -(-len(raw) // CHUNK_BYTES)
                images.append(FileImage(number, raw, start, part.between(low, high).blobs, checksums))
                start += len(raw)
        return images

    def copy(self, images: Sequence[FileImage]) -> None:
        """Copy the blobs in, add them up and wake the waiting threads. The state must not change meanwhile.

        All processors do that. The data on a GPU comes first, all of it at once, into locked pages.
        """
        try:
            self._copy_from_devices(images)
            for image in images:
                copy_pieces = partial(self._copy_pieces, image, file_copy(image.raw, image.blobs))
                threads = memory_threads()
                share(pieces_to_copy(len(image.raw), threads=threads), copy_pieces, threads=threads)
        except BaseException:
            self.abandon()
            raise

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

    def _copy_from_devices(self, images: Sequence[FileImage]) -> None:
        waits = []
        for raw, blob in ((image.raw, blob) for image in images for blob in image.blobs):
            if isinstance(blob.raw, DeviceBytes):
                if self._unlock is None and self._memory is not None:
                    # Memory that the driver refuses is not offered again.
                    unlock = lock_pages(self._memory) or (lambda: None)
                    self._unlock = weakref.finalize(self, unlock)
                waits.append(blob.raw.start_copy(raw[blob.offset : blob.offset + len(blob.raw)]))
        for wait in waits:
            wait()

    def _copy_pieces(self, image: FileImage, content: FileCopy, left: Iterator[Piece]) -> None:
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
