"""One state from ranks of which each has a part, for example one stage of a pipeline. Pure, but for arrays in memory.

Each rank describes its part in an outline, which is JSON. From the outlines of all ranks each one makes the same state.
An array that it does not hold is a `DividedArray` without boxes. A plain value that it does not have is that of the
first rank that has it.

| outline | of |
|---|---|
| `["array", form, divided]` | an array or tensor, and whether the rank holds parts of it |
| `["dict", [[key, outline], ...]]` | a dictionary |
| `["list", [...]]`, `["tuple", [...]]` | a sequence |
| `["plain", document]` | any other value, as a state document |
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from . import arrays
from .decoding import decode_state
from .divided import Box, DividedArray, Part, divided_of
from .encoding import Json, encode_state

Outline = Optional[Json]

MISSING: Any = object()
"""Stands for a value that this rank does not have."""


class UnitedState(ABC):
    """An object in the state that needs the outlines of all ranks before it gives its state.

    A save and a restore ask for the outlines at a moment that all ranks share.
    """

    @abstractmethod
    def outline(self) -> Json:
        """Describe the part of this rank, as JSON."""

    @abstractmethod
    def unite(self, outlines: Sequence[Json], *, rank: int) -> None:
        """Take the outlines of all ranks.

        Args:
            outlines: The outlines, in the order of the ranks.
            rank: The number of this rank.
        """

    @abstractmethod
    def state_to_fill(self, document: Json) -> Any:
        """Give the state with memory for all that a saved state has, also for what is not there yet.

        Args:
            document: The saved state.
        """


def outline_of(value: Any, *, one_writer: bool = False) -> Json:
    """Describe a value.

    Args:
        value: A value of a state, or a container of such values.
        one_writer: True where ranks may hold unequal values, and those of the first one count.

    Raises:
        StateError: A value cannot be saved.
    """
    if isinstance(value, Mapping):
        return ["dict", [[key, outline_of(item, one_writer=one_writer)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [outline_of(item, one_writer=one_writer) for item in value]]
    array = divided_of(value)
    if array is not None:
        return ["array", _form(array, one_writer=one_writer), True]
    if arrays.is_torch_tensor(value) or arrays.is_numpy_array(value):
        return ["array", _form(_whole(value), one_writer=one_writer), False]
    return ["plain", encode_state({"": value}).document["dict"][0][1]]


def digest_of(outline: Json) -> str:
    """Give a digest of the names and forms in an outline. Plain values do not count."""
    return hashlib.blake2b(json.dumps(_structure(outline)).encode("ascii"), digest_size=16).hexdigest()


def _structure(outline: Json) -> Json:
    kind, body, *_ = outline
    if kind == "array":
        return outline
    if kind == "dict":
        return [kind, [[key, _structure(item)] for key, item in body]]
    return [kind] if kind == "plain" else [kind, [_structure(item) for item in body]]


def united(value: Any, outlines: Sequence[Outline]) -> Any:
    """Give a value as all ranks have it together.

    Args:
        value: The value of this rank. `MISSING` where it has none.
        outlines: The outline of each rank. None where it does not have the value.
    """
    there = [outline for outline in outlines if outline is not None]
    if not there:
        return value
    kind, body, *_ = there[0]
    if kind == "array":
        return _united_array(value, outlines)
    if kind == "plain":
        return _plain(body) if value is MISSING else value
    if kind == "dict":
        items = [{} if outline is None else dict(outline[1]) for outline in outlines]
        held = {} if value is MISSING else value
        # Entries that came after the outlines are this rank's own.
        keys = dict.fromkeys([*(key for each in items for key in each), *held])
        return {key: united(held.get(key, MISSING), [each.get(key) for each in items]) for key in keys}
    inner = [() if outline is None else outline[1] for outline in outlines]
    found = [
        united(item, [each[index] if index < len(each) else None for each in inner])
        for index, item in enumerate([MISSING] * len(body) if value is MISSING else value)
    ]
    return tuple(found) if kind == "tuple" else found


def _united_array(value: Any, outlines: Sequence[Outline]) -> Any:
    there = [outline for outline in outlines if outline is not None]
    form = there[0][1]
    if value is MISSING:
        return absent_array(form)
    if len(there) == len(outlines) and not any(outline[2] for outline in there):
        return value
    return replace(divided_of(value) or _whole(value), one_writer=form["one_writer"])


def absent_array(form: Mapping[str, Any]) -> DividedArray:
    """Give an array of which this rank holds nothing.

    Args:
        form: Its `kind`, `dtype`, `shape` and `order`.
    """
    order = form["order"]
    return DividedArray(
        kind=form["kind"],
        dtype=form["dtype"],
        shape=tuple(form["shape"]),
        parts=(),
        order=None if order is None else tuple(order),
    )


def _form(array: DividedArray, *, one_writer: bool) -> Json:
    return {
        "kind": array.kind,
        "dtype": array.dtype,
        "shape": list(array.shape),
        "order": array.order and list(array.order),
        "one_writer": one_writer,
    }


def _whole(value: Any) -> DividedArray:
    """Give an array that is whole on this rank."""
    if arrays.is_torch_tensor(value):
        value = value.detach()
        kind, dtype, order = "tensor", arrays.dtype_name(value.dtype), arrays.torch_order(value)
    else:
        meta, _ = arrays.dump_numpy(value)
        kind, dtype, order = "ndarray", meta["dtype"], meta["order"]
        order = None if order == "C" else [*range(value.ndim)][::-1] if order == "F" else order
    shape = tuple(value.shape)
    parts = (Part(Box.whole(shape), value),) if Box.whole(shape).volume else ()
    return DividedArray(
        kind=kind, dtype=dtype, shape=shape, parts=parts, order=None if order is None else tuple(order), source=value
    )


def _plain(document: Json) -> Any:
    def no_bytes(*_: int) -> bytes:
        raise ValueError("a plain value has no bytes of its own")

    return decode_state({"dict": [["", document]]}, no_bytes)[""]
