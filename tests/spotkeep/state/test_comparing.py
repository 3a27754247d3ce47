"""A state is equal to its own document, and every change of it is found at its place."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.state.comparing import compare
from spotkeep.state.encoding import encode_state

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.complex_numbers(),
    st.binary(max_size=3),
)
VALUES = st.recursive(
    PLAIN | st.builds(np.arange, st.integers(0, 4)),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3), st.tuples(inside), st.dictionaries(st.text(max_size=2) | st.integers(), inside)
    ),
    max_leaves=8,
)


def document(value):
    """As it comes from a manifest."""
    return json.loads(json.dumps(encode_state({"x": value}).document))


@given(VALUES)
def test_a_state_is_what_it_was_saved_as(value):
    differences, same_form = compare(document(value), encode_state({"x": value}).document)
    assert differences == []
    assert all(form.saved["size"] == form.live["size"] > 0 for form in same_form)


@given(VALUES, VALUES)
def test_states_whose_documents_differ_are_not_equal(one, other):
    saved, live = document(one), document(other)
    differences, same_form = compare(saved, live)
    # Bytes are compared later on, by their places.
    assert bool(differences or same_form) or saved == live


@pytest.mark.parametrize(
    ("saved", "live", "path", "problem"),
    [
        (1, 1.0, "", "1 was saved, 1.0 is there"),
        (1, True, "", "1 was saved, true is there"),
        (0.0, -0.0, "", "0.0 was saved, -0.0 is there"),
        ([1], (1,), "", "a list was saved, a tuple is there"),
        ([1], [1, 2], "", "1 items were saved, 2 are there"),
        ({"a": {2: 3}}, {"a": {2: 4}}, "['a'][2]", "3 was saved, 4 is there"),
        ({"a": 1, "b": 2}, {"b": 2}, "['a']", "it was saved, and is not there"),
        ({"b": 2}, {"a": 1, "b": 2}, "['a']", "it was not saved"),
        ({"a": 1}, {}, "", "1 entries were saved, and it gives none"),
        ([np.zeros(3)], [np.zeros(3, "f4")], "[0]", "<f8 of shape (3,) was saved, <f4 of shape (3,) is there"),
        (
            np.zeros((2, 3)),
            np.zeros((2, 3), order="F"),
            "",
            "the order in memory C was saved, the order in memory F is there",
        ),
        (np.zeros(3), [0, 0, 0], "", "<f8 of shape (3,) was saved, a list is there"),
        (b"abc", b"abcd", "", "3 bytes was saved, 4 bytes is there"),
    ],
    ids=str,
)
def test_a_difference_has_its_place_and_both_values(saved, live, path, problem):
    differences, _ = compare(document(saved), document(live))
    assert [(found.path, found.problem) for found in differences] == [(f"state['x']{path}", problem)]
