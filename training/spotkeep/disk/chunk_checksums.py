"""A checksum at the speed of memory for each chunk of a data file. Pure.

CRC-32 of every byte would be the slowest part of a checkpoint, because zlib computes it at a fraction of a disk's
speed. So a chunk is added up first, in one pass that a processor does at the speed of its cache.

- The chunk is read as little-endian 64-bit words in rows of 511.
- The checksum is a CRC-32 of the sums of the columns (modulo 2^64, little-endian, eight bytes each), then of the bytes
  that are less than a row. Below one row it is the plain CRC-32.

It notices these changes, apart from CRC-32's own chance of one in 2^32.

- Any change within 4088 bytes in a row. Each of its words is in a column of its own.
- Blocks of 4096 bytes that read as zeros, any number of them in a row, over any equal words. A block is one word longer
  than a row, so one of two columns loses an odd number of words. Such a loss never adds up to zero.
- Blocks that changed places, because they meet other columns.

An error elsewhere stays unnoticed when it leaves all 511 sums unchanged. Examples are rows of 4088 bytes that changed
places, and a change by an attacker. The checksum is no signature.
"""

from __future__ import annotations

import importlib
import struct
import sys
import zlib
from typing import Any

from spotkeep.loaded import loaded
from spotkeep.native.copy_and_add import ROW_WORDS, CopyAndAdd, is_available
from spotkeep.state.arrays import Buffer

CHECKSUM_NAME = "column-sums-crc32"

ROW_BYTES = ROW_WORDS * 8
"""The size of a row of words."""

_WORTH_AN_IMPORT_BYTES = 2**20
# Torch shares larger sums among threads of its own, which costs more than it gains and disturbs the training.
_TORCH_ROWS = 64


def chunk_checksum(raw: Buffer) -> str:
    """Give the checksum of one chunk, eight hexadecimal digits."""
    (checksum,) = chunk_checksums(raw, max(memoryview(raw).nbytes, 1)) or [f"{0:08x}"]
    return checksum


def chunk_checksums(raw: Buffer, chunk_bytes: int) -> list[str]:
    """Give the checksum of each chunk of some bytes. The last chunk may be shorter.

    All at once, because each call that lets go of the interpreter's lock may have to wait to get it back.
    """
    view = memoryview(raw)
    view = view.cast("B") if view.nbytes else memoryview(b"")
    whole = len(view) // chunk_bytes * chunk_bytes
    chunks = [view[start : start + chunk_bytes] for start in range(0, whole, chunk_bytes)]
    if whole and chunk_bytes >= ROW_BYTES:
        checksums = [
            checksum_from_sums(sums, chunk) for sums, chunk in zip(column_sums(view[:whole], chunk_bytes), chunks)
        ]
    else:
        checksums = [f"{zlib.crc32(chunk):08x}" for chunk in chunks]
    if whole < len(view):
        checksums.append(chunk_checksum(view[whole:]))
    return checksums


def checksum_from_sums(sums: Any, chunk: memoryview) -> str:
    """Give the checksum of a chunk from its column sums.

    Args:
        sums: The sums of the columns, bytes-like.
        chunk: Its bytes, of which those after the last row count.
    """
    return checksum_from_rest(sums, chunk[rest_start(len(chunk)) :], whole=len(chunk) < ROW_BYTES)


def rest_start(chunk_bytes: int) -> int:
    """Say where in a chunk its last row ends."""
    return chunk_bytes // ROW_BYTES * ROW_BYTES


def checksum_from_rest(sums: Any, rest: Buffer, *, whole: bool) -> str:
    """Give the checksum of a chunk from its column sums.

    Args:
        sums: The sums of the columns, bytes-like.
        rest: Its bytes after the last row.
        whole: True if it has no row, so that these are all its bytes.
    """
    return f"{zlib.crc32(rest) if whole else zlib.crc32(rest, zlib.crc32(sums)):08x}"


def column_sums(view: memoryview, chunk_bytes: int) -> Any:
    """Give the column sums of each chunk, as bytes-like objects."""
    if is_available():
        return CopyAndAdd([(0, view)]).column_sums(0, len(view), chunk_bytes=chunk_bytes)
    numpy = _numpy(len(view))
    if numpy is not None:
        shape = (len(view) // chunk_bytes, chunk_bytes // ROW_BYTES, ROW_WORDS)
        words = numpy.ndarray(shape, dtype="<u8", buffer=view, strides=(chunk_bytes, ROW_BYTES, 8))
        return numpy.add.reduce(words, axis=1)
    sums = _sums
    if loaded("torch") is not None and sys.byteorder == "little" and not view.readonly:
        sums = _sums_by_torch
    rows = chunk_bytes // ROW_BYTES
    return [sums(view[start : start + rows * ROW_BYTES]) for start in range(0, len(view), chunk_bytes)]


def _sums_by_torch(words: memoryview) -> bytes:
    torch: Any = sys.modules["torch"]
    rows = torch.frombuffer(words, dtype=torch.int64).view(-1, ROW_WORDS)
    sums = torch.stack([block.sum(0) for block in rows.split(_TORCH_ROWS)]).sum(0)
    return struct.pack(f"<{ROW_WORDS}q", *sums.tolist())


def _sums(words: memoryview) -> bytes:
    """Do the same with the standard library alone, some hundred times slower."""
    numbers = struct.unpack(f"<{len(words) // 8}Q", words)
    return struct.pack(f"<{ROW_WORDS}Q", *(sum(numbers[column::ROW_WORDS]) % 2**64 for column in range(ROW_WORDS)))


def _numpy(size: int) -> Any:
    """Return NumPy where it is imported already, or installed and worth the import."""
    if sys.byteorder != "little" or (size < _WORTH_AN_IMPORT_BYTES and "numpy" not in sys.modules):
        return None
    try:
        # Waits where another thread is in the middle of importing it.
        return importlib.import_module("numpy")
    except ImportError:
        return None
