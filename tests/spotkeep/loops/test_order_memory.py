"""What decides an order is remembered: what is put back into objects made anew gives the same order again."""

# ruff: noqa: S311 - any random numbers will do

from __future__ import annotations

import random
from collections import deque
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotkeep.errors import UsageError
from spotkeep.loops.order_memory import OrderMemory, generators_in, seeded_generators
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import encode_state

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.lists(inner, max_size=3).map(deque)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


class Sampler:
    """Holds whatever a test gives it."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def through_a_checkpoint(captured):
    encoded = encode_state({"captured": captured})
    blobs = {blob.offset: bytes(memoryview(blob.raw).cast("B")) for blob in encoded.blobs}
    return decode_state(encoded.document, lambda stream, offset, size: blobs[offset])["captured"]


def moved(make, change):
    """Change what was made, and put it back into a new one."""
    there, here = make(), make()
    memory_there, memory_here = OrderMemory({"sampler": there}), OrderMemory({"sampler": here})
    change(there)
    memory_here.put_back(through_a_checkpoint(memory_there.capture(large=True)))
    return there, here


@example(before={"a": False}, after={"a": 0})
@settings(max_examples=25)
@given(before=st.dictionaries(st.sampled_from("abc"), PLAIN), after=st.dictionaries(st.sampled_from("abcd"), PLAIN))
def test_plain_values_that_changed_come_back(before, after):
    there, here = moved(lambda: Sampler(**before), lambda sampler: vars(sampler).update(after))
    assert vars(here) == vars(there)
    assert {name: type(value) for name, value in vars(here).items()} == {
        name: type(value) for name, value in vars(there).items()
    }


def test_what_the_script_sets_up_is_the_scripts():
    there, here = Sampler(seed=1, epoch=0), Sampler(seed=2, epoch=0)
    memory_there, memory_here = OrderMemory({"sampler": there}), OrderMemory({"sampler": here})
    there.epoch = 3
    memory_here.put_back(memory_there.capture(large=True))
    assert vars(here) == {"seed": 2, "epoch": 3}


def test_generators_come_back_wherever_they_are():
    def make():
        own = SimpleNamespace(rng=np.random.default_rng(1))
        return Sampler(python=random.Random(2), legacy=np.random.RandomState(3), stages=[own, {"rng": own.rng}])

    def draw(sampler):
        return sampler.python.random(), sampler.legacy.random(), sampler.stages[1]["rng"].random()

    there, here = moved(make, draw)
    assert draw(here) == draw(there)


def drawn_from(first, *, by):
    return first.random(), by.random()


class Draws(Sampler):
    def draw(self):
        return self.rng.random()


def closure_over(rng):
    def draw():
        return rng.random() if rng else not_there_yet

    yield draw
    not_there_yet = None


def with_defaults(first, other):
    return lambda rng=first, *, by=other: drawn_from(rng, by=by)


def test_generators_that_functions_hold_come_back():
    def make():
        return Sampler(
            closure=next(closure_over(random.Random(1))),
            partial=partial(drawn_from, np.random.default_rng(2), by=np.random.RandomState(3)),
            method=Draws(rng=random.Random(4)).draw,
            default=with_defaults(random.Random(5), random.Random(6)),
        )

    def draw(sampler):
        return [getattr(sampler, name)() for name in vars(make())]

    there, here = moved(make, draw)
    assert draw(here) == draw(there)


def test_long_lists_arrays_and_a_list_that_was_shuffled_come_back():
    def shuffle(sampler):
        random.Random(4).shuffle(sampler.indices)
        sampler.weights[::2] = 7

    there, here = moved(lambda: Sampler(indices=[*range(10_000)], weights=np.zeros(5_000)), shuffle)
    assert here.indices == there.indices
    assert here.weights.tolist() == there.weights.tolist()
    batches, again = ([object() for _ in range(4)] for _ in range(2))
    memory, memory_again = OrderMemory({"batches": batches}), OrderMemory({"batches": again})
    before = [*again]
    batches.reverse()
    memory_again.put_back(through_a_checkpoint(memory.capture(large=True)))
    assert again == before[::-1]
    memory_again.put_back(OrderMemory({"batches": [1, 2, 3, 4]}).capture(large=True))
    assert again == before


CHANGES_WITH_ARRAYS = {
    "an array of another length": lambda sampler: setattr(sampler, "order", np.arange(5)),
    "an array in the place of None": lambda sampler: setattr(sampler, "none", np.arange(3.0)),
    "arrays in a list": lambda sampler: sampler.history.append(np.arange(3)),
    "an empty array": lambda sampler: setattr(sampler, "order", np.zeros((0, 2), np.float32)),
}


@pytest.mark.parametrize("change", CHANGES_WITH_ARRAYS)
def test_arrays_of_any_form_come_back(change):
    there, here = moved(lambda: Sampler(order=np.zeros(2, int), none=None, history=[]), CHANGES_WITH_ARRAYS[change])
    assert repr(vars(here)) == repr(vars(there))


@pytest.mark.torch
@pytest.mark.parametrize("size", [0, 3, 5_000])
def test_tensors_of_any_form_come_back(size):
    torch = pytest.importorskip("torch")

    def change(sampler):
        sampler.order, sampler.parts = torch.arange(size), [torch.ones(size, 1, dtype=torch.bfloat16)]

    there, here = moved(lambda: Sampler(order=torch.zeros(2), parts=[]), change)
    for one, other in ((here.order, there.order), (here.parts[0], there.parts[0])):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one, other)


def test_a_container_of_what_is_not_taken_stays_as_the_script_makes_it():
    def mix(sampler):
        sampler.epoch, sampler.cache["mixed"] = 2, [1, *[0.5] * 300]

    _, here = moved(lambda: Sampler(epoch=0, cache={}), mix)
    assert vars(here) == {"epoch": 2, "cache": {}}


def test_between_large_captures_large_values_are_left_alone():
    sampler = Sampler(indices=[*range(10_000)], epoch=0)
    memory = OrderMemory({"sampler": sampler})
    small = memory.capture(large=False)
    sampler.indices.reverse()
    sampler.epoch = 5
    memory.put_back(small)
    assert (sampler.indices[0], sampler.epoch) == (9_999, 0)


class Images:
    """A dataset with indices: what it counts and caches is no order."""

    def __init__(self):
        self.loaded = 0
        self.rng = np.random.default_rng(5)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


def test_of_a_dataset_with_indices_the_generators_alone_are_taken():
    sampler = Sampler(data=Images())
    memory = OrderMemory({"sampler": sampler})
    before = memory.capture(large=True)
    first = sampler.data.rng.random()
    sampler.data.loaded = 9
    memory.put_back(before)
    assert (sampler.data.loaded, sampler.data.rng.random()) == (9, first)


class SavesItself:
    def __init__(self):
        self.begin_at = None

    def state_dict(self):
        return {"place": 4}

    def load_state_dict(self, state):
        self.begin_at = state["place"]


def test_one_that_saves_itself_begins_at_its_beginning_though_a_checkpoint_was_restored_into_it():
    there, here = SavesItself(), SavesItself()
    begun = OrderMemory({"sampler": there}).capture(large=True)
    here.load_state_dict(there.state_dict())
    OrderMemory({"sampler": here}).put_back(begun)
    assert here.begin_at is None


def test_an_iterator_whose_place_cannot_be_saved_is_named_in_the_log(caplog):
    class SavesItself(Sampler):
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            vars(self).update(state)

    OrderMemory({"plain": Sampler(seed=1, orders=[1, 2]), "named": SavesItself(orders=iter([1]))})
    assert caplog.text == ""
    OrderMemory({"sampler": Sampler(inner=Sampler(orders=iter([[2, 1]]), seeds=(seed for seed in (1, 2))))})
    assert "sampler.inner, a Sampler, keeps an iterator in orders, seeds" in caplog.text


def test_what_cannot_be_saved_is_refused_by_its_place():
    with pytest.raises(UsageError, match=r"state\[1\] of the loader is an object"):
        OrderMemory({}, [random.Random(1), object()])


def test_global_generators_and_what_is_no_order_are_left_alone():
    class File:
        def __init__(self):
            self.place = 0

        def read(self): ...

    class Environment:
        def get_state(self):
            return self

        def set_state(self, state): ...

    others = {"module": np.random, "sampler_class": Sampler, "entropy": random.SystemRandom(), "world": Environment()}
    sampler = Sampler(rng=np.random.mtrand._rand, file=File(), **others)
    captured = OrderMemory({"sampler": sampler}).capture(large=True)
    sampler.file.place = 8
    assert OrderMemory({"sampler": sampler}).capture(large=True) == captured
    assert captured["generators"] == {}


def test_seeded_generators_draw_what_follows_from_the_key_and_go_on_as_they_were():
    dataset = SimpleNamespace(a=np.random.default_rng(1), transforms=[SimpleNamespace(b=random.Random(1))])
    untouched = np.random.default_rng(1).random()
    drawn = []
    for key in (b"1", b"1", b"2"):
        with seeded_generators(generators_in(dataset), key):
            drawn.append((dataset.a.random(), dataset.transforms[0].b.random()))
    assert drawn[0] == drawn[1] != drawn[2]
    assert dataset.a.random() == untouched
