"""The part of a copy that goes on while the training does, and the proof that the state did not change meanwhile.

Linux notes writes to the memory that is not copied yet (`WrittenPages`), and a GPU adds up its tensors when the save
begins. A checkpoint gets its manifest only when all is copied and nothing has changed. So bytes of two steps never get
valid checksums.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spotkeep.errors import ChangedStateError, SaveError
from spotkeep.native.written_pages import SharedMemory, Span, WrittenPages, whole_pages
from spotkeep.state.arrays import DeviceBytes, address_of, storage_of
from spotkeep.state.encoding import Blob
from spotkeep.state.optimizer_steps import Memory

from .checksum_copy import MemoryOfFile
from .device_copy import DeviceTransfer, device_sums, sums_here
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
        memory: Their memory. Whole pages on the CPU.
        storage: The storage of torch that has them, and keeps them. None on a GPU.
        address: The address of the storage's first byte.
    """

    image: FileImage
    blob: Blob
    part: Piece
    memory: Memory
    storage: Any = None
    address: int = 0

    @property
    def place(self) -> int:
        """Their place in the staged state."""
        return self.image.start + self.blob.offset + self.part[0]

    @property
    def is_there(self) -> bool:
        """True while the memory is theirs. A storage that is shared with a process or resized gives its memory back."""
        return self.storage is None or self.storage.data_ptr() == self.address

    @property
    def copied(self) -> memoryview:
        """Their place in the copy."""
        low, high = self.part
        return self.image.raw[self.blob.offset + low : self.blob.offset + high]


def late_parts(images: Sequence[FileImage], holds: Callable[[Memory], bool]) -> list[LatePart]:
    """Find what may be copied late, the tensors of GPUs, or where there are none those of the CPU.

    Of these it is the whole pages of large blobs, in memory that this process alone writes to.

    Args:
        images: The files.
        holds: Says whether memory belongs to tensors that change in an optimizer's step alone.
    """
    here, on_devices = [], []
    shared: SharedMemory | None = None
    for image in images:
        for blob in image.blobs:
            size = len(blob.raw)
            place = address_of(blob.raw) if size >= CHUNK_BYTES else None
            if place is None or not holds((*place, place[1] + size)):
                continue
            device, address = place
            if isinstance(blob.raw, DeviceBytes):
                on_devices.append(LatePart(image, blob, (0, size), (device, address, address + size)))
                continue
            start, end = whole_pages(address, address + size)
            shared = shared or SharedMemory()
            storage = storage_of(blob.raw)
            if start < end and storage is not None and not shared.overlaps((start, end)):
                part, memory = (start - address, end - address), (device, start, end)
                here.append(LatePart(image, blob, part, memory, storage, storage.data_ptr()))
    return on_devices or here


