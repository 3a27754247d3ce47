"""Writes a safetensors file.

It has eight bytes with the length of the header, a JSON header, and the arrays row by row.
"""

from __future__ import annotations

import json
import math
from array import array
from typing import TYPE_CHECKING, BinaryIO

from spotkeep_cli.checkpoints.elements import element_type

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
    assert entry.span is not None  # noqa: S101 -- only arrays come here
    elements = element_type(entry)
    pieces = checkpoint.pieces(entry.span, _PIECE_BYTES)
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
        on_bytes: Called with the number of further bytes read.

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
        end += entry.span.size if entry.span else 0
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
