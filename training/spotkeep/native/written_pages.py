"""Memory of this process that Linux watches for writes, by the protection of its pages.

A watch tells a write by any code of this process, by a NumPy view, a compiled kernel or a read from a file. It costs
about 13 ms for each GiB. A page that is written to while it is watched costs a page fault more, and nothing waits.

The kernel notes the writes by itself (userfaultfd with `UFFD_FEATURE_WP_ASYNC`, and `PAGEMAP_SCAN`, Linux 6.7). Docker
forbids the call to containers by default. What another process or a device writes is not noted, so memory that is
shared with one is not watched.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import os
import platform
import struct
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

Span = tuple[int, int]
"""The address of the first byte, and of the one after the last."""

PAGE_BYTES = 4096

_SYSTEM_CALL = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_API_VERSION = 0xAA
_PAGEFAULT_FLAG_WP, _WP_UNPOPULATED, _WP_ASYNC = 1, 1 << 13, 1 << 15
_API, _REGISTER, _UNREGISTER, _WRITE_PROTECT = 0xC018AA3F, 0xC020AA00, 0x8010AA01, 0xC018AA06
_REGISTER_MODE_WP = 2
_PAGEMAP_SCAN = 0xC0606610
_SCAN_CHECK_WPASYNC, _PAGE_IS_WRITTEN = 2, 2
_MAPS = Path("/proc/self/maps")
_PAGEMAP = "/proc/self/pagemap"


class WrittenPages:
    """Watches whole pages of this process.

    A process that was forked off needs one of its own, because this one watches its parent's memory.

    Raises:
        OSError: The system has no such watch, or does not let this process use it.
    """

    def __init__(self) -> None:
        number = _SYSTEM_CALL.get(platform.machine())
        if sys.platform != "linux" or number is None or os.sysconf("SC_PAGE_SIZE") != PAGE_BYTES:
            raise OSError("only Linux on x86-64 and ARM with pages of 4 KiB notes the pages that are written to")
        self._process = os.getpid()
        self._descriptors = contextlib.ExitStack()
        weakref.finalize(self, self._descriptors.close)
        try:
            self._faults = self._kept(_user_fault_descriptor(number))
            features = _PAGEFAULT_FLAG_WP | _WP_UNPOPULATED | _WP_ASYNC
            _control(self._faults, _API, "QQQ", _API_VERSION, features, 0)
            self._pagemap = self._kept(os.open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC))
            self._scan(0, PAGE_BYTES)
        except BaseException:
            self._descriptors.close()
            raise

    def watch(self, spans: Sequence[Span]) -> None:
        """Begin to note writes to some memory.

        Args:
            spans: Whole pages, as `whole_pages` gives them.

        Raises:
            OSError: The kernel refuses. Nothing is watched then.
        """
        if os.getpid() != self._process:
            raise OSError("the watch is that of the process from which this one was forked")
        try:
            for start, end in spans:
                _control(self._faults, _REGISTER, "QQQQ", start, end - start, _REGISTER_MODE_WP, 0)
                _control(self._faults, _WRITE_PROTECT, "QQQ", start, end - start, 1)
        except OSError:
            self.release(spans)
            raise

    def written(self, spans: Sequence[Span]) -> list[int]:
        """Give the indices of the spans that something was written to since `watch`.

        Raises:
            OSError: The memory is gone.
        """
        return [index for index, (start, end) in enumerate(spans) if self._scan(start, end)]

    def release(self, spans: Sequence[Span]) -> None:
        """Watch no more. Memory that is gone is passed over."""
        for start, end in spans:
            with contextlib.suppress(OSError):
                _control(self._faults, _UNREGISTER, "QQ", start, end - start)

    def _kept(self, descriptor: int) -> int:
        self._descriptors.callback(os.close, descriptor)
        return descriptor

    def _scan(self, start: int, end: int) -> bool:
        """Say whether a page was written to. The kernel gives the first one that was."""
        found = (ctypes.c_uint64 * 3)()
        size, most, inverted, mask, any_of = 96, 1, 0, _PAGE_IS_WRITTEN, 0
        arguments = (size, _SCAN_CHECK_WPASYNC if start else 0, start, end, 0, ctypes.addressof(found), 1, most)
        return _control(self._pagemap, _PAGEMAP_SCAN, "12Q", *arguments, inverted, mask, any_of, _PAGE_IS_WRITTEN) > 0


def whole_pages(start: int, end: int) -> Span:
    """Give the pages that lie in some memory as a whole. They may be none, with the end not after the start."""
    return -(-start // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES


class SharedMemory:
    """The memory of this process, at the moment, that other processes or devices may write to."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in _shared_mappings():
            self._starts.append(start)
            self._ends.append(end)

    def overlaps(self, span: Span) -> bool:
        """Say whether some of a span is shared."""
        start, end = span
        return bisect.bisect_right(self._ends, start) < bisect.bisect_left(self._starts, end)


def _shared_mappings() -> Iterator[Span]:
    for line in _MAPS.read_text("utf-8", "replace").splitlines():
        span, permissions, *_ = line.split(None, 2)
        if "s" in permissions:
            start, _, end = span.partition("-")
            yield int(start, 16), int(end, 16)


def _user_fault_descriptor(number: int) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    descriptor: int = library.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
    if descriptor < 0:
        found = ctypes.get_errno()
        raise OSError(found, f"userfaultfd: {os.strerror(found)}")
    return descriptor


def _control(descriptor: int, request: int, form: str, *numbers: int) -> int:
    import fcntl  # other systems have none

    done: int = fcntl.ioctl(descriptor, request, bytearray(struct.pack(form, *numbers)))
    return done
