"""Restored values go into the script's own objects, all or none."""

from __future__ import annotations

import copy
import random
from types import MappingProxyType

import numpy as np
import pytest

from spotkeep.errors import StateError, StateMismatchError, UsageError
from spotkeep.state.restoring import check_state, restore_state


def restored(live, saved):
    restore_state({"x": live}, {"x": saved}, step=1)
    return live


def test_arrays_are_filled_in_place():
    weights = np.zeros((2, 2), dtype="f4")
    view = weights[0]
    restored(weights, np.arange(4, dtype="f4").reshape(2, 2))
    assert view.tolist() == [0, 1], "each holder of the array sees the change"


def test_arrays_inside_dictionaries_and_lists_are_filled_in_place():
    inner = np.zeros(2)
    live = {"layers": [{"w": inner}], "step": 0, "gone": 1}
    restored(live, {"layers": [{"w": np.ones(2)}], "step": 7, "grown": (1, 2)})
    assert live["layers"][0]["w"] is inner
    assert inner.tolist() == [1, 1]
    assert {name: live[name] for name in live if name != "layers"} == {"step": 7, "grown": (1, 2)}


def test_lists_of_values_take_the_saved_length():
    losses = [1.0]
    assert restored(losses, [1.0, 0.5, 0.25]) is losses
    assert losses == [1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    "generator",
    [np.random.default_rng(1), np.random.Generator(np.random.MT19937(1)), np.random.RandomState(1), random.Random(1)],  # noqa: S311
    ids=lambda generator: type(generator).__name__,
)
def test_generators_go_on_with_the_numbers_that_would_have_come(generator):
    from spotkeep.state.encoding import decode_state, encode_state

    encoded = encode_state({"rng": generator})
    files = {(blob.file_index, blob.offset): bytes(blob.raw) for blob in encoded.blobs}
    saved = decode_state(encoded.document, lambda index, offset, size: files[index, offset])
    expected = copy.deepcopy(generator).random()
    generator.random()
    restore_state({"rng": generator}, saved, step=1)
    assert generator.random() == expected


def test_objects_load_their_own_state():
    class Model:
        weights = 0

        def state_dict(self):
            return {"weights": self.weights}

        def load_state_dict(self, state):
            self.weights = state["weights"]

    assert restored(Model(), {"weights": 5}).weights == 5


@pytest.mark.parametrize(
    ("live", "saved", "reason"),
    [
        (np.zeros(3), np.zeros(4), "the checkpoint has float64 of shape (4,), the script float64 of shape (3,)"),
        (np.zeros(3), np.zeros(3, dtype="f4"), "the checkpoint has float32"),
        (np.zeros(3), [1, 2, 3], "the checkpoint has a list, the script a ndarray"),
        (np.broadcast_to(np.zeros(1), 3), np.zeros(3), "read-only"),
        ({"a": np.zeros(3)}, {}, "the checkpoint has no state['x']['a']"),
        ({}, [1], "the checkpoint has a list, the script a dictionary"),
        ([], {}, "the checkpoint has a dict, the script a list"),
        ([np.zeros(1)], [], "the checkpoint has 0 items, the script 1"),
        (np.random.default_rng(1), {"bit_generator": "MT19937"}, "refused what was saved"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_reported_with_its_place(live, saved, reason):
    with pytest.raises(StateMismatchError) as mismatch:
        restored(live, saved)
    assert reason in str(mismatch.value)
    assert "state['x']" in str(mismatch.value)


def test_nothing_is_changed_when_anything_does_not_fit():
    good, bad = np.zeros(2), np.zeros(3)
    with pytest.raises(StateMismatchError) as mismatch:
        restore_state({"good": good, "bad": bad, "new": {}}, {"good": np.ones(2), "bad": np.ones(2), "old": {}}, step=9)
    assert good.tolist() == [0, 0]
    assert len(mismatch.value.problems) == 3
    assert "start a new run" in str(mismatch.value)


@pytest.mark.parametrize("state", [[1], {1: {}}, None])
def test_a_state_is_a_mapping_of_names(state):
    with pytest.raises(UsageError, match="mapping of names"):
        check_state(state)


def test_plain_values_at_the_top_are_put_back_into_the_dictionary():
    live = {"count": 0, "names": (), "model": {"w": np.zeros(1)}}
    assert check_state(live)
    restore_state(live, {"count": 7, "names": ("a",), "model": {"w": np.ones(1)}}, step=1)
    assert (live["count"], live["names"], live["model"]["w"].tolist()) == (7, ("a",), [1.0])


def test_plain_values_in_a_mapping_that_cannot_be_changed_are_refused_with_the_way_out():
    with pytest.raises(StateError) as refusal:
        check_state(MappingProxyType({"epoch": 1, "name": "a", "model": {"w": np.zeros(1)}}))
    assert len(refusal.value.problems) == 2
    assert refusal.value.problems[0].startswith("state['epoch']: an int cannot be changed in place")
    assert "pass the state as a dictionary" in refusal.value.problems[1]
