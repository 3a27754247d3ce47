"""Arrays are compared the same with NumPy and without it, and to the bit."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_cli.checkpoints.elements import Distance, ElementType, as_json, as_text, distance

SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e5m2": 1, "<U3": 12,
}  # fmt: skip


@settings(max_examples=200)
@given(name=st.sampled_from(sorted(SIZES)), data=st.data(), big_endian=st.booleans())
def test_both_ways_agree_on_any_bits(name: str, big_endian: bool, data: st.DataObject) -> None:
    elements = ElementType(name=name, item_bytes=SIZES[name], big_endian=big_endian and name != "bfloat16")
    count = data.draw(st.integers(1, 20))
    raw = st.binary(min_size=count * SIZES[name], max_size=count * SIZES[name])
    old = data.draw(raw)
    new = data.draw(raw | st.just(old))
    plain = distance(old, new, elements, with_numpy=False)
    fast = distance(old, new, elements, with_numpy=True)
    assert (plain.changed, plain.not_numbers) == (fast.changed, fast.not_numbers)
    if plain.largest is None or fast.largest is None:
        assert plain.largest is fast.largest
    else:
        assert math.isclose(plain.largest, fast.largest, rel_tol=1e-12)
    assert 0 <= plain.changed <= count


@pytest.mark.parametrize("with_numpy", [False, True])
def test_differences_are_those_of_the_values(with_numpy: bool) -> None:
    def between(code: str, name: str, old: list[float], new: list[float]) -> Distance:
        elements = ElementType(name=name, item_bytes=struct.calcsize(code))
        before, after = (struct.pack(f"<{len(values)}{code}", *values) for values in (old, new))
        return distance(before, after, elements, with_numpy=with_numpy)

    assert between("f", "float32", [1, 2, 3], [1, 2.5, 1]) == Distance(changed=2, largest=2.0)
    assert between("q", "int64", [-(2**63)], [2**63 - 1]) == Distance(changed=1, largest=2**64 - 1)
    assert between("d", "float64", [0.0], [-0.0]) == Distance(changed=1, largest=0.0)
    assert between("d", "float64", [math.inf, math.nan], [math.inf, math.nan]) == Distance()
    assert between("d", "float64", [1.0, 5.0], [math.nan, 6.0]) == Distance(changed=2, largest=1.0, not_numbers=True)
    assert between("d", "float64", [1.0], [math.inf]) == Distance(changed=1, largest=math.inf)
    assert between("?", "bool", [True, False], [False, False]) == Distance(changed=1)


def test_two_parts_are_one_distance() -> None:
    joined = Distance(changed=1, largest=0.5).joined(Distance(changed=2, not_numbers=True))
    assert joined == Distance(changed=3, largest=0.5, not_numbers=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.0, "1.0"),
        ("a", '"a"'),
        (None, "null"),
        ([1, [2]], "[1, [2]]"),
        ((1, 2), "(1, 2)"),
        ([(1,)], "[(1,)]"),
        (float("inf"), "inf"),
        (1j, "1j"),
        ({}, "{}"),
    ],
)
def test_what_is_written(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_a_number_without_end_is_not_written() -> None:
    assert as_text(10**5000) == as_text([10**5000]) == "holds an integer of more than 4,300 digits"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(plain)
def test_whatever_it_is_json_takes_it(value: Any) -> None:
    read = json.loads(json.dumps(as_json(value), allow_nan=False))
    assert read == value or read == repr(value)
    assert as_text(value)
