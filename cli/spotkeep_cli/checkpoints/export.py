"""Exports a checkpoint to a safetensors file, or a file for `torch.load`.

The file is there whole or not at all.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import tempfile
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from spotkeep.errors import DamagedCheckpointError, MissingLibraryError
from spotkeep.state.encoding import MalformedStateError, decode_state
from spotkeep_cli.checkpoints.elements import as_text, element_type
from spotkeep_cli.errors import CommandLineError, UsageError
from spotkeep_cli.rendering.quantities import size as size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spotkeep.disk.inspection import Entry, InspectedCheckpoint
    from spotkeep_cli.checkpoints.elements import ElementType

_PIECE_BYTES = 2**20
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}


def row_major(checkpoint: InspectedCheckpoint, entry: Entry) -> Iterator[bytes]:
    """Give an array's bytes in C order and little-endian, verified.

    Args:
        checkpoint: The checkpoint of the array.
        entry: The array. Its elements (or their halves, if complex) have 1, 2, 4 or 8 bytes.

    Raises:
        DamagedCheckpointError: If a chunk of it is damaged.
    """
    assert entry.size is not None  # noqa: S101 -- only arrays come here
    elements = element_type(entry)
    pieces = checkpoint.pieces(entry, _PIECE_BYTES)
    if entry.order != "C" and entry.shape is not None and len(entry.shape) > 1:
        item_bytes = elements.item_bytes or 1
        order = tuple(reversed(range(len(entry.shape)))) if isinstance(entry.order, str) else entry.order
        pieces = iter([in_row_major(b"".join(pieces), shape=entry.shape, order=order, item_bytes=item_bytes)])
    for piece in pieces:
        yield _swapped(piece, elements) if elements.big_endian else piece


def in_row_major(raw: bytes, *, shape: tuple[int, ...], order: tuple[int, ...], item_bytes: int) -> bytes:
    """Turn an order of the dimensions, the outermost first, into C's."""
    if not raw:
        return raw
    flat: memoryview = memoryview(raw).cast(_UNSIGNED[item_bytes])  # type: ignore[call-overload]
    strides = [math.prod(shape[inner] for inner in order[order.index(axis) + 1 :]) for axis in range(len(shape))]
    return b"".join(_rows(flat, shape, strides))


def _rows(flat: memoryview, shape: Sequence[int], strides: Sequence[int]) -> Iterator[bytes]:
    if len(shape) == 1:
        yield flat[: (shape[0] - 1) * strides[0] + 1 : strides[0]].tobytes()
        return
    for index in range(shape[0]):
        yield from _rows(flat[index * strides[0] :], shape[1:], strides[1:])


def _swapped(piece: bytes, elements: ElementType) -> bytes:
    size = (elements.item_bytes or 1) // (2 if elements.name.startswith("complex") else 1)
    values = array(_UNSIGNED[size], piece)
    values.byteswap()
    return values.tobytes()


MAX_HEADER_BYTES = 100_000_000
"""The most bytes of a header that the reference implementation reads."""

_ALIGNMENT_BYTES = 8


class HeaderTooLongError(Exception):
    """The names and values are more than any reader of the format takes."""


def write_safetensors(
    file: BinaryIO,
    checkpoint: InspectedCheckpoint,
    arrays: Sequence[Entry],
    *,
    metadata: Mapping[str, str],
    on_bytes: Callable[[int], None],
) -> int:
    """Write a whole file. Return its size in bytes.

    Args:
        file: A file open for writing, and able to seek. Arrays are read in the order given, and may be placed in
            another.
        checkpoint: The checkpoint of the arrays.
        arrays: The arrays to write. The format has their types, and none is named `__metadata__`.
        metadata: Free text beside them.
        on_bytes: Called with each number of bytes read.

    Raises:
        HeaderTooLongError: The header is longer than readers take.
        DamagedCheckpointError: If a chunk of an array is damaged.
    """
    document: dict[str, object] = {"__metadata__": dict(metadata)}
    offsets: dict[str, int] = {}
    end = 0
    # The largest elements first: each array is aligned to its own.
    for entry in sorted(arrays, key=lambda entry: -(entry.item_bytes or 1)):
        offsets[entry.name] = end
        end += entry.size or 0
        document[entry.name] = {
            "dtype": element_type(entry).safetensors_name,
            "shape": list(entry.shape or ()),
            "data_offsets": [offsets[entry.name], end],
        }
    header = json.dumps(document, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT_BYTES)
    if len(header) > MAX_HEADER_BYTES:
        raise HeaderTooLongError(f"its names and values make a header of {len(header):,} bytes")
    file.write(len(header).to_bytes(8, "little"))
    file.write(header)
    data_start = 8 + len(header)
    for entry in arrays:
        file.seek(data_start + offsets[entry.name])
        for piece in row_major(checkpoint, entry):
            on_bytes(len(piece))
            file.write(piece)
    return data_start + end


