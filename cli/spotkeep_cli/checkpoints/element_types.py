"""What the elements of a stored array are: one name for NumPy's and torch's spelling, and how other formats call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep.disk.inspection import Entry

_NUMPY_NAMES = {
    "b1": "bool",
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
}

_SAFETENSORS_NAMES = {
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """The elements of one array.

    Attributes:
        name: `float32`, `bfloat16` and so on; where nobody else has a name for it, as it is stored.
        item_bytes: Bytes of one element; None where they are not known.
        big_endian: Whether the bytes of an element stand the other way round.
    """

    name: str
    item_bytes: int | None
    big_endian: bool = False

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.name}, big-endian" if self.big_endian else self.name

    @property
    def safetensors_name(self) -> str | None:
        """What the safetensors format calls it; None where it has none."""
        return _SAFETENSORS_NAMES.get(self.name)


def element_type(entry: Entry) -> ElementType:
    """What the elements of an array are."""
    dtype = entry.dtype or ""
    if entry.kind == "tensor":
        return ElementType(name=dtype, item_bytes=entry.item_bytes)
    name = _NUMPY_NAMES.get(dtype[1:], dtype) if dtype[:1] in "<>|" else dtype
    return ElementType(name=name, item_bytes=entry.item_bytes, big_endian=dtype[:1] == ">" and name != dtype)
