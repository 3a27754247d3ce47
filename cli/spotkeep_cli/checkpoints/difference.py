"""The changes from one checkpoint to another, entry by entry."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from spotkeep_cli.checkpoints.elements import Distance, distance, element_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep.disk.inspection import Entry, InspectedCheckpoint

_PIECE_BYTES = 2**20
"""A multiple of every element's size except odd ones. Arrays of odd sizes are compared as bytes."""


class ChangeKind(StrEnum):
    """The kind of change of an entry."""

    ADDED = "added"
    REMOVED = "removed"
    REFORMED = "reformed"
    CHANGED = "changed"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry that has changed.

    Attributes:
        name: Its name.
        kind: The kind of change. `reformed` when its kind, dtype, shape or order in memory changed.
        old: The entry before. None if it was added.
        new: The entry after. None if it was removed.
        elements: Number of elements that changed in a changed array.
        distance: The distance between both versions of a changed array.
    """

    name: str
    kind: ChangeKind
    old: Entry | None = None
    new: Entry | None = None
    elements: int = 0
    distance: Distance = field(default_factory=Distance)


@dataclass(frozen=True, kw_only=True)
class CheckpointDifference:
    """All changes between two checkpoints.

    Attributes:
        changes: The changes in the order of the newer checkpoint, removed entries last.
        unchanged: Number of entries that are the same to the bit.
    """

    changes: tuple[Change, ...]
    unchanged: int


def difference(
    old: InspectedCheckpoint,
    new: InspectedCheckpoint,
    *,
    with_numpy: bool,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> CheckpointDifference:
    """Compare two checkpoints.

    Args:
        old: The one before.
        new: The one after.
        with_numpy: True to compare arrays with NumPy.
        on_bytes: Called with the number of further bytes compared.

    Raises:
        DamagedCheckpointError: If something that must be compared is damaged.
    """
    before, after = ({entry.name: entry for entry in side.entries()} for side in (old, new))
    changes = []
    for name, entry in after.items():
        known = before.get(name)
        if known is None:
            changes.append(Change(name=name, kind=ChangeKind.ADDED, new=entry))
        elif _form(known) != _form(entry):
            changes.append(Change(name=name, kind=ChangeKind.REFORMED, old=known, new=entry))
        elif known.size is None or entry.size is None:
            if not same_value(known.value, entry.value):
                changes.append(Change(name=name, kind=ChangeKind.CHANGED, old=known, new=entry))
        elif (change := _array_change(old, new, known, entry, with_numpy=with_numpy, on_bytes=on_bytes)) is not None:
            changes.append(change)
    unchanged = len(after) - len(changes)
    changes += [
        Change(name=name, kind=ChangeKind.REMOVED, old=entry) for name, entry in before.items() if name not in after
    ]
    return CheckpointDifference(changes=tuple(changes), unchanged=unchanged)


def same_value(one: object, other: object) -> bool:
    """Return True if two plain values are the same to the bit.

    A NaN equals itself, 1 differs from 1.0, and 0.0 differs from -0.0.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
    if isinstance(one, complex) and isinstance(other, complex):
        return same_value((one.real, one.imag), (other.real, other.imag))
    return one == other


def _form(entry: Entry) -> tuple[object, ...]:
    # Bytes have no form: when their length changed, that is a change of value.
    return entry.kind, entry.dtype, entry.shape, entry.order


def _array_change(
    old: InspectedCheckpoint,
    new: InspectedCheckpoint,
    before: Entry,
    after: Entry,
    *,
    with_numpy: bool,
    on_bytes: Callable[[int], None],
) -> Change | None:
    total = Distance()
    elements = element_type(after)
    if before.size != after.size:
        return Change(name=after.name, kind=ChangeKind.CHANGED, old=before, new=after)
    piece_bytes = _PIECE_BYTES - _PIECE_BYTES % (elements.item_bytes or 1) or (elements.item_bytes or 1)
    for left, right in zip(old.pieces(before, piece_bytes), new.pieces(after, piece_bytes), strict=True):
        total = total.joined(distance(left, right, elements, with_numpy=with_numpy))
        on_bytes(len(right))
    if not total.changed:
        return None
    count = (after.size or 0) // (elements.item_bytes or 1)
    return Change(name=after.name, kind=ChangeKind.CHANGED, old=before, new=after, elements=count, distance=total)
