"""What the page cache has of a file, asked without reading any of it.

A read that shall not wait (RWF_NOWAIT) would answer too, but Linux begins to read what such a read does not find: a
fast disk then makes the answer yes, and the next question finds what the first had made it read. `mincore` only looks.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any

_PLACES = 16


def cached_share(descriptor: int, size: int, *, places: int = _PLACES) -> float:
    """Estimate how much of a file the page cache has, from a few places all over it.

    Linux tells that of files only that are the caller's own or that it may write to, and calls others cached.

    Args:
        descriptor: The file, open for reading.
        size: Its length in bytes.
        places: How many pages to look at.

    Returns:
        From 0 to 1; 0 where the system does not tell.
    """
    found = 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        mincore = ctypes.CDLL(None, use_errno=True).mincore
        mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
        for number in range(places):
            offset = size * number // places
            found += _is_cached(mincore, descriptor, offset - offset % mmap.ALLOCATIONGRANULARITY)
    return found / places


def _is_cached(mincore: Any, descriptor: int, offset: int) -> bool:
    answer = ctypes.create_string_buffer(1)
    # A private mapping has an address that ctypes gives; the page is never touched.
    with mmap.mmap(descriptor, 1, access=mmap.ACCESS_COPY, offset=offset) as page:
        if mincore(ctypes.addressof(ctypes.c_char.from_buffer(page)), 1, answer) != 0:
            return False
    return bool(answer.raw[0] & 1)
