"""The compiled routine for Python. It copies bytes, and adds them up on the way.

It is a shared library beside this module, in a folder or in a zipapp, for each supported architecture.
docs/checkpoint-format.md describes the sums.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import pkgutil
import platform
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from spotkeep.state.arrays import Buffer

ROW_WORDS = 511
"""The number of 64-bit words in a row, which is also the number of sums of each chunk."""

ByteRun = tuple[int, Buffer]
"""Consecutive bytes, with their place in a file and their content."""

_READABLE, _WRITABLE = 0, 1  # PyBUF_SIMPLE, PyBUF_WRITABLE


def is_available() -> bool:
    """Say whether there is a compiled routine for this machine."""
    return _routine() is not None


class CopyAndAdd:
    """Bytes that are copied to the memory of a file and added up, piece by piece, in any number of threads.

    Args:
        runs: The runs of bytes, in the order of their offsets, never overlapping. Places in no run count as zeros. A
            run may be the file's own memory at its place. It is only added up.
        file: The file's memory. Without it nothing is copied.

    Raises:
        TypeError: If something is no buffer.
        BufferError: If something is not contiguous, or the file's memory cannot be written to.
        ValueError: If runs overlap or are not in their order, or one is not inside of the file.
        RuntimeError: If there is no compiled routine for this machine.
    """

    def __init__(self, runs: Iterable[ByteRun], *, file: Buffer | None = None) -> None:
        routine = _routine()
        if routine is None:
            raise RuntimeError(f"spotkeep has no compiled routine for {sys.platform} on {platform.machine()}")
        self._routine = routine
        # What is at the addresses stays for as long as a caller has it.
        self._kept: list[memoryview] = []
        size, self._file = self._memory(file, _WRITABLE) if file else (0, None)
        found = [(offset, *self._memory(source, _READABLE)) for offset, source in runs]
        end = 0
        for offset, run_size, _ in found:
            if offset < end:
                raise ValueError(f"{run_size:,} bytes at {offset:,} begin before {end:,}, where the run before ends")
            end = offset + run_size
            if file is not None and end > size:
                raise ValueError(f"{run_size:,} bytes at {offset:,} are not inside of {size:,} bytes")
        self._runs = (_Run * len(found))(*itertools.starmap(_Run, found))

    def column_sums(self, start: int, end: int, *, chunk_bytes: int) -> list[memoryview]:
        """Copy the bytes between two offsets, and add them up. Other threads run meanwhile.

        Args:
            start: Offset of the beginning of a chunk.
            end: Offset of the end of a chunk, or of the file.
            chunk_bytes: Length of a chunk in bytes.

        Returns:
            The sums of each chunk. These are `ROW_WORDS` 64-bit words of 8 bytes each.
        """
        count = -(-(end - start) // chunk_bytes)
        sums = (ctypes.c_uint64 * (ROW_WORDS * count))()
        self._routine(self._runs, len(self._runs), self._file, start, end, chunk_bytes, sums)
        raw = memoryview(sums).cast("B")
        return [raw[first : first + 8 * ROW_WORDS] for first in range(0, len(raw), 8 * ROW_WORDS)]

    def _memory(self, raw: Buffer, flags: int) -> tuple[int, int | None]:
        """Give the size and the address of something that must be kept."""
        self._kept.append(memoryview(raw))
        return size_and_address(raw, flags)


class _Run(ctypes.Structure):
    """`struct run` of copy_and_add.c."""

    _fields_ = (
        ("offset", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
        ("source", ctypes.c_void_p),
    )


class _PyBuffer(ctypes.Structure):
    """`Py_buffer`, which CPython promises not to change (docs.python.org/3/c-api/stable.html)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def size_and_address(raw: Buffer, flags: int = _READABLE) -> tuple[int, int | None]:
    """Give the size and the address of some bytes, which the caller keeps."""
    found = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(raw), ctypes.byref(found), flags)
    size, address = found.len, found.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return size, address


@functools.cache
def _routine() -> Callable[..., None] | None:
    """Load the routine. None where there is none, or the system does not let us."""
    found = library()
    if found is None:
        return None
    routine: Any = found.copy_and_add
    routine.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, *[ctypes.c_uint64] * 3, ctypes.c_void_p)
    routine.restype = None
    return routine  # type: ignore[no-any-return]


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load what is compiled. None where there is nothing for this machine, or the system does not let us."""
    if sys.implementation.name != "cpython":
        return None  # `_PyBuffer`
    try:
        raw = pkgutil.get_data(__package__, f"copy_and_add-{sys.platform}-{platform.machine()}.so")
        return None if raw is None else _load(raw)
    except OSError:
        return None


def _load(raw: bytes) -> ctypes.CDLL:
    with _executable_file(raw) as path:
        return ctypes.CDLL(path)


@contextlib.contextmanager
def _executable_file(raw: bytes) -> Iterator[str]:
    """Give the path of a file with these bytes for loading, because a zipapp has none. It is removed afterwards."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("spotkeep-native")
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            # By the number of the process: what was loaded from `self` before has this very name.
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        return
    # This Python was built against a glibc of before 2018, as those of conda and uv are.
    import tempfile  # takes long, and no other Python needs it

    with tempfile.NamedTemporaryFile(prefix="spotkeep-native-") as file:
        file.write(raw)
        file.flush()
        yield file.name
