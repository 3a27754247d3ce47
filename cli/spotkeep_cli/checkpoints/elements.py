"""The elements of a stored array and the plain values of a state, as text, as JSON and compared.

NumPy and torch spell types differently. Here each has one name. Elements are compared with NumPy where it is installed.

An element counts as changed when any bit of it changed. A resume is promised to the bit. So 0.0 and -0.0 differ, and a
NaN with other bits differs too.
"""

from __future__ import annotations

import importlib.util
import json
import math
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
        name: `float32`, `bfloat16` and so on. Where no other library has a name for it, the stored name.
        item_bytes: Bytes of one element. None where they are not known.
        big_endian: True if the most significant byte of an element comes first.
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
        """The name in the safetensors format. None where it has none."""
        return _SAFETENSORS_NAMES.get(self.name)


def element_type(entry: Entry) -> ElementType:
    """Return the element type of an array."""
    dtype = entry.dtype or ""
    if entry.kind == "tensor":
        return ElementType(name=dtype, item_bytes=entry.item_bytes)
    name = _NUMPY_NAMES.get(dtype[1:], dtype) if dtype[:1] in "<>|" else dtype
    return ElementType(name=name, item_bytes=entry.item_bytes, big_endian=dtype[:1] == ">" and name != dtype)


_VALUE_CODES = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_COMPLEX_CODES = {"complex64": "f", "complex128": "d"}


@dataclass(frozen=True, kw_only=True)
class Distance:
    """The distance between two runs of elements.

    Attributes:
        changed: Number of elements with any other bit.
        largest: The largest absolute difference, or None where the type has no differences (bool, text), or no changed
            elements can be subtracted.
        not_numbers: True if a difference was not a number (NaN, or between infinities).
    """

    changed: int = 0
    largest: float | int | None = None
    not_numbers: bool = False

    def joined(self, other: Distance) -> Distance:
        """Return the distance of both together."""
        known = [distance for distance in (self.largest, other.largest) if distance is not None]
        return Distance(
            changed=self.changed + other.changed,
            largest=max(known, default=None),
            not_numbers=self.not_numbers or other.not_numbers,
        )


def numpy_is_installed() -> bool:
    """Return True if NumPy can be used. Without it a comparison takes some fifty times as long."""
    return importlib.util.find_spec("numpy") is not None


def distance(old: bytes, new: bytes, elements: ElementType, *, with_numpy: bool) -> Distance:
    """Return the distance between these elements.

    Args:
        old: Their bytes before.
        new: Their bytes after, of the same length.
        elements: Their type. One of unknown size is compared as bytes.
        with_numpy: True to use NumPy.
    """
    if old == new:
        return Distance()
    return (_with_numpy if with_numpy else _without_numpy)(old, new, elements)


def _without_numpy(old: bytes, new: bytes, elements: ElementType) -> Distance:
    size = elements.item_bytes or 1
    changed = [start for start in range(0, len(old), size) if old[start : start + size] != new[start : start + size]]
    before = _values(b"".join(old[start : start + size] for start in changed), elements)
    after = _values(b"".join(new[start : start + size] for start in changed), elements)
    if before is None or after is None:
        return Distance(changed=len(changed))
    differences = [_size(a - b) for a, b in zip(before, after, strict=True)]
    numbers = [difference for difference in differences if not math.isnan(difference)]
    return Distance(
        changed=len(changed), largest=max(numbers, default=None), not_numbers=len(numbers) < len(differences)
    )


def _size(difference: complex) -> float:
    # abs() of a complex number raises where this is infinite.
    return math.hypot(difference.real, difference.imag) if isinstance(difference, complex) else abs(difference)


def _values(raw: bytes, elements: ElementType) -> list[Any] | None:
    order = ">" if elements.big_endian else "<"
    if code := _VALUE_CODES.get(elements.name):
        return list(struct.unpack(f"{order}{len(raw) // struct.calcsize(code)}{code}", raw))
    if code := _COMPLEX_CODES.get(elements.name):
        parts = struct.unpack(f"{order}{len(raw) // struct.calcsize(code)}{code}", raw)
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    if elements.name == "bfloat16":
        # The upper half of a float32.
        widened = bytearray(2 * len(raw))
        widened[2::4], widened[3::4] = raw[::2], raw[1::2]
        return list(struct.unpack(f"<{len(raw) // 2}f", widened))
    return None


def _with_numpy(old: bytes, new: bytes, elements: ElementType) -> Distance:
    import numpy as np

    size = elements.item_bytes or 1
    bits = f"u{size}" if size in (1, 2, 4, 8) else f"V{size}"
    mask = np.frombuffer(old, bits) != np.frombuffer(new, bits)
    changed = int(np.count_nonzero(mask))
    before, after = _array(old, elements), _array(new, elements)
    if before is None or after is None:
        return Distance(changed=changed)
    before, after = before[mask], after[mask]
    if before.dtype.kind in "iu":
        # Unsigned and wrapping: exact where a signed difference would overflow.
        unsigned = f"u{before.dtype.itemsize}"
        one, other = before.astype(unsigned), after.astype(unsigned)
        differences = np.where(before > after, one - other, other - one)
        return Distance(changed=changed, largest=int(differences.max()))
    with np.errstate(all="ignore"):
        wide = "c16" if before.dtype.kind == "c" else "f8"
        differences = np.abs(before.astype(wide) - after.astype(wide))
    numbers = differences[~np.isnan(differences)]
    return Distance(
        changed=changed,
        largest=float(numbers.max()) if len(numbers) else None,
        not_numbers=len(numbers) < len(differences),
    )


def _array(raw: bytes, elements: ElementType) -> Any:
    import numpy as np

    if elements.name == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype("u4") << 16).view("f4")
    if elements.name in _VALUE_CODES or elements.name in _COMPLEX_CODES:
        return np.frombuffer(raw, np.dtype(elements.name).newbyteorder(">" if elements.big_endian else "<"))
    return None


def as_text(value: Any) -> str:
    """Write a value as JSON where that says the same, else as Python writes it."""
    if _is_json(value):
        return json.dumps(value)
    return _written(value)


def as_json(value: Any) -> Any:
    """Return the value itself where JSON has it, else the text Python would write."""
    return value if _is_json(value) else _written(value)


def _written(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:
        # Numbers beyond these digits cost too much time to write.
        return f"holds an integer of more than {sys.get_int_max_str_digits():,} digits"


def _is_json(value: Any) -> bool:
    try:
        return _same(json.loads(json.dumps(value, allow_nan=False)), value)
    except (ValueError, TypeError, RecursionError):
        return False


def _same(read: Any, value: Any) -> bool:
    # JSON would take a tuple for a list, and 1.0 is equal to 1.
    if isinstance(value, list):
        return isinstance(read, list) and all(map(_same, read, value))
    return type(read) is type(value) and bool(read == value)
