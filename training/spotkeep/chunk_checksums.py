"""A checksum as fast as memory: what vouches for each chunk of a data file. Pure.

CRC-32 of every byte would be the slowest part of a checkpoint: zlib computes it at a fraction of what a disk takes. So
a chunk is added up first, in both directions, and the CRC-32 is that of the sums:

- the chunk is read as little-endian 64-bit words in rows of 511;
- the checksum is the CRC-32 of the sums of the columns, then the sums of the rows (all modulo 2^64, little-endian,
  eight bytes each), then the bytes that are less than a row. Below one row it is the plain CRC-32.

One altered word changes one sum in each direction; any one, two or three altered words change some sum. The row's
length is odd, so a row of equal words never adds up to zero: bytes that were lost and read as zeros are noticed
whatever they were. Rows are no power of two, so blocks of a disk that changed places meet other columns. What is left
is the chance of CRC-32 itself, one in 2^32.
"""

from __future__ import annotations

import importlib
import struct
import sys
import zlib
from typing import Any

from .arrays import Buffer

CHECKSUM_NAME = "sums-crc32"

_ROW_WORDS = 511
_ROW_BYTES = _ROW_WORDS * 8
# So many rows are added up at once in both directions: half a mebibyte stays in a core's cache between the two.
_BLOCK_ROWS = 128
_WORTH_AN_IMPORT_BYTES = 2**20


def chunk_checksum(raw: Buffer) -> str:
    """Give the checksum of one chunk, eight hexadecimal digits."""
    view = memoryview(raw).cast("B") if len(memoryview(raw)) else memoryview(b"")
    rows = len(view) // _ROW_BYTES
    if not rows:
        return f"{zlib.crc32(view):08x}"
    words = view[: rows * _ROW_BYTES]
    numpy = _numpy(len(view))
    sums = _sums(words) if numpy is None else _sums_by_numpy(words, numpy)
    return f"{zlib.crc32(view[rows * _ROW_BYTES :], zlib.crc32(sums)):08x}"


def _sums_by_numpy(words: memoryview, np: Any) -> bytes:
    rows = np.frombuffer(words, dtype="<u8").reshape(-1, _ROW_WORDS)
    columns = np.zeros(_ROW_WORDS, dtype="<u8")
    across = np.empty(len(rows), dtype="<u8")
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        columns += np.add.reduce(block, axis=0)
        across[start : start + _BLOCK_ROWS] = np.add.reduce(block, axis=1)
    return columns.tobytes() + across.tobytes()  # type: ignore[no-any-return]


def _sums(words: memoryview) -> bytes:
    """Do the same with the standard library alone, some thirty times slower."""
    numbers = struct.unpack(f"<{len(words) // 8}Q", words)
    columns = [sum(numbers[column::_ROW_WORDS]) % 2**64 for column in range(_ROW_WORDS)]
    across = [sum(numbers[start : start + _ROW_WORDS]) % 2**64 for start in range(0, len(numbers), _ROW_WORDS)]
    return struct.pack(f"<{len(columns) + len(across)}Q", *columns, *across)


def _numpy(size: int) -> Any:
    """Give NumPy where it is imported already, or installed and worth it."""
    if size < _WORTH_AN_IMPORT_BYTES and "numpy" not in sys.modules:
        return None
    try:
        # Waits where another thread is in the middle of importing it.
        return importlib.import_module("numpy")
    except ImportError:
        return None