class LateCopy:
    """A copy of a state that goes on while the training does.

    The training's thread makes it, and any thread calls `finish`.

    Attributes:
        changed: Memory that changed before it was copied. Empty for none.
        problem: The error that ended the copy. None for none.

    Args:
        parts: The parts that may be copied late.
        staged: The memory of the copy.
        images: The files, at least one.
        compare: Copy all at once, and compare the copy with the state at the end.
    """

    def __init__(
        self, parts: Sequence[LatePart], *, staged: StagedState, images: Sequence[FileImage], compare: bool
    ) -> None:
        self.changed: tuple[Memory, ...] = ()
        self.problem: BaseException | None = None
        self._parts = sorted(parts, key=lambda part: part.place)
        self._places = [part.place for part in self._parts]
        self._staged = staged
        self._images = images
        self._compares = compare
        self._end = images[-1].start + len(images[-1].raw)
        self._rest: RestOfCopy | None = None
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._process = os.getpid()

    @property
    def has_ended(self) -> bool:
        """True once nothing waits to be copied or compared."""
        return self._ended.is_set()

    def copy(self) -> None:
        """Copy what cannot wait."""
        waiting = {} if self._compares else {id(part.blob): part.part for part in self._parts}
        self._rest = self._staged.copy(
            self._images, late=lambda blob: waiting.get(id(blob)), before_late=self._require_there
        )
        if self._compares:
            return
        try:
            threading.Thread(target=self._copy_beside, name="spotkeep-late-copy", daemon=True).start()
        except RuntimeError:  # the system starts no more threads
            self._copy_without_thread()

    def wait(self, end: int) -> None:
        """Wait until all that comes before a place is copied, and at the end, until it is proven.

        Args:
            end: The place in the staged state.

        Raises:
            SaveError: The state has changed before it was copied, or the copy was given up.
        """
        try:
            self._staged.wait(end)
        except AbandonedStagingError as error:
            self._ended.wait()  # who gives a copy up says why
            self._require_unchanged()
            raise self._broken_off() from (self.problem or error)
        if end < self._end or self._compares:
            return
        self._ended.wait()
        self._require_unchanged()
        if self.problem is not None:
            raise self._broken_off() from self.problem

    def finish(self) -> None:
        """Let the state change when this returns. What is left is copied before, by all processors."""
        if self._process == os.getpid():  # a forked child has neither the copy nor its threads
            self._prove()

    def join(self) -> None:
        """Wait until the memory of the copy may be used again. The state may change then."""
        if self._process == os.getpid():
            self.finish()
            self._ended.wait()

    def give_up(self, problem: BaseException) -> None:
        """End the copy without its rest."""
        with self._ending:
            if not self._ended.is_set():
                self.problem = problem
                self._let_go()

    def _copy_beside(self) -> None:
        rest = self._rest
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with contextlib.suppress(BaseException):  # `finish` meets it again
            if rest is not None:
                rest.copy()
        del rest
        self._prove()

    def _require_unchanged(self) -> None:
        if self.changed:
            raise ChangedStateError(
                "its tensors changed before they were copied, and not in a step of an optimizer; older checkpoints are "
                "as they were, and the next step is saved at once"
            )

    def _require_there(self, start: int, end: int) -> None:
        """Refuse to read memory that a tensor has given back. A read of it would end the process.

        Args:
            start: The place of the first byte that is read, in the staged state.
            end: The one after the last.
        """
        parts = self._parts
        first = max(bisect.bisect_right(self._places, start) - 1, 0)
        for part in parts[first : bisect.bisect_left(self._places, end)]:
            if not part.is_there:
                raise AbandonedStagingError("a tensor has given back the memory that was to be copied")

    def _broken_off(self) -> SaveError:
        return SaveError(f"the copy of the state was broken off: {self.problem!r}")

    def _copy_without_thread(self) -> None:
        """Do nothing, because `finish` copies what is left."""

    def _prove(self) -> None:
        with self._ending:
            if self._ended.is_set():
                return
            try:
                changed = {index for index, part in enumerate(self._parts) if not part.is_there}
                if changed and not self._compares:
                    self._staged.abandon()
                elif not changed:
                    if self._rest is not None:
                        self._rest.finish()
                    changed = self._changes()
                self.changed = tuple(part.memory for index, part in enumerate(self._parts) if index in changed)
            except BaseException as problem:
                self.problem = problem
                self._staged.abandon()
                if not isinstance(problem, Exception):
                    raise
            finally:
                self._let_go()

    def _let_go(self) -> None:
        # The memory belongs to the training alone from here on.
        self._parts, self._images, self._rest = [], [], None
        self._ended.set()

    def _changes(self) -> set[int]:
        """Give the indices of the parts that changed."""
        raise AssertionError("each kind of memory is proven in its own way")


class WatchedCopy(LateCopy):
    """A late copy from memory that Linux watches.

    Args:
        parts: The parts that may be copied late.
        pages: The watch.
        staged: The memory of the copy.
        images: The files, at least one.
        compare: Copy all at once, and compare the copy with the state at the end.

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
        super().__init__(parts, staged=staged, images=images, compare=compare)
        self._pages = pages
        self._spans = [(start, end) for _, start, end in (part.memory for part in parts)]

        def watch(left: Iterator[Span]) -> None:
            for span in left:
                pages.watch([span])

        try:
            # The kernel goes through all pages of a span, and several spans at once do not wait for each other.
            share(self._spans, watch, threads=memory_threads())
        except OSError:
            pages.release(self._spans)
            raise

    def _let_go(self) -> None:
        self._pages.release(self._spans)
        super()._let_go()

    def _changes(self) -> set[int]:
        changed = set(self._pages.written(self._spans))
        if self._compares:
            changed |= {index for index, part in enumerate(self._parts) if _differs(part)}
        return changed


class DeviceCopy(LateCopy):
    """A late copy from GPUs.

    A stream beside the training's copies, and the optimizer's step waits for it on the GPU. The sums of the copy must
    be those that the GPU added up when the save began.
    """

    _transfer: DeviceTransfer | None = None

    def copy(self) -> None:
        """Copy what cannot wait, and begin to copy the rest."""
        if not self._compares:
            self._staged.lock_pages()
            self._transfer = DeviceTransfer([(device_bytes(part), part.copied) for part in self._parts])
        super().copy()

    def finish(self) -> None:
        """Let the state change when this returns. The GPUs go on when all is copied, and this thread at once."""
        if self._transfer is None:
            super().finish()
        elif self._process == os.getpid():
            self._transfer.hold()

    def _copy_beside(self) -> None:
        if self._transfer is not None:
            with contextlib.suppress(Exception):  # `_changes` meets it again
                self._transfer.wait()
        super()._copy_beside()

    def _copy_without_thread(self) -> None:
        self._copy_beside()

    def _changes(self) -> set[int]:
        if self._transfer is None:
            then = device_sums([device_bytes(part) for part in self._parts])
        else:
            self._transfer.wait()
            then = self._transfer.sums()
        return {index for index, part in enumerate(self._parts) if sums_here(part.copied) != then[index]}


def device_bytes(part: LatePart) -> DeviceBytes:
    """Give the live bytes of a part that is on a GPU."""
    assert isinstance(part.blob.raw, DeviceBytes)  # noqa: S101 - `late_parts` gives all or none of them
    return part.blob.raw


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
