"""Memory that cannot be filled in place.

Examples are read-only arrays, tensors with elements that share a place, and mapped files.

A read of a checkpoint into such memory fails or ends the process. So the library finds it before the training begins.
"""

from __future__ import annotations

import bisect
import contextlib
from pathlib import Path
from typing import Any

from spotkeep.loaded import loaded

from . import arrays

_MAPS = Path("/proc/self/maps")


class ProcessMemory:
    """The read-only parts of this process's memory at the moment.

    On systems other than Linux, which do not say, all memory counts as writable.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        with contextlib.suppress(OSError):
            for line in _MAPS.read_text("utf-8", "replace").splitlines():
                span, permissions, *_ = line.split(None, 2)
                if "w" not in permissions:
                    start, _, end = span.partition("-")
                    self._starts.append(int(start, 16))
                    self._ends.append(int(end, 16))

    def may_be_written(self, tensor: Any) -> bool:
        """Say whether the memory of a tensor may be written to. That of other devices always may."""
        if not tensor.is_cpu or tensor.layout != loaded("torch").strided or not tensor.numel():
            return True
        with contextlib.suppress(RuntimeError):  # one without memory of its own
            place = bisect.bisect_right(self._starts, tensor.data_ptr()) - 1
            return place < 0 or tensor.data_ptr() >= self._ends[place]
        return True


def array_problem(array: Any) -> str | None:
    """Say why a NumPy array cannot be filled in place. None if it can."""
    if array.flags.writeable:
        return None
    return (
        "it is read-only, so a checkpoint cannot be read into it: pass numpy.array(...) of it, or leave it out if it "
        "is data that stays as it is"
    )


def tensor_problem(tensor: Any, memory: ProcessMemory) -> str | None:
    """Say why a tensor cannot be filled in place. None if it can."""
    if tensor.is_inference():
        return (
            "it was made in torch.inference_mode() and cannot be changed outside of it: make it outside, or pass "
            "tensor.clone()"
        )
    if tensor.layout != loaded("torch").strided or arrays.is_wrapper(tensor):
        return None
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        return (
            "several of its elements are one place in memory, as expand() makes it, so a checkpoint cannot be read "
            "into it: use tensor.clone()"
        )
    if not memory.may_be_written(tensor):
        return "its memory is a file that was mapped for reading only: use tensor.clone()"
    return None
