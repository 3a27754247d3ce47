"""The machine's own limits, which no library can beat, by warm copy, direct write and read, and stolen time."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from spotkeep.disk import storage
from spotkeep.disk.shared_work import pieces, share

_CHUNK_BYTES = 16 * 2**20
_COPY_BYTES = 4 * 2**20
_STREAMS = 2
"""Requests in flight. On the machines tried, one leaves the disk idle between two, and four gain nothing."""


class Machine:
    """Reads and writes as fast as it goes, to and from memory that is warm.

    Args:
        directory: A directory on the disk in question.
        size_bytes: The bytes that each figure is about, rounded down to whole blocks.
    """

    def __init__(self, directory: Path, *, size_bytes: int) -> None:
        self._path = directory / "machine.bin"
        self._size = size_bytes - size_bytes % mmap.PAGESIZE
        self._memory = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # In large pages, which the system gives to private memory alone: writing small ones takes the processor longer.
        self._memory.madvise(getattr(mmap, "MADV_HUGEPAGE", 14))
        self._view = memoryview(self._memory)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.memset(self._address, 0x55, self._size)

    def copy(self, sources: dict[int, int], *, streams: int = 1) -> float:
        """Copy tensors into warm memory. Return seconds.

        Args:
            sources: Addresses and their lengths in bytes.
            streams: Threads that copy at once.
        """
        blocks, at = [], 0
        for address, size in sources.items():
            for start, end in pieces(min(size, self._size - at), _COPY_BYTES):
                blocks.append((self._address + at + start, address + start, end - start))
            at += size

        def copy(left: Iterator[tuple[int, int, int]]) -> None:
            for block in left:
                ctypes.memmove(*block)

        started = time.perf_counter()
        share(blocks, copy, threads=streams)
        return time.perf_counter() - started

    def write(self) -> float:
        """Write a new file past the page cache, and fsync it. Return seconds."""
        self._path.unlink(missing_ok=True)
        started = time.perf_counter()
        descriptor = _open_direct(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            self._in_streams(lambda piece, offset: os.pwrite(descriptor, piece, offset))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return time.perf_counter() - started

    def read_direct(self) -> float:
        """Read that file past the page cache. Return seconds."""
        started = time.perf_counter()
        descriptor = _open_direct(self._path, os.O_RDONLY)
        try:
            self._in_streams(lambda piece, offset: os.preadv(descriptor, [piece], offset))
        finally:
            os.close(descriptor)
        return time.perf_counter() - started

    def read_warm(self, *, streams: int = 1) -> float:
        """Read that file out of the page cache. Return seconds.

        Args:
            streams: Threads that read at once. One is the plain read of any program.
        """
        read_into_cache(self._path)
        started = time.perf_counter()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            self._in_streams(lambda piece, offset: os.preadv(descriptor, [piece], offset), streams=streams)
        finally:
            os.close(descriptor)
        return time.perf_counter() - started

    def clear(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)

    def _in_streams(self, act: Callable[[memoryview, int], int], *, streams: int = _STREAMS) -> None:
        def stream(number: int) -> None:
            for start in range(number * _CHUNK_BYTES, self._size, streams * _CHUNK_BYTES):
                end = min(start + _CHUNK_BYTES, self._size)
                while start < end:
                    done = act(self._view[start:end], start)
                    if not done:
                        raise OSError(f"{self._path.name} ends after {start:,} bytes")
                    start += done

        failed: list[OSError] = []

        def guarded(number: int) -> None:
            try:
                stream(number)
            except OSError as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(number,)) for number in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


class StolenTime:
    """The share of processor time, from now on, that the host gave to other machines.

    Linux counts it as `steal` (proc(5), /proc/stat). It slows work on the processors more than waits for the disk. So
    figures with much stolen time say more about the neighbours.

    Args:
        path: The file with the kernel's counts.
    """

    def __init__(self, path: Path = Path("/proc/stat")) -> None:
        self._path = path
        self._before = self._counted()

    def share(self) -> float | None:
        """Return the stolen share, 0 to 1, or None on a system that does not count it."""
        now = self._counted()
        if now is None or self._before is None:
            return None
        stolen, total = (after - before for after, before in zip(now, self._before, strict=True))
        return stolen / total if total else 0.0

    def _counted(self) -> tuple[int, int] | None:
        if not self._path.exists():
            return None
        # user nice system idle iowait irq softirq steal; what guests of our own take is in the first two already
        ticks = [int(count) for count in self._path.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)


def read_into_cache(path: Path) -> None:
    """Read a file, so that the page cache has all of it."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_CHUNK_BYTES)
        while file.readinto(buffer):
            pass


def drop_from_cache(path: Path) -> None:
    """Write a file's pages, then drop them from the page cache (POSIX_FADV_DONTNEED)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_share(path: Path) -> float:
    """Estimate how much of a file the page cache has, from 64 places, without making it read any of them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return storage.cached_share(descriptor, path.stat().st_size, places=64)
    finally:
        os.close(descriptor)


def _open_direct(path: Path, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o644)
