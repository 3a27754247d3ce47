"""Says whether a file that a framework wrote is whole, from its head and its end; nothing in it is loaded.

A process that is killed while it writes leaves a file that ends too early, and so does a copy that was made meanwhile.
Each of these formats says somewhere how long it is, or ends in a way of its own:

- HDF5 (`.h5`, `.hdf5`): the superblock holds the end-of-file address, and is written last. Source: HDF5 File Format
  Specification, II.A.
- Zip (`.keras`, `.npz`, torch's `.pt`, `.pth`, `.pth.tar` and `.ckpt`): the central directory is written last.
- Safetensors: the head holds the offsets of every tensor.
- The index of a TensorFlow checkpoint: a table whose last eight bytes are a magic number.

What has none of these formats is not judged. Reading leaves no time of access behind where the system allows it: by
that a rehearsal sees which checkpoints the script itself has read.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

NAMES = (".h5", ".hdf5", ".keras", ".npz", ".pt", ".pth", ".pth.tar", ".ckpt", ".safetensors")
"""How the names end of files that are judged."""

_HDF5 = b"\x89HDF\r\n\x1a\n"
_OBJECT_HEADERS = (b"OHDR", b"\x01\0")
_ZIP = b"PK\x03\x04"
_TABLE_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_HEAD_BYTES = 512
_SHORTEST_BYTES = 22
"""The length of an empty zip file. A superblock is longer."""
_UNSIGNED = {2: "<H", 4: "<I", 8: "<Q"}
_MOST_HEADER_BYTES = 100 * 2**20
"""The longest header of a safetensors file: the format's own bound."""


def problem_of(path: Path) -> str | None:
    """Say why a file is not whole; None when it is, or when its format is none of these.

    Args:
        path: Its name ends with one of `NAMES`, or did before it was copied.

    Raises:
        OSError: If it cannot be read.
    """
    with open_unnoticed(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(_HEAD_BYTES)
        if not head.strip(b"\0"):
            return _zeros_problem(file, size)
        if len(head) < _SHORTEST_BYTES and any(magic.startswith(head[: len(magic)]) for magic in (_HDF5, _ZIP)):
            return "it ends in its first words"
        if head.startswith(_HDF5):
            return _hdf5_problem(file, head, size)
        if head.startswith(_ZIP):
            return _zip_problem(file)
        if path.suffix == ".safetensors":
            return _safetensors_problem(file, head, size)
        return None


def is_table(path: Path) -> bool:
    """Say whether a file ends as the index of a TensorFlow checkpoint does.

    Raises:
        OSError: If it cannot be read.
    """
    with open_unnoticed(path) as file:
        file.seek(max(file.seek(0, 2) - len(_TABLE_MAGIC), 0))
        return file.read() == _TABLE_MAGIC


def open_unnoticed(path: Path) -> BinaryIO:
    """Open a file to be read, without a new time of access if the system grants that.

    Raises:
        OSError: If it cannot be read.
    """
    return open(path, "rb", opener=_unnoticed)


def _unnoticed(path: str, flags: int) -> int:
    with contextlib.suppress(PermissionError):  # of another owner's file, or one that may not be read at all
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    return os.open(path, flags)


def _zeros_problem(file: BinaryIO, size: int) -> str | None:
    if not size:
        return "it is empty"
    offset = _HEAD_BYTES  # HDF5 lets a block of the user's own stand first, of 512 bytes times a power of two
    while offset < size:
        file.seek(offset)
        if file.read(len(_HDF5)) == _HDF5:
            return None
        offset *= 2
    return "it begins with zeros"


def _hdf5_problem(file: BinaryIO, head: bytes, size: int) -> str | None:
    padded = head.ljust(_HEAD_BYTES, b"\0")
    version = head[8]
    if version > 3:
        return None
    width, first = (head[13], 24 if version == 0 else 28) if version < 2 else (head[9], 12)
    if width not in _UNSIGNED:
        return None
    if version == 3 and head[11] & 1:
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


def _zip_problem(file: BinaryIO) -> str | None:
    try:
        with zipfile.ZipFile(file):
            return None
    except zipfile.BadZipFile:
        return "its central directory is missing: it ends too early"


def _safetensors_problem(file: BinaryIO, head: bytes, size: int) -> str | None:
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
