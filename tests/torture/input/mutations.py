"""Documents and files with something else in one, two or three places: most of each is as a parser expects it."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import strategies as st

NUMBERS = st.sampled_from(["9" * 400, "-" + "9" * 400, "1e300", "1e999", "-1e999", "NaN", "Infinity", "-1", "1.5"])
"""JSON of a number that `json.dumps` would not write."""

_LEAVES = st.one_of(
    st.just("@"),
    st.none(),
    st.booleans(),
    st.integers(-1, 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["\ud800", "\x1b]52;c;aGk=\x07", "x" * 5000, [], {}, [[[[[]]]]], {"dict": []}, {"int": "-f" * 40}]),
)
ANYTHING = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def as_json(document: Any, *, number: str) -> str:
    """Write a document as JSON, with a number in place of each text `@`; a name that is `@` stays one."""
    return re.sub(r'"@"(?!:)', lambda _: number, json.dumps(document))


def _places(document: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    if isinstance(document, dict):
        for name, inner in document.items():
            found += _places(inner, (*at, name))
    elif isinstance(document, list):
        for index, inner in enumerate(document):
            found += _places(inner, (*at, index))
    return found


def mutated(document: Any) -> st.SearchStrategy[Any]:
    """Give copies of a JSON document with anything in up to three of its places."""
    places = _places(document)
    changes = st.lists(st.tuples(st.sampled_from(places), ANYTHING), min_size=1, max_size=3)
    return changes.map(lambda found: changed(document, found))


def changed(document: Any, changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """Copy a JSON document, with other values in some of its places."""
    result = copy.deepcopy(document)
    for place, drawn in changes:
        value = copy.deepcopy(drawn)  # Hypothesis draws the same list twice: in itself it would be no JSON.
        if not place:
            return value
        inner = result
        try:
            for part in place[:-1]:
                inner = inner[part]
            inner[place[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # An earlier change took the place away.
    return result


FLIPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=3)
"""Places of bytes, and the bytes to put there."""
CUTS = st.none() | st.integers(0, 4000)
"""The length to cut a file to, of which the remainder by its own length counts."""


def damaged(raw: bytes, flips: list[tuple[int, int]], cut: int | None) -> bytes:
    """Copy a file with other bytes in some places, or cut off."""
    result = bytearray(raw)
    for place, value in flips:
        if result:
            result[place % len(result)] = value
    return bytes(result if cut is None else result[: cut % (len(result) + 1)])
