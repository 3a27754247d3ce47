"""The part of a copy that goes on while the training does, and the proof that the state did not change meanwhile.

Linux notes writes to the memory that waits (`WrittenPages`). A checkpoint gets its manifest only when all is copied and
nothing was written to. So bytes of two steps never get valid checksums.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spotkeep.errors import SaveError
from spotkeep.native.written_pages import SharedMemory, Span, WrittenPages, whole_pages
from spotkeep.state.arrays import DeviceBytes, address_of
from spotkeep.state.encoding import Blob

from .checksum_copy import MemoryOfFile
from .manifest import CHUNK_BYTES
from .shared_work import Piece, memory_threads, share
from .staged_state import AbandonedStagingError, FileImage, RestOfCopy, StagedState

_COMPARED_BYTES = 16 * CHUNK_BYTES
_NICENESS = 10
"""Of the thread that copies. It takes what the training leaves idle, and `finish` copies the rest by all processors."""


@dataclass(frozen=True)
class LatePart:
    """Some bytes of a blob that may be copied late.

    Attributes:
        image: The file that they belong to.
        blob: The blob.
        part: The place of the bytes within the blob.
        pages: Their memory, whole pages.
    """

    image: FileImage
    blob: Blob
    part: Piece
    pages: Span


def late_parts(images: Sequence[FileImage], holds: Callable[[Span], bool]) -> list[LatePart]:
    """Find what may be copied late. These are whole pages of large blobs in memory that this process alone writes to.

    Args:
        images: The files.
        holds: Says whether memory belongs to tensors that change in an optimizer's step alone.
    """
    found = []
    shared: SharedMemory | None = None
    for image in images:
        for blob in image.blobs:
            if isinstance(blob.raw, DeviceBytes) or len(blob.raw) < CHUNK_BYTES:
                continue
            place = address_of(blob.raw)
            if place is None or not holds((place[1], place[1] + len(blob.raw))):
                continue
            address = place[1]
            start, end = whole_pages(address, address + len(blob.raw))
            shared = shared or SharedMemory()
            if start < end and not shared.overlaps((start, end)):
                found.append(LatePart(image, blob, (start - address, end - address), (start, end)))
    return found


class LateCopy:
    """A copy of a state that is finished before the state changes.

    The training's thread makes it, and any thread calls `finish`.

    Attributes:
        changed: Memory that was written to before the end. Empty for none.

    Args:
        parts: The parts that are watched.
        pages: The watch.
        staged: The memory of the copy.
        images: The files, at least one.
        compare: Copy all at once, and compare the bytes with the state at the end.

    Raises:
        OSError: The memory cannot be watched.
    """

    def __init__(
        self,
        parts: Sequence[LatePart],
        *,
        pages: WrittenPages,
        staged: StagedState,
        images: Sequence[FileImage],
        compare: bool,
    ) -> None:
        self.changed: tuple[Span, ...] = ()
        self._parts = list(parts)
        self._pages = pages
        self._spans = [part.pages for part in parts]
        self._staged = staged
        self._images = images
        self._compares = compare
        self._end = images[-1].start + len(images[-1].raw)
        self._rest: RestOfCopy | None = None
        self._problem: BaseException | None = None
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._process = os.getpid()
        pages.watch(self._spans)

    @property
    def problem(self) -> BaseException | None:
        """The error that ended the copy. None for none."""
        return self._problem

    @property
    def has_ended(self) -> bool:
        """True once nothing waits to be copied or compared."""
        return self._ended.is_set()

    def copy(self) -> None:
        """Copy what cannot wait."""
        waiting = {} if self._compares else {id(part.blob): part.part for part in self._parts}
        self._rest = self._staged.copy(self._images, late=lambda blob: waiting.get(id(blob)))
        if self._compares:
            return
        # Where the system starts no more threads, `finish` copies all.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._copy_beside, name="spotkeep-late-copy", daemon=True).start()

    def wait(self, end: int) -> None:
        """Wait until all that comes before a place is copied, and at the end, until it is proven.

        Args:
            end: The place in the staged state.

        Raises:
            SaveError: The state has changed before it was copied.
            AbandonedStagingError: The copy was given up.
        """
        self._staged.wait(end)
        if end < self._end or self._compares:
            return
        self._ended.wait()
        if self.changed:
            raise SaveError(
                "its tensors changed before they were copied, and not in a step of an optimizer; older checkpoints are "
                "as they were, and the next step is saved at once"
            )
        if self._problem is not None:
            raise AbandonedStagingError("the copy of the state was broken off") from self._problem

    def finish(self) -> None:
        """Copy what is left, with all processors, and look for changes. The state may change when this returns."""
        if self._process != os.getpid():
            return  # a forked child has neither the copy nor its threads
        with self._ending:
            if self._ended.is_set():
                return
            try:
                if self._rest is not None:
                    self._rest.finish()
                self.changed = self._changes()
            except BaseException as problem:
                self._problem = problem
                if not isinstance(problem, Exception):
                    raise
            finally:
                self._end_watch()

    def give_up(self, problem: BaseException) -> None:
        """End the copy without its rest."""
        with self._ending:
            if not self._ended.is_set():
                self._problem = problem
                self._end_watch()

    def _copy_beside(self) -> None:
        rest = self._rest
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with contextlib.suppress(BaseException):  # `finish` meets it again
            if rest is not None:
                rest.copy()
        del rest
        self.finish()

    def _end_watch(self) -> None:
        self._pages.release(self._spans)
        # The memory belongs to the training alone from here on.
        self._parts, self._images, self._rest = [], [], None
        self._ended.set()

    def _changes(self) -> tuple[Span, ...]:
        changed = set(self._pages.written(self._spans))
        if self._compares:
            changed |= {index for index, part in enumerate(self._parts) if _differs(part)}
        return tuple(self._spans[index] for index in sorted(changed))


def _differs(part: LatePart) -> bool:
    """Compare the live bytes with the copy."""
    low, high = part.part
    live = MemoryOfFile([(0, memoryview(part.blob.raw)[low:high])])  # type: ignore[arg-type]
    copied = MemoryOfFile([(0, part.image.raw[part.blob.offset + low : part.blob.offset + high])])
    found: list[bool] = []

    def compare(left: Iterator[Piece]) -> None:
        found.extend(live.checksums(start, end) != copied.checksums(start, end) for start, end in left)

    share(live.pieces(high - low, _COMPARED_BYTES), compare, threads=memory_threads())
    return any(found)
