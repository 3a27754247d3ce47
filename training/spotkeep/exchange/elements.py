"""The element types of arrays by one name each, and arrays whose bytes come in pieces.

torch, NumPy, safetensors and Zarr spell element types differently. Here each has torch's name, such as `float32`.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Callable

from spotkeep.errors import ExchangeError

PIECE_BYTES = 2**20
"""The bytes of a piece. Every size of an element divides it."""

ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""The bytes of an element, by the name of its type."""

NUMPY_NAMES = {
    "b1": "bool",
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
}
"""The types that NumPy and torch both have, by NumPy's spelling without its byte order."""

_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True)
class Array:
    """An array of a checkpoint. Its bytes are read when they are asked for.

    Attributes:
        kind: `tensor` for one of torch, `ndarray` or `scalar` for one of NumPy.
        dtype: The name of its element type, such as `float32`.
        shape: Its shape.
        read: Gives its bytes in C order and little-endian, in pieces of any size.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Iterator[bytes]]

    @property
    def size(self) -> int:
        """The number of its bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def pieces(self) -> Iterator[bytes]:
        """Give its bytes, as many as its type and shape need.

        Raises:
            ExchangeError: The source has another number of bytes.
        """
        left = self.size
        for piece in self.read():
            left -= len(piece)
            if left < 0:
                break
            yield piece
        if left:
            raise ExchangeError(f"an array of shape {list(self.shape)} does not have {self.size:,} bytes")


@dataclass(frozen=True)
class Stray:
    """A value that a format or this library does not take.

    Attributes:
        why: The reason, in a few words.
    """

    why: str


def in_row_major(raw: bytes, *, shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> bytes:
    """Copy elements that lie anywhere in some bytes into C's order.

    Args:
        raw: The bytes, from the first element on.
        shape: The shape of the result.
        strides: The elements from one index to the next, in each dimension.
        item_bytes: The bytes of an element.
    """
    if not math.prod(shape):
        return b""
    if item_bytes == 16:
        shape, strides, item_bytes = (*shape, 2), (*(2 * stride for stride in strides), 1), 8
    flat = memoryview(raw).cast(_UNSIGNED[item_bytes])  # type: ignore[call-overload]
    return b"".join(_rows(flat, shape, strides))


def _rows(flat: memoryview, shape: Sequence[int], strides: Sequence[int]) -> Iterator[bytes]:
    if not shape:
        yield flat[:1].tobytes()
    elif len(shape) > 1:
        for index in range(shape[0]):
            yield from _rows(flat[index * strides[0] :], shape[1:], strides[1:])
    elif strides[0]:
        yield flat[: (shape[0] - 1) * strides[0] + 1 : strides[0]].tobytes()
    else:
        yield flat[:1].tobytes() * shape[0]


def swapped(piece: bytes, *, item_bytes: int) -> bytes:
    """Turn the byte order of elements round.

    Args:
        piece: Whole elements.
        item_bytes: The bytes of an element, or of half a complex one.
    """
    values = array(_UNSIGNED[item_bytes], piece)
    values.byteswap()
    return values.tobytes()


def require_little_endian() -> None:
    """Refuse a machine whose bytes lie in another order than those of the files.

    Raises:
        ExchangeError: It is big-endian.
    """
    if sys.byteorder != "little":
        raise ExchangeError("the files of other formats are little-endian, and this machine is big-endian")
