"""Plain values as text: JSON where that says the same, Python's words elsewhere, and always something."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.checkpoints.state_values import as_json, as_text


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
