"""What one state has otherwise than another gives that one from the other, whatever both are."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.state.decoding import decode_state
from spotkeep.state.differences import (
    are_differences,
    compare,
    differences,
    digest_tree,
    moved,
    own_document,
    own_paths,
    own_places,
    with_differences,
)
from spotkeep.state.encoding import BlobPlaces, encode_state

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
ARRAYS = st.lists(st.integers(0, 2), max_size=2).map(lambda items: np.array(items, "u1"))
KEYS = st.sampled_from(["a", "offset", "dict", "own", 1, 2.5, None, (1, "a"), b"raw"])
VALUES = st.recursive(
    LEAVES | ARRAYS,
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
STATES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def tree_of(encoded, passed_over=()):
    raws = {blob.offset: bytes(blob.raw) for blob in encoded.blobs}

    def digest_of(place):
        raw = raws[place["offset"]] if place["size"] else b""
        return "-" if raw in passed_over else hashlib.sha256(raw).hexdigest()

    return digest_tree(encoded.document, digest_of)


def found_between(mine, others, passed_over=()):
    mine, others = encode_state(mine), encode_state(others)
    return differences(mine.document, tree_of(mine, passed_over), tree_of(others, passed_over)), mine, others


def read(document, *blobs_of_streams):
    """Decode a document that refers to these streams, the first of which has the number 0."""
    disk = {(number, blob.offset): bytes(blob.raw) for number, blobs in enumerate(blobs_of_streams) for blob in blobs}
    return decode_state(document, lambda stream, offset, size: disk[stream, offset][:size])


def apart(found, blobs, stream=1):
    """Give differences with a stream of their own, and its bytes."""
    places = BlobPlaces(stream)
    return moved(found, blobs, places), places.blobs


def plain(value):
    """A form by which equal values are equal: NaNs too, and dictionaries in any order."""
    if isinstance(value, dict):
        return {repr(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value), *map(plain, value)]
    return repr(value)


@given(mine=STATES, others=STATES)
def test_the_other_state_and_the_differences_give_the_state_back(mine, others):
    found, encoded, of_other = found_between(mine, others)
    own, blobs = apart(found, encoded.blobs)
    assert own is None or are_differences(own)
    whole = with_differences(of_other.document, own)
    assert plain(read(whole, of_other.blobs, blobs)) == plain(mine)
    assert (found is None) == (plain(mine) == plain(others))
    assert {blob.offset for blob in blobs} == own_places(own)
    assert own_places(found) <= {blob.offset for blob in encoded.blobs}
    if found is not None:
        assert own_paths(found)


def test_only_what_differs_is_written_and_named():
    zeros, ones = np.zeros(3), np.ones(3)
    mine = {"model": {"weight": zeros, "queue": ones}, "history": [], "own": {"layer": {"at": 2}}}
    others = {"model": {"weight": zeros, "queue": zeros}, "history": [0.5], "own": {"layer": {"at": 1}}, "best": 7}
    found, encoded, _ = found_between(mine, others)
    own, blobs = apart(found, encoded.blobs, stream=0)
    assert [bytes(blob.raw) for blob in blobs] == [ones.tobytes()]
    assert own_paths(own) == [
        "state['model']['queue']",
        "state['history']",
        "state['own']['layer']['at']",
        "state['best']",
    ]
    alone = read(own_document(own), blobs)
    assert list(alone) == ["model", "history", "own"]
    assert list(alone["model"]) == ["queue"]


def test_what_is_not_compared_counts_as_equal():
    mine, others = {"mean": np.ones(2), "w": [np.zeros(1)]}, {"mean": np.full(2, 2.0), "w": [np.ones(1)]}
    over = [value.tobytes() for value in (mine["mean"], others["mean"])]
    found, *_ = found_between(mine, others, passed_over=over)
    assert own_paths(found) == ["state['w']"]


@pytest.mark.parametrize("nonsense", [None, 7, [], {"own": 1, "also": 2}, {"changed": {}, "removed": []}])
def test_nonsense_is_no_differences(nonsense):
    assert not are_differences(nonsense)


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.complex_numbers(),
    st.binary(max_size=3),
)
SAVED_VALUES = st.recursive(
    PLAIN | st.builds(np.arange, st.integers(0, 4)),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3), st.tuples(inside), st.dictionaries(st.text(max_size=2) | st.integers(), inside)
    ),
    max_leaves=8,
)


def document(value):
    """As it comes from a manifest."""
    return json.loads(json.dumps(encode_state({"x": value}).document))


@given(SAVED_VALUES)
def test_a_state_is_what_it_was_saved_as(value):
    differences, same_form = compare(document(value), encode_state({"x": value}).document)
    assert differences == []
    assert all(form.saved["size"] == form.live["size"] > 0 for form in same_form)


@given(SAVED_VALUES, SAVED_VALUES)
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


@pytest.mark.parametrize("divided", ["saved", "live", "saved live"])
def test_the_division_of_an_array_is_no_difference(divided):
    form = {"dtype": "<f4", "shape": [3], "order": "C"}
    saved, live = (
        {"ndarray": {**form, **({"divided": 0} if side in divided else {"offset": 64, "size": 12})}}
        for side in ("saved", "live")
    )
    found, same_form = compare(saved, live)
    assert found == []
    assert [(each.saved, each.live) for each in same_form] == [(saved["ndarray"], live["ndarray"])]
