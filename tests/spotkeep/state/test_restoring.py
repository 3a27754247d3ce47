"""Restored values go into the script's own objects, all or none."""

from __future__ import annotations

import copy
import random
from types import MappingProxyType

import numpy as np
import pytest

import spotkeep
from spotkeep.errors import StateError, StateMismatchError, UsageError
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import encode_state
from spotkeep.state.restoring import (
    TakesEffectLater,
    check_state,
    compare_restored,
    require_no_difference,
    require_restored,
    require_taken_back,
    restore_state,
)


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


def test_objects_and_arrays_inside_of_tuples_are_filled_in_place():
    """A tuple is made anew, and the script holds what is in it."""
    generator, weights, grown = random.Random(1), np.zeros(2), np.zeros(2)  # noqa: S311
    saved = (random.Random(2).getstate(), np.ones(2), [np.ones(3)], 5)  # noqa: S311
    live = {"pair": (generator, weights, [np.zeros(3)], 1), "plain": (1, grown)}
    restored(live, {"pair": saved, "plain": (2, np.ones(3))})
    assert live["pair"][0] is generator
    assert live["pair"][1] is weights
    assert (generator.getstate(), weights.tolist(), live["pair"][3]) == (saved[0], [1, 1], 5)
    assert live["plain"][1].tolist() == [1, 1, 1]


def test_lists_of_values_take_the_saved_length():
    losses = [1.0]
    assert restored(losses, [1.0, 0.5, 0.25]) is losses
    assert losses == [1.0, 0.5, 0.25]


def round_trip(value):
    encoded = encode_state({"x": value})
    raws = {blob.offset: bytes(blob.raw) for blob in encoded.blobs}
    return decode_state(encoded.document, lambda stream, offset, size: raws[offset])["x"]


@pytest.mark.parametrize(
    "generator",
    [np.random.default_rng(1), np.random.Generator(np.random.MT19937(1)), np.random.RandomState(1), random.Random(1)],  # noqa: S311
    ids=lambda generator: type(generator).__name__,
)
def test_generators_go_on_with_the_numbers_that_would_have_come(generator):
    saved = {"rng": round_trip(generator)}
    expected = copy.deepcopy(generator).random()
    generator.random()
    restore_state({"rng": generator}, saved, step=1)
    assert generator.random() == expected


def test_a_generator_goes_on_with_the_children_that_would_have_come():
    """NumPy's own state leaves out how many were spawned, and of which seed they are."""

    def made(seed):
        return np.random.default_rng(seed)

    for seed_then, seed_now in ((7, 7), (None, None), ([1, 2], 3)):
        generator = made(seed_then)
        generator.spawn(3)
        saved = round_trip(generator)
        expected = generator.spawn(2)[1].random()
        live = made(seed_now)
        sequence = live.bit_generator.seed_seq
        restored(live, saved)
        if seed_then == seed_now == 7:
            assert live.bit_generator.seed_seq is sequence, "the script may hold it"
        assert live.spawn(2)[1].random() == expected


def test_a_loader_that_draws_random_numbers_does_not_change_those_that_are_restored():
    class Draws:
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state):
            random.random()  # noqa: S311

    state = {"random": spotkeep.RandomStates(), "draws": Draws()}
    saved = {"random": spotkeep.RandomStates().state_dict(), "draws": {"a": 1}}
    restore_state(state, saved, step=1)
    assert spotkeep.RandomStates().state_dict()["python"] == saved["random"]["python"]


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


class Average:
    """An average of weights, as scripts write them: it keeps what it is given in a type of its own."""

    def __init__(self, keep=np.asarray):
        self.shadow = np.arange(3.0)
        self.loads = 0
        self._keep = keep

    def state_dict(self):
        return {"shadow": self.shadow, "loads": self.loads}

    def load_state_dict(self, state):
        self.loads = state["loads"] + 1
        self.shadow = self._keep(state["shadow"])


class NoExceptionError(BaseException):
    """What torch's CheckpointException is."""


def refuses_in_a_way_of_its_own(shadow):
    raise NoExceptionError("its .metadata is missing")


def refuses(shadow):
    raise RuntimeError(f"no memory for {len(shadow)} numbers")


@pytest.mark.parametrize(
    ("keep", "problem"),
    [
        (
            lambda shadow: shadow.astype("f4"),
            "state['a']['shadow']: <f8 of shape (3,) was saved, <f4 of shape (3,) is there",
        ),
        (lambda shadow: shadow * 2, "state['a']['shadow']: its values are not the saved ones"),
        (refuses, "state['a'] gives a state that it does not take back"),
        (refuses_in_a_way_of_its_own, "state['a'] gives a state that it does not take back"),
    ],
    ids=["cast", "changed", "refused", "refused by no Exception"],
)
def test_an_object_that_does_not_take_back_what_it_gives_is_refused_before_the_training(keep, problem):
    with pytest.raises(StateError) as refusal:
        require_taken_back({"a": Average(keep)}, digest=bytes)
    (found,) = refusal.value.problems
    assert found.startswith(problem)


def test_trying_leaves_an_object_and_the_random_numbers_as_they_were():
    average = Average(lambda shadow: (random.random(), shadow.copy())[1])  # noqa: S311
    shadow, before = average.shadow, random.getstate()
    require_taken_back({"a": average}, digest=bytes)
    assert (average.shadow is shadow, average.loads) == (True, 0)
    assert random.getstate() == before


class Stream:
    """A place in the data, which a load moves."""

    def __init__(self):
        self.order = np.arange(3)
        self.loads = 0

    def __iter__(self):
        return iter(self.order)

    def state_dict(self):
        return {"order": self.order}

    def load_state_dict(self, state):
        self.loads += 1
        self.order = state["order"] + 1


def test_places_in_the_data_and_what_holds_no_arrays_are_not_tried_and_not_compared():
    class Counter:
        loads = 0

        def state_dict(self):
            return {"epoch": 0}

        def load_state_dict(self, state):
            self.loads += 1

    state = {"stream": Stream(), "counter": Counter()}
    require_taken_back(state, digest=bytes)
    assert (state["stream"].loads, state["counter"].loads) == (0, 0)
    document = encode_state(state).document
    state["stream"].load_state_dict({"order": np.arange(3)})
    assert compare_restored(state, document) == ([], [])


def test_plain_values_of_a_stranger_that_changed_are_said_and_its_arrays_are_an_error(caplog):
    """How often it was resumed, for example. Entries that are new, of a newer library, are said too."""
    saved = {"a": {"shadow": np.zeros(3), "loads": 0}, "w": {"n": 1}}
    average = Average()
    average.shadow, average.loads = np.zeros(3), 1
    require_restored({"a": average, "w": {"n": 1}}, saved, step=5)
    (record,) = caplog.records
    assert "state['a']['loads']: 0 was saved, 1 is there" in record.getMessage()
    average.shadow = np.ones(3)
    with pytest.raises(StateMismatchError) as refusal:
        require_restored({"a": average, "w": {"n": 2}}, saved, step=5)
    assert len(refusal.value.problems) == 2
    assert "state['w']['n']: 1 was saved, 2 is there" in refusal.value.problems[0]
    assert "let load_state_dict of this object keep what state_dict gave" in refusal.value.problems[1]


def test_what_waits_for_the_script_is_not_compared():
    class Later(TakesEffectLater):
        def state_dict(self):
            return {"w": np.zeros(2)}

        def load_state_dict(self, state):
            pass

    document = encode_state({"a": Average()}).document
    assert compare_restored({"a": Later()}, document) == ([], [])
    require_no_difference({"a": Later()}, [], step=1)
