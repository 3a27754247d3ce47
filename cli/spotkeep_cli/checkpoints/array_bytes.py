"""An array's bytes as other programs want them: row by row, little-endian, piece by piece."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep.disk.inspection import Entry, InspectedCheckpoint
    from spotkeep_cli.checkpoints.element_types import ElementType

_PIECE_BYTES = 2**20
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}


def row_major(checkpoint: InspectedCheckpoint, entry: Entry, elements: ElementType) -> Iterator[bytes]:
    """Give an array's bytes in C order and little-endian, verified.

    Args:
        checkpoint: Where it is.
        entry: The array.
        elements: Its type, one whose elements (or their halves, if complex) have 1, 2, 4 or 8 bytes.

    Raises:
        DamagedCheckpointError: If a chunk of it is damaged.
    """
    assert entry.span is not None  # noqa: S101 -- only arrays come here
    pieces = checkpoint.pieces(entry.span, _PIECE_BYTES)
    if entry.order == "F" and entry.shape is not None and len(entry.shape) > 1:
        item_bytes = elements.item_bytes or 1
        pieces = iter([from_column_major(b"".join(pieces), shape=entry.shape, item_bytes=item_bytes)])
    for piece in pieces:
        yield _swapped(piece, elements) if elements.big_endian else piece


def from_column_major(raw: bytes, *, shape: tuple[int, ...], item_bytes: int) -> bytes:
    """Turn Fortran's order into C's."""
    if not raw:
        return raw
    flat: memoryview = memoryview(raw).cast(_UNSIGNED[item_bytes])  # type: ignore[call-overload]
    return b"".join(_rows(flat, shape))


def _rows(flat: memoryview, shape: tuple[int, ...]) -> Iterator[bytes]:
    # The first index runs fastest: what shares one value of it lies `shape[0]` elements apart.
    if len(shape) == 1:
        yield flat.tobytes()
        return
    for index in range(shape[0]):
        yield from _rows(flat[index :: shape[0]], shape[1:])


def _swapped(piece: bytes, elements: ElementType) -> bytes:
    size = (elements.item_bytes or 1) // (2 if elements.name.startswith("complex") else 1)
    values = array(_UNSIGNED[size], piece)
    values.byteswap()
    return values.tobytes()
