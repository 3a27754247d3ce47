"""What one state has otherwise than another gives that one from the other, whatever both are."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.state.differences import (
    apart,
    are_differences,
    differences,
    digest_tree,
    own_document,
    own_paths,
    own_places,
    with_differences,
)
from spotkeep.state.encoding import decode_state, encode_state

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
ARRAYS = st.lists(st.integers(0, 2), max_size=2).map(lambda items: np.array(items, "u1"))
KEYS = st.sampled_from(["a", "file", "dict", "own", 1, 2.5, None, (1, "a"), b"raw"])
VALUES = st.recursive(
    LEAVES | ARRAYS,
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
STATES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def tree_of(encoded, passed_over=()):
    raws = {(blob.file_index, blob.offset): bytes(blob.raw) for blob in encoded.blobs}

    def digest_of(place):
        raw = raws[place["file"], place["offset"]] if place["size"] else b""
        return "-" if raw in passed_over else hashlib.sha256(raw).hexdigest()

    return digest_tree(encoded.document, digest_of)


def found_between(mine, others, passed_over=()):
    mine, others = encode_state(mine), encode_state(others)
    return differences(mine.document, tree_of(mine, passed_over), tree_of(others, passed_over)), mine, others


def read(document, *blobs_of_files):
    """Decode a document whose files are those of one state, then those of another."""
    disk, first = {}, 0
    for blobs in blobs_of_files:
        disk.update({(first + blob.file_index, blob.offset): bytes(blob.raw) for blob in blobs})
        first += 1 + max((blob.file_index for blob in blobs), default=-1)
    return decode_state(document, lambda index, offset, size: disk[index, offset][:size])


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
    moved, blobs = apart(found, encoded.blobs)
    files = 1 + max((blob.file_index for blob in of_other.blobs), default=-1)
    moved = shifted(moved, files)
    assert moved is None or are_differences(moved)
    whole = with_differences(of_other.document, moved)
    assert plain(read(whole, of_other.blobs, blobs)) == plain(mine)
    assert (found is None) == (plain(mine) == plain(others))
    assert {(blob.file_index, blob.offset) for blob in blobs} <= own_places(apart(found, encoded.blobs)[0])
    if found is not None:
        assert own_paths(found)


def shifted(document, first):
    if isinstance(document, list):
        return [shifted(item, first) for item in document]
    if not isinstance(document, dict):
        return document
    if "file" in document:
        return {**document, "file": document["file"] + first}
    return {key: shifted(item, first) for key, item in document.items()}


def test_only_what_differs_is_written_and_named():
    zeros, ones = np.zeros(3), np.ones(3)
    mine = {"model": {"weight": zeros, "queue": ones}, "history": [], "own": {"layer": {"at": 2}}}
    others = {"model": {"weight": zeros, "queue": zeros}, "history": [0.5], "own": {"layer": {"at": 1}}, "best": 7}
    found, encoded, _ = found_between(mine, others)
    moved, blobs = apart(found, encoded.blobs)
    assert [bytes(blob.raw) for blob in blobs] == [ones.tobytes()]
    assert own_paths(moved) == [
        "state['model']['queue']",
        "state['history']",
        "state['own']['layer']['at']",
        "state['best']",
    ]
    alone = read(own_document(moved), blobs)
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
