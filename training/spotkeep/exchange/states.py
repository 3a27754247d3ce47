"""The state of a checkpoint as a tree of plain values and arrays, without the bytes of the arrays."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from spotkeep.disk.inspection import Entry, InspectedCheckpoint
from spotkeep.disk.manifest import MANIFEST_NAME
from spotkeep.errors import DamagedCheckpointError
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import MalformedStateError

from .elements import ITEM_BYTES, NUMPY_NAMES, PIECE_BYTES, Array, Stray, in_row_major, swapped

_ARRAY_KINDS = frozenset(("ndarray", "scalar", "tensor"))
_BYTE_KINDS = frozenset(("bytes", "bytearray"))


def array_of(checkpoint: InspectedCheckpoint, entry: Entry) -> Array | Stray:
    """Give an array of a checkpoint. Its bytes are verified when they are read.

    Args:
        checkpoint: The checkpoint.
        entry: One of its arrays.

    Returns:
        The array, or the reason that no other format has its type.
    """
    dtype, big_endian = _dtype(entry)
    if dtype not in ITEM_BYTES:
        return Stray(f"no other format has {dtype}")
    read = partial(_row_major, checkpoint, entry, ITEM_BYTES[dtype])
    if big_endian:
        half = ITEM_BYTES[dtype] // (2 if dtype.startswith("complex") else 1)
        read = partial(_swapped, read, half)
    return Array(entry.kind, dtype, entry.shape or (), read)


def _dtype(entry: Entry) -> tuple[str, bool]:
    spelling = entry.dtype or "bytes"
    if entry.kind == "tensor":
        return spelling, False
    name = NUMPY_NAMES.get(spelling[1:]) if spelling[:1] in "<>|" else None
    return (spelling, False) if name is None else (name, spelling[:1] == ">")


def _row_major(checkpoint: InspectedCheckpoint, entry: Entry, item_bytes: int) -> Iterator[bytes]:
    """Give an array's bytes in C order. One in another order is held in memory meanwhile."""
    pieces = checkpoint.pieces(entry, PIECE_BYTES)
    shape = entry.shape or ()
    if entry.order == "C" or len(shape) < 2:
        return pieces
    order = tuple(reversed(range(len(shape)))) if isinstance(entry.order, str) else entry.order
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return iter([in_row_major(b"".join(pieces), shape=shape, strides=strides, item_bytes=item_bytes)])


def _swapped(read: Any, item_bytes: int) -> Iterator[bytes]:
    return (swapped(piece, item_bytes=item_bytes) for piece in read())


def state_of(checkpoint: InspectedCheckpoint) -> dict[str, Any]:
    """Give the state of a checkpoint, of all its ranks, with an `Array` or a `Stray` for each array.

    Raises:
        DamagedCheckpointError: Its document makes no sense, or refers to missing bytes.
    """
    entries = iter([entry for entry in checkpoint.entries() if entry.kind in _ARRAY_KINDS | _BYTE_KINDS])
    try:
        state = _value(checkpoint.manifest.whole_state(), checkpoint, entries)
    except MalformedStateError as error:
        raise DamagedCheckpointError(f"{checkpoint.name}/{MANIFEST_NAME}", str(error)) from error
    if not isinstance(state, dict):
        raise DamagedCheckpointError(f"{checkpoint.name}/{MANIFEST_NAME}", "the state is not a mapping of names")
    return state


def _value(node: Any, checkpoint: InspectedCheckpoint, entries: Iterator[Entry]) -> Any:
    # `entries` has looked at the nodes, in the same order.
    if isinstance(node, list):
        return [_value(item, checkpoint, entries) for item in node]
    if not isinstance(node, dict):
        return node
    ((kind, body),) = node.items()
    if kind == "state_dict":
        kind, body = "dict", body["items"]
    if kind in ("dict", "counter"):
        pairs = ((_plain(key), _value(item, checkpoint, entries)) for key, item in body)
        return Counter(dict(pairs)) if kind == "counter" else dict(pairs)
    if kind == "tuple":
        return tuple(_value(item, checkpoint, entries) for item in body)
    if kind in _ARRAY_KINDS:
        return array_of(checkpoint, next(entries))
    if kind in _BYTE_KINDS:
        entry = next(entries)
        raw = b"".join(checkpoint.pieces(entry))
        return raw if kind == "bytes" else bytearray(raw)
    return _plain(node)


def _plain(node: Any) -> Any:
    return decode_state({"dict": [["value", node]]}, _no_bytes)["value"]


def _no_bytes(*_place: int) -> bytes:
    raise MalformedStateError("an array stands where a plain value is expected")


def key_text(key: Any) -> str:
    """Write a key of a dictionary as a part of a name."""
    try:
        return str(key)
    except ValueError:
        # Python refuses to write very long numbers in decimal digits.
        return f"a long {type(key).__name__}"


def named(state: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Give the values of a state by name, joined by dots. Lists and tuples of plain values are one value."""
    if isinstance(state, dict) and state:
        for key, item in state.items():
            yield from named(item, (*names, key_text(key)))
    elif isinstance(state, (list, tuple)) and _holds_arrays(state):
        for index, item in enumerate(state):
            yield from named(item, (*names, str(index)))
    else:
        yield ".".join(names), state


def _holds_arrays(value: Any) -> bool:
    return any(
        isinstance(item, (Array, Stray, dict, bytes, bytearray))
        or (isinstance(item, (list, tuple)) and _holds_arrays(item))
        for item in value
    )


def as_text(value: Any) -> str:
    """Write a plain value as JSON where that says the same, else as Python writes it."""
    try:
        text = json.dumps(value, allow_nan=False)
        if _same(json.loads(text), value):
            return text
    except (ValueError, TypeError, RecursionError):
        pass
    try:
        return repr(value)
    except ValueError:
        return "holds an integer that is too long to be written"


def _same(read: Any, value: Any) -> bool:
    # JSON would take a tuple for a list, and 1.0 is equal to 1.
    if isinstance(value, list):
        return isinstance(read, list) and all(map(_same, read, value))
    return type(read) is type(value) and bool(read == value)
