"""Tells if a file of a known format is whole, from its head and its end. Nothing in it is loaded.

A process that is killed during a write leaves a file that ends too early. A copy during that write is too short, too.
Each of these formats holds its length, or has an end of its own.

- HDF5 writes its superblock last, and the superblock holds the end-of-file address. Source: HDF5 File Format
  Specification, II.A.
- Zip writes its central directory last.
- Safetensors holds the offsets of every tensor in its head.
- `.npy` holds the array's type and shape in its head.
- zlib and gzip streams have an end of their own.
- The index of a TensorFlow checkpoint is a table whose last eight bytes are a magic number.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .reading import open_unnoticed

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"
NPY = b"\x93NUMPY"
COMPRESSED = (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
"""The first bytes of gzip and zlib streams."""
_OPEN_FOR_WRITING = 1 | 4
"""The consistency flags of a file whose writer has not closed it. One is for any writer, one for concurrent readers."""
_OBJECT_HEADERS = (b"OHDR", b"\x01\0")
_TABLE_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
HEAD_BYTES = 512
_UNSIGNED = {2: "<H", 4: "<I", 8: "<Q"}
_MOST_HEADER_BYTES = 100 * 2**20
"""The longest header of a safetensors file, by the format's own bound."""
_MOST_NPY_HEADER_BYTES = 2**16
_PLAIN_TYPE = re.compile(rb"'descr': *'[<>|=]?([biufcmMSUV])([0-9]{1,9})(?:\[[^]']*\])?'")
_SHAPE = re.compile(rb"'shape': *\(((?:[0-9]{1,18},? ?)*)\)")
_MOST_UNPACKED_BYTES = 2**32
_CHUNK_BYTES = 2**20


def is_table(path: Path) -> bool:
    """Say whether a file ends as the index of a TensorFlow checkpoint does.

    Raises:
        OSError: If it cannot be read.
    """
    with open_unnoticed(path) as file:
        file.seek(max(file.seek(0, 2) - len(_TABLE_MAGIC), 0))
        return file.read() == _TABLE_MAGIC


def zeros_problem(file: BinaryIO, size: int) -> str | None:
    """Say why a file that begins with zeros is not whole. None if HDF5 begins behind them."""
    if not size:
        return "it is empty"
    offset = HEAD_BYTES  # HDF5 lets a block of the user's own stand first, of 512 bytes times a power of two
    while offset < size:
        file.seek(offset)
        if file.read(len(HDF5)) == HDF5:
            return None
        offset *= 2
    return "it begins with zeros"


def hdf5_problem(file: BinaryIO, head: bytes, size: int, *, kept_open: bool = False) -> str | None:
    """Say why an HDF5 file is not whole.

    Args:
        file: The file.
        head: Its first bytes.
        size: Its length.
        kept_open: A training may keep it open and flush it. Flushed data can be read without a close, but for version
            3, which HDF5 then refuses.
    """
    padded = head.ljust(HEAD_BYTES, b"\0")
    version = head[8]
    if version > 3:
        return None
    width, first = (head[13], 24 if version == 0 else 28) if version < 2 else (head[9], 12)
    if width not in _UNSIGNED:
        return None
    flags = padded[20] if version < 2 else padded[11]
    if flags & _OPEN_FOR_WRITING and (version == 3 or not kept_open):
        return "it was being written"
    # Base, another address, end of file; then the root group: in old versions behind two more words.
    base, _, end, *root = (struct.unpack_from(_UNSIGNED[width], padded, first + index * width)[0] for index in range(6))
    if base + end > size:
        return f"it has {size:,} of {base + end:,} bytes"
    # Closing a file writes this address last, and cuts the file there. Before, it may be that of the empty file, with
    # everything else in place: HDF5 then refuses to read behind it.
    if base + end < size:
        return f"it was being written: it has {size:,} bytes, and ends after {base + end:,} by its own account"
    address = base + (root[2] if version < 2 else root[0])
    file.seek(address if address < size else size)
    # A file that was never closed holds data, and nothing that leads to them.
    return None if file.read(4).startswith(_OBJECT_HEADERS) else "it was being written: its root group is missing"


def zip_problem(file: BinaryIO) -> str | None:
    """Say why a zip file is not whole."""
    try:
        with _archive(file):
            return None
    except zipfile.BadZipFile:
        return "its central directory is missing: it ends too early"
    except _OddZipError:
        return None  # it has one, in which something else is wrong


def member_of_zip(file: BinaryIO, ending: str, *, most_bytes: int) -> bytes | None:
    """Read the one member of a zip file with this end of its name. None without an uncompressed one.

    Args:
        file: The file.
        ending: The end of the name.
        most_bytes: A longer member is not read.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with _archive(file) as archive:
            found = [member for member in archive.infolist() if member.filename.endswith(ending)]
            if len(found) == 1 and found[0].compress_type == zipfile.ZIP_STORED and found[0].file_size <= most_bytes:
                return archive.read(found[0])
    except (zipfile.BadZipFile, _OddZipError):
        pass
    return None


class _OddZipError(Exception):
    """A zip file holds something that the standard library does not understand."""


@contextlib.contextmanager
def _archive(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (ValueError, NotImplementedError, RuntimeError, EOFError, struct.error) as error:
        raise _OddZipError from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a place that is none
            raise
        raise _OddZipError from error


def safetensors_problem(file: BinaryIO, head: bytes, size: int) -> str | None:
    """Say why a file of safetensors is not whole."""
    (header_bytes,) = struct.unpack_from("<Q", head.ljust(8, b"\0"))
    if header_bytes > _MOST_HEADER_BYTES:
        return None
    file.seek(8)
    try:
        header = json.loads(file.read(header_bytes))
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return "its header cannot be read"
    return None if 8 + header_bytes + end <= size else f"it has {size:,} of {8 + header_bytes + end:,} bytes"


def npy_problem(file: BinaryIO, head: bytes, size: int) -> str | None:
    """Say why an array that NumPy wrote is not whole. One of Python's objects is not judged.

    Source: `numpy.lib.format`.
    """
    width = 2 if head[6:7] == b"\1" else 4
    if len(head) < 8 + width:
        return "it ends in its first words"
    (length,) = struct.unpack_from(_UNSIGNED[width], head, 8)
    start = 8 + width + length
    if start > size:
        return "it ends in its header"
    if length > _MOST_NPY_HEADER_BYTES:
        return None
    file.seek(8 + width)
    header = file.read(length)
    kind, shape = _PLAIN_TYPE.search(header), _SHAPE.search(header)
    if not kind or not shape:
        return None
    item_bytes = int(kind[2]) * (4 if kind[1] == b"U" else 1)
    end = start + item_bytes * math.prod(int(each) for each in re.findall(rb"[0-9]+", shape[1]))
    return None if end <= size else f"it has {size:,} of {end:,} bytes"


def compressed_problem(file: BinaryIO) -> str | None:
    """Say why a file that zlib or gzip wrote is not whole. Behind 4 GiB of its content it is not judged."""
    file.seek(0)
    stream, unpacked = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS), 0
    try:
        while unpacked <= _MOST_UNPACKED_BYTES and not stream.eof:
            packed = stream.unconsumed_tail or file.read(_CHUNK_BYTES)
            content = stream.decompress(packed, _CHUNK_BYTES)
            unpacked += len(content)
            if not packed and not content:
                return "it ends too early"
    except zlib.error:
        return None
    return None
