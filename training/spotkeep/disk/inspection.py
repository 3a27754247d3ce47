"""Looks into one checkpoint without loading it.

It lists the content, verifies every byte, and gives the bytes of one array.

It is for tools that people use on checkpoints of any origin. Each claim is checked before it is used, no link is
followed, and no library is imported. Memory holds the manifest and a few chunks, however large the data files claim to
be.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Callable

from spotkeep.errors import DamagedCheckpointError
from spotkeep.state.decoding import decode_state
from spotkeep.state.divided import Box, Overlap, cover_problem, span
from spotkeep.state.encoding import MalformedStateError
from spotkeep.state.resharding import SavedBox, boxes_between

from .checkpoint_directory import CheckpointDirectory
from .chunk_checksums import chunk_checksum
from .manifest import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    DataFile,
    MalformedManifestError,
    Manifest,
    StreamFiles,
    parse_manifest,
)

Divided = Sequence[Sequence[SavedBox]]
"""The boxes of each divided array of a checkpoint."""

MAX_ENTRIES = 1_000_000
"""A state of more entries counts as an attack on memory. The largest models have some ten thousand tensors."""

_MAX_NAME_CHARACTERS = 2**28
_MAX_DEPTH = 200
_MOST_CHUNKS = 64
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY_FLAGS = _FILE_FLAGS | getattr(os, "O_DIRECTORY", 0)

_PLAIN_KINDS = frozenset(("int", "float", "complex", "str"))
_BYTE_KINDS = frozenset(("bytes", "bytearray"))
_ARRAY_KINDS = frozenset(("ndarray", "scalar", "tensor"))
_NUMPY_DTYPE = re.compile(r"[<>|]([biufcmMSUV])([0-9]{1,9})(\[[0-9a-zA-Z]{1,8}\])?")
_TORCH_ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


@dataclass(frozen=True)
class Entry:
    """One value of a state.

    Attributes:
        names: The keys and indices that lead to it, from the top.
        kind: `tensor`, `ndarray`, `scalar` (NumPy's), `bytes`, `bytearray`, or `value` for everything plain.
        dtype: As it is stored, a structured one as JSON. None unless it is an array.
        shape: The shape of an array. None for any other value.
        order: `F` for an array in Fortran's order. For one in another order of its own, its dimensions from the
            outermost to the innermost. Else `C`.
        item_bytes: Bytes of one element, if this module knows the dtype's size.
        size: The number of its bytes. None for a plain value.
        boxes: The places of its bytes, with the dimensions in the order in memory. An array that is divided among the
            ranks has several, and bytes are an array of one dimension.
        value: The plain value.
    """

    names: tuple[str, ...]
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    order: str | tuple[int, ...] = "C"
    item_bytes: int | None = None
    size: int | None = None
    boxes: tuple[SavedBox, ...] = ()
    value: Any = None

    @property
    def name(self) -> str:
        """Its names, joined by dots, unique within a state."""
        return ".".join(self.names)


class InspectedCheckpoint:
    """One checkpoint, open for inspection. Use it in a `with` block.

    Args:
        directory: The directory of checkpoints.
        step: The step of the checkpoint.

    Attributes:
        step: Completed steps.
        name: The name of its directory.
        manifest: Its manifest, checked.

    Raises:
        DamagedCheckpointError: It is not there, or has no sound manifest.
        NewerFormatError: A newer library wrote it.
    """

    def __init__(self, directory: Path, step: int) -> None:
        self.step = step
        self.name = CheckpointDirectory(directory).name(step)
        self._descriptor = self._open_directory(directory / self.name)
        self._file: tuple[str, int] | None = None
        self._chunks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        try:
            self.manifest = self._read_manifest()
            self._streams = list(map(StreamFiles, self.manifest.streams))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> InspectedCheckpoint:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its files."""
        self._close_file()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def entries(self) -> list[Entry]:
        """List the values of the state, in its order, without reading any data.

        Raises:
            DamagedCheckpointError: The state's document makes no sense, or refers to missing bytes.
        """
        try:
            return outline(self.manifest)
        except MalformedStateError as error:
            raise DamagedCheckpointError(f"{self.name}/{MANIFEST_NAME}", str(error)) from error

    def damage(self, on_bytes: Callable[[int], None] | None = None) -> Iterator[DamagedCheckpointError]:
        """Verify every byte, and name each damaged file and each run of damaged chunks.

        Args:
            on_bytes: Called with the number of further verified bytes.
        """
        for file in self.manifest.files:
            try:
                found = self._open_file(file)
            except DamagedCheckpointError as error:
                yield error
                continue
            yield from self._size_damage(file, found)
            yield from self._chunk_damage(file, found, on_bytes)
        try:
            self.entries()
        except DamagedCheckpointError as error:
            yield error

    def pieces(self, entry: Entry, piece_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Give the bytes of one entry, in its order in memory.

        They come in pieces of one size (the last may be shorter), each verified on the way.

        Args:
            entry: An entry with bytes.
            piece_bytes: The size of a piece, a multiple of the size of an element.

        Raises:
            DamagedCheckpointError: If a chunk that they touch is damaged.
        """
        size = entry.size or 0
        for start in range(0, size, piece_bytes):
            end = min(start + piece_bytes, size)
            if len(entry.boxes) == 1:
                (saved,) = entry.boxes
                yield self.bytes_at(saved.stream, saved.offset + start, end - start)
            else:
                yield self._assembled(entry, start, end)

    def bytes_at(self, stream: int, offset: int, size: int) -> bytes:
        """Give some bytes of a stream, verified.

        Raises:
            DamagedCheckpointError: If a chunk that they touch is damaged.
        """
        return b"".join(
            part
            for piece in self._streams[stream].pieces(offset, size)
            for part in self._verified(piece.file, piece.start, piece.start + piece.size)
        )

    def _assembled(self, entry: Entry, start: int, end: int) -> bytes:
        """Put together the bytes between two places of a divided array."""
        item, found = entry.item_bytes or 1, bytearray(end - start)
        shape = _in_order(entry.shape or (), entry.order)
        before = start // item
        for box in boxes_between(shape, before, end // item):
            first = span(Box.whole(shape), box)[0] - before
            for saved in entry.boxes:
                overlap = Overlap.of(saved.box, box)
                for run in overlap.runs() if overlap is not None else ():
                    low, size = (first + run.target) * item, run.length * item
                    found[low : low + size] = self.bytes_at(saved.stream, saved.offset + run.source * item, size)
        return bytes(found)

    def _verified(self, file: DataFile, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            number, inside = divmod(start, CHUNK_BYTES)
            stop = min(end, (number + 1) * CHUNK_BYTES)
            yield self._verified_chunk(file, number)[inside : inside + stop - start]
            start = stop

    def _verified_chunk(self, file: DataFile, number: int) -> bytes:
        known = self._chunks.get((file.name, number))
        if known is not None:
            self._chunks.move_to_end((file.name, number))
            return known
        for error in self._size_damage(file, self._open_file(file)):
            raise error
        raw, expected = self._read_chunk(file, number), file.chunks[number]
        if chunk_checksum(raw) != expected:
            raise self._altered(file, number, number + 1)
        self._chunks[file.name, number] = raw
        if len(self._chunks) > _MOST_CHUNKS:
            self._chunks.popitem(last=False)
        return raw

    def _size_damage(self, file: DataFile, found: int) -> Iterator[DamagedCheckpointError]:
        if found != file.size:
            yield DamagedCheckpointError(
                f"{self.name}/{file.name}",
                f"{found:,} bytes instead of {file.size:,}",
                offsets=(min(found, file.size), max(found, file.size)),
            )

    def _chunk_damage(
        self, file: DataFile, found: int, on_bytes: Callable[[int], None] | None
    ) -> Iterator[DamagedCheckpointError]:
        first_bad: int | None = None
        # What is cut off was named already.
        whole = [n for n in range(len(file.chunks)) if n * CHUNK_BYTES + _chunk_size(file, n) <= found]
        for number in whole:
            raw = self._read_chunk(file, number)
            if on_bytes is not None:
                on_bytes(len(raw))
            good = chunk_checksum(raw) == file.chunks[number]
            if good and first_bad is not None:
                yield self._altered(file, first_bad, number)
                first_bad = None
            elif not good and first_bad is None:
                first_bad = number
        if first_bad is not None:
            yield self._altered(file, first_bad, len(whole))

    def _altered(self, file: DataFile, first: int, end: int) -> DamagedCheckpointError:
        which = f"chunk {first} does" if end == first + 1 else f"chunks {first} to {end - 1} do"
        return DamagedCheckpointError(
            f"{self.name}/{file.name}",
            f"altered: {which} not have the checksum that was written",
            offsets=(first * CHUNK_BYTES, min(end * CHUNK_BYTES, file.size)),
        )

    def _read_chunk(self, file: DataFile, number: int) -> bytes:
        assert self._file is not None  # noqa: S101 - the caller opened it
        start, size = number * CHUNK_BYTES, _chunk_size(file, number)
        parts = []
        try:
            while size > 0:
                part = os.pread(self._file[1], size, start)
                if not part:
                    break
                parts.append(part)
                start, size = start + len(part), size - len(part)
        except OSError as error:
            raise self._unreadable(file.name, error) from error
        return b"".join(parts)

    def _open_file(self, file: DataFile) -> int:
        """Open one data file, close the one before. Gives its size."""
        if self._file is None or self._file[0] != file.name:
            self._close_file()
            self._file = file.name, self._open(file.name)
        return os.fstat(self._file[1]).st_size

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file[1])
            self._file = None

    def _read_manifest(self) -> Manifest:
        name = f"{self.name}/{MANIFEST_NAME}"
        descriptor = self._open(MANIFEST_NAME)
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > MAX_MANIFEST_BYTES:
                raise DamagedCheckpointError(name, f"{size:,} bytes, more than the {MAX_MANIFEST_BYTES:,} allowed")
            raw = file.read(MAX_MANIFEST_BYTES)
        return checked_manifest(raw, step=self.step, folder=self.name)

    def _open(self, name: str) -> int:
        try:
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=self._descriptor)
        except OSError as error:
            raise self._unreadable(name, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DamagedCheckpointError(f"{self.name}/{name}", "not a regular file")
        return descriptor

    def _open_directory(self, path: Path) -> int:
        try:
            return os.open(path, _DIRECTORY_FLAGS)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise DamagedCheckpointError(self.name, "not a directory (links are not followed)") from error
            raise DamagedCheckpointError(self.name, f"cannot be read: {error.strerror}") from error

    def _unreadable(self, name: str, error: OSError) -> DamagedCheckpointError:
        problem = f"cannot be read: {error.strerror}"
        if error.errno == errno.ENOENT:
            problem = "missing: it was never written or copied whole"
        elif error.errno == errno.ELOOP:
            problem = "not a regular file (links are not followed)"
        return DamagedCheckpointError(f"{self.name}/{name}", problem)


def checked_manifest(raw: bytes, *, step: int, folder: str) -> Manifest:
    """Read the manifest of one step from the bytes of its file.

    Args:
        raw: The bytes.
        step: The step.
        folder: The name of its directory, for the error.

    Raises:
        DamagedCheckpointError: If they are not a manifest, or that of another step.
        NewerFormatError: If a newer library wrote it.
    """
    name = f"{folder}/{MANIFEST_NAME}"
    try:
        manifest = parse_manifest(raw)
    except MalformedManifestError as error:
        raise DamagedCheckpointError(name, str(error)) from error
    if manifest.step != step:
        raise DamagedCheckpointError(name, f"it belongs to step {manifest.step}")
    return manifest


def outline(manifest: Manifest) -> list[Entry]:
    """List the values of a state in its order. Pure. It reads no data.

    Lists and tuples of plain values are one entry. An empty container is an entry too.

    Raises:
        MalformedStateError: If the document makes no sense, refers to bytes that no file has, or is beyond all measure.
    """
    entries: list[Entry] = []
    times_seen: dict[str, int] = {}
    room = _MAX_NAME_CHARACTERS
    places = _Places(manifest)
    for entry in _walk(manifest.whole_state(), (), manifest.divided):
        if len(entries) == MAX_ENTRIES:
            raise MalformedStateError(f"the state has more than {MAX_ENTRIES:,} entries")
        places.take(entry)
        name = entry.name
        room -= len(name)
        if room < 0:
            raise MalformedStateError("the names in the state are too long")
        times_seen[name] = times_seen.get(name, 0) + 1
        entries.append(_named_apart(entry, times_seen[name]))
    return entries


def _walk(node: Any, names: tuple[str, ...], divided: Divided) -> Iterator[Entry]:
    if len(names) > _MAX_DEPTH:
        raise MalformedStateError("the state is nested too deeply")
    kind, body = _kind(node)
    if kind == "state_dict":
        kind, body = "dict", body.get("items") if isinstance(body, dict) else None
    if kind in ("dict", "counter"):
        if not isinstance(body, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in body):
            raise MalformedStateError("a mapping has no pairs")
        for key, item in body:
            yield from _walk(item, (*names, _key_text(key)), divided)
        if not body:
            yield Entry(names=names, kind="value", value={})
    elif kind in ("list", "tuple") and _holds_entries(node, 0):
        for index, item in enumerate(body):
            yield from _walk(item, (*names, str(index)), divided)
    elif kind in _BYTE_KINDS:
        size, boxes = _one_box(body)
        yield Entry(names=names, kind=kind, size=size, boxes=boxes)
    elif kind in _ARRAY_KINDS:
        yield _array(kind, body, names, divided)
    else:
        yield Entry(names=names, kind="value", value=_plain(node))


def _kind(node: Any) -> tuple[str, Any]:
    if isinstance(node, list):
        return "list", node
    if not isinstance(node, dict):
        return "value", node
    if len(node) != 1:
        raise MalformedStateError(f"a value is {str(node)[:80]!r}, which is no kind of value")
    kind, body = next(iter(node.items()))
    if kind == "tuple" and not isinstance(body, list):
        raise MalformedStateError("a tuple has no items")
    return kind, body


def _holds_entries(node: Any, depth: int) -> bool:
    """Say whether a list or tuple has more than plain values in it, so that its items are worth an entry each."""
    if depth > _MAX_DEPTH:
        raise MalformedStateError("the state is nested too deeply")
    kind, body = _kind(node)
    if kind in ("list", "tuple"):
        return any(_holds_entries(item, depth + 1) for item in body if isinstance(item, (list, dict)))
    return kind != "value" and kind not in _PLAIN_KINDS


def _array(kind: str, body: Any, names: tuple[str, ...], divided: Divided) -> Entry:
    if not isinstance(body, dict):
        raise MalformedStateError("an array has no description")
    shape, dtype, order = body.get("shape"), body.get("dtype"), body.get("order", "C")
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise MalformedStateError(f"an array's shape is {str(shape)[:80]!r}, not a list of sizes")
    if isinstance(order, list) and all(type(axis) is int for axis in order):
        order = tuple(order)
    known_order = sorted(order) == list(range(len(shape))) if isinstance(order, tuple) else order in ("C", "F")
    if not known_order or not isinstance(dtype, (str, list)):
        raise MalformedStateError(f"an array's dtype or order makes no sense: {str(dtype)[:80]!r}, {str(order)[:80]!r}")
    item_bytes = _TORCH_ITEM_BYTES.get(str(dtype)) if kind == "tensor" else _numpy_item_bytes(dtype)
    if item_bytes is None and (kind == "tensor" or isinstance(dtype, str)):
        raise MalformedStateError(f"an array's dtype is {str(dtype)[:80]!r}, which is not known")
    if "divided" in body:
        size, boxes = _divided_boxes(body, shape, order, item_bytes, divided)
    else:
        size, boxes = _one_box(body)
    if item_bytes is not None and math.prod(shape) * item_bytes != size:
        raise MalformedStateError(f"an array of shape {shape} and dtype {dtype} does not have {size} bytes")
    return Entry(
        names=names,
        kind=kind,
        dtype=dtype if isinstance(dtype, str) else json.dumps(dtype),
        shape=tuple(shape),
        order=order,
        item_bytes=item_bytes,
        size=size,
        boxes=boxes,
    )


def _numpy_item_bytes(dtype: Any) -> int | None:
    match = _NUMPY_DTYPE.fullmatch(dtype) if isinstance(dtype, str) else None
    if match is None:
        return None
    return int(match.group(2)) * (4 if match.group(1) == "U" else 1)


def _one_box(body: Any) -> tuple[int, tuple[SavedBox, ...]]:
    """Give the size of a value's bytes, and their place."""
    if not isinstance(body, dict):
        raise MalformedStateError("an array has no description")
    offset, size = _count(body, "offset"), _count(body, "size")
    stream = _count(body, "stream") if "stream" in body else 0
    return size, (SavedBox(Box.whole((size,)), stream, offset),)


def _divided_boxes(
    body: dict[str, Any], shape: list[int], order: Any, item_bytes: int | None, divided: Divided
) -> tuple[int, tuple[SavedBox, ...]]:
    """Give the size of a divided array, and its boxes with their dimensions in its order in memory."""
    number = _count(body, "divided")
    if number >= len(divided):
        raise MalformedStateError(f"it refers to the divided array {number}, which does not exist")
    if item_bytes is None:
        raise MalformedStateError("a divided array has elements of an unknown size")
    problem = cover_problem(shape, [saved.box for saved in divided[number]])
    if problem is not None:
        raise MalformedStateError(f"a divided array is not whole: {problem}")
    axes = _in_order(range(len(shape)), order)
    boxes = tuple(replace(saved, box=saved.box.permuted(axes)) for saved in divided[number])
    return math.prod(shape) * item_bytes, boxes


def _in_order(values: Sequence[int], order: str | tuple[int, ...]) -> tuple[int, ...]:
    """Give a value for each dimension in the order in memory."""
    if isinstance(order, str):
        return tuple(values) if order == "C" else tuple(reversed(values))
    return tuple(values[axis] for axis in order)


def _count(body: dict[str, Any], name: str) -> int:
    number = body.get(name)
    if type(number) is not int or not 0 <= number < 2**63:
        raise MalformedStateError(f"an array's {name} is {str(number)[:80]!r}")
    return number


class _Places:
    """Checks places against the files, and against each other.

    Args:
        manifest: The manifest of the checkpoint.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._streams = list(map(StreamFiles, manifest.streams))
        self._ends: dict[tuple[int, bool], int] = {}

    def take(self, entry: Entry) -> None:
        """Check the places of an entry.

        Raises:
            MalformedStateError: They are not there, or belong to another entry.
        """
        several = len(entry.boxes) > 1
        for saved in entry.boxes:
            size = saved.box.volume * (entry.item_bytes or 1) if several else entry.size or 0
            if not size:
                continue
            if saved.stream >= len(self._streams):
                raise MalformedStateError(f"it refers to the stream {saved.stream}, which does not exist")
            self._streams[saved.stream].pieces(saved.offset, size)
            # The boxes of divided arrays come in one row, all other bytes in another.
            row = (saved.stream, several)
            if saved.offset < self._ends.get(row, 0):
                raise MalformedStateError("two arrays share the same bytes")
            self._ends[row] = saved.offset + size


def _named_apart(entry: Entry, times_seen: int) -> Entry:
    """Tell `0` from `"0"`, and `a.b` from `a` and `b`."""
    if times_seen == 1:
        return entry
    *above, last = entry.names or ("",)
    return replace(entry, names=(*above, f"{last}~{times_seen}"))


def _key_text(node: Any) -> str:
    if isinstance(node, str):
        return node
    kind, _ = _kind(node)
    if kind in _BYTE_KINDS:
        return kind
    try:
        return str(_plain(node))
    except ValueError:
        # Python refuses to write very long numbers in decimal digits.
        return f"a long {kind}"


def _plain(node: Any) -> Any:
    return decode_state({"dict": [["value", node]]}, _no_bytes)["value"]


def _no_bytes(*_place: int) -> bytes:
    raise MalformedStateError("an array stands where a plain value is expected")


def _chunk_size(file: DataFile, number: int) -> int:
    return min(CHUNK_BYTES, file.size - number * CHUNK_BYTES)
