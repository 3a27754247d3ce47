"""Writes a safetensors file: eight bytes that say how long the header is, a JSON header, the bytes of the tensors.

The format is described at https://github.com/huggingface/safetensors. Its alignment is that of the header: tensors of
larger elements come first, so that every one is aligned to its own elements.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_HEADER_BYTES = 100_000_000
"""What the reference implementation reads at most."""

_ALIGNMENT_BYTES = 8


class HeaderTooLongError(Exception):
    """The names and values are more than any reader of the format takes."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor to be written.

    Attributes:
        name: Its name, unique in the file, not `__metadata__`.
        dtype: Its type in the format's words, `F32` and so on.
        shape: Its shape.
        item_bytes: Bytes of one element.
        size: Bytes of all.
        pieces: Gives the bytes, in C order and little-endian.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    item_bytes: int
    size: int
    pieces: Callable[[], Iterable[bytes]]


def write_safetensors(file: BinaryIO, tensors: Sequence[Tensor], *, metadata: Mapping[str, str]) -> int:
    """Write a whole file; gives its size in bytes.

    Args:
        file: Open for writing, and able to seek: tensors are asked for in the order given, wherever they go.
        tensors: What to write.
        metadata: Free text beside it.

    Raises:
        HeaderTooLongError: If the header is longer than readers take.
    """
    document: dict[str, object] = {"__metadata__": dict(metadata)}
    offsets: dict[str, int] = {}
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: -tensor.item_bytes):
        offsets[tensor.name] = end
        end += tensor.size
        document[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offsets[tensor.name], end],
        }
    header = json.dumps(document, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT_BYTES)
    if len(header) > MAX_HEADER_BYTES:
        raise HeaderTooLongError(f"its names and values make a header of {len(header):,} bytes")
    file.write(len(header).to_bytes(8, "little"))
    file.write(header)
    data_start = 8 + len(header)
    for tensor in tensors:
        file.seek(data_start + offsets[tensor.name])
        for piece in tensor.pieces():
            file.write(piece)
    return data_start + end