class ExportFormat(StrEnum):
    """The formats of an export."""

    SAFETENSORS = "safetensors"
    TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export.

    Attributes:
        size: Bytes of the file.
        tensors: Number of tensors in it.
        values: Number of plain values in it.
        left_out: The entries that the format cannot hold, with the reasons.
    """

    size: int
    tensors: int
    values: int
    left_out: tuple[tuple[str, str], ...]


def export(
    checkpoint: InspectedCheckpoint,
    target: Path,
    *,
    as_format: ExportFormat,
    overwrite: bool,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write a checkpoint's state to a file of another format. Every byte that goes there is verified first.

    Args:
        checkpoint: The checkpoint.
        target: The file.
        as_format: Its format.
        overwrite: True to replace an existing file.
        on_bytes: Called with each number of bytes read.

    Raises:
        DamagedCheckpointError: If it is damaged. Nothing was written.
        UsageError: If there is such a file, it cannot be written, or a library is missing.
        CommandLineError: If the state does not fit the format, or this machine's memory.
    """
    write = _write_safetensors if as_format is ExportFormat.SAFETENSORS else _write_torch
    with _new_file(target, overwrite=overwrite) as file:
        return write(checkpoint, file, on_bytes)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a target before anything is downloaded or read for it.

    Raises:
        UsageError: If it is there already, or cannot be a file.
    """
    if target.is_dir():
        raise UsageError(f"{target} is a directory", hint="name the file to write, for example state.safetensors")
    if not target.parent.is_dir():
        raise UsageError(f"there is no directory {target.parent}", hint="make it, or name another")
    if not overwrite and os.path.lexists(target):
        raise UsageError(f"{target} is there already", hint="name another file, or add --force to replace it")


def _write_safetensors(checkpoint: InspectedCheckpoint, file: BinaryIO, on_bytes: Callable[[int], None]) -> Exported:
    arrays: list[Entry] = []
    left_out: list[tuple[str, str]] = []
    metadata = {"format": "pt", "spotkeep.step": str(checkpoint.step), "spotkeep.library": checkpoint.manifest.library}
    values = 0
    for entry in checkpoint.entries():
        if entry.kind == "value":
            metadata[entry.name] = as_text(entry.value)
            values += 1
        elif (why_not := _why_not(entry)) is not None:
            left_out.append((entry.name, why_not))
        else:
            arrays.append(entry)
    try:
        size = write_safetensors(file, checkpoint, arrays, metadata=metadata, on_bytes=on_bytes)
    except HeaderTooLongError as error:
        raise CommandLineError(
            f"a safetensors file cannot hold this state: {error}", hint="export it with --format torch"
        ) from error
    return Exported(size=size, tensors=len(arrays), values=values, left_out=tuple(left_out))


def _why_not(entry: Entry) -> str | None:
    """Return the reason that a safetensors file cannot hold an entry. None where it can."""
    if entry.dtype is None:
        return "bytes, not an array"
    if entry.name == "__metadata__":
        return "the format keeps this name for itself"
    elements = element_type(entry)
    return None if elements.safetensors_name is not None else f"safetensors has no {elements.label}"


def _write_torch(checkpoint: InspectedCheckpoint, file: BinaryIO, on_bytes: Callable[[int], None]) -> Exported:
    torch = _torch()
    entries = checkpoint.entries()
    _check_memory(sum(entry.size or 0 for entry in entries))

    def read(stream: int, offset: int, size: int) -> bytes:
        on_bytes(size)
        return checkpoint.bytes_at(stream, offset, size)

    manifest = checkpoint.manifest
    try:
        state = decode_state(manifest.whole_state(), read, divided=manifest.divided)
    except MalformedStateError as error:
        raise DamagedCheckpointError(f"step-{checkpoint.step}/manifest.json", str(error)) from error
    except MissingLibraryError as error:
        raise UsageError(str(error).partition("; use")[0], hint="install it: pip install numpy") from error
    converted = _Converted(torch)
    torch.save(converted.of(state, ()), file)
    return Exported(
        size=file.tell(),
        tensors=sum(entry.size is not None and entry.dtype is not None for entry in entries) - len(converted.left_out),
        values=sum(entry.dtype is None for entry in entries),
        left_out=tuple(converted.left_out),
    )


class _Converted:
    """A state as torch alone understands it, so that `torch.load` needs no leave to run code."""

    def __init__(self, torch: Any) -> None:
        self.left_out: list[tuple[str, str]] = []
        self._torch = torch

    def of(self, value: Any, names: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            converted = ((key, self.of(item, (*names, str(key)))) for key, item in value.items())
            return {key: item for key, item in converted if item is not _LEFT_OUT}
        if isinstance(value, list | tuple):
            items = [self.of(item, (*names, str(index))) for index, item in enumerate(value)]
            return type(value)(None if item is _LEFT_OUT else item for item in items)
        if not hasattr(value, "dtype") or isinstance(value, self._torch.Tensor):
            return value
        return self._tensor(value, names)

    def _tensor(self, value: Any, names: tuple[str, ...]) -> Any:
        import numpy as np

        array = np.array(value, order="C")
        try:
            return self._torch.from_numpy(array.astype(array.dtype.newbyteorder("="))).reshape(array.shape)
        except TypeError:
            self.left_out.append((".".join(names), f"torch has no {array.dtype}"))
            return _LEFT_OUT


_LEFT_OUT = object()


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UsageError(
            "writing a torch file needs torch, which is not installed here",
            hint="pip install torch, or export with --format safetensors, which needs nothing",
        ) from error


def _check_memory(size: int) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise CommandLineError(
            f"the state has {size_text(size)}, more than this machine's memory ({size_text(memory)})",
            hint="export it with --format safetensors, which needs little memory",
        )


@contextmanager
def _new_file(target: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield a file that takes its name once it is whole."""
    check_target(target, overwrite=overwrite)
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            draft = Path(file.name)
            try:
                yield cast("BinaryIO", file)
                file.flush()
                os.fsync(file.fileno())
                draft.chmod(0o666 & ~_umask())
                check_target(target, overwrite=overwrite)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror or error}",
            hint="name a place with room that you may write to",
        ) from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
