"""What a script's objects lead to, and what their attributes are changed to."""

from __future__ import annotations

import copy
import functools
import json
import logging
import random
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep.state.reached import ChangedAttributes, is_own, names_in_code, reached


class Thing:
    """A class of a script."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Draws(Thing):
    def step(self):
        return [GLOBAL.random() for _ in range(3)]

    @property
    def late(self):
        return BY_PROPERTY

    @staticmethod
    def other():
        return helper()


GLOBAL = random.Random(0)  # noqa: S311 - only looked for
BY_PROPERTY, BY_HELPER = Thing(), Thing()


def helper():
    return BY_HELPER


def paths(roots, **options):
    return {one.path: one.value for one in reached(roots, **options)}


def test_objects_are_found_in_attributes_and_containers_each_once():
    inner = Thing()
    outer = Thing(
        number=1, parts={"a": [inner, (inner, Thing(inner=inner))]}, array=np.zeros(2), module=json, kind=Thing
    )
    outer.itself = outer
    found = paths({"model": outer})
    assert found == {
        "model": outer,
        "model.parts['a'][0]": inner,
        "model.parts['a'][1][1]": outer.parts["a"][1][1],
    }


def test_objects_are_found_by_the_names_in_the_scripts_code():
    enclosed, default, given_to_partial, bound, local = Thing(), Thing(), Thing(), Thing(), Thing()

    def loss(x, scale=default):
        return enclosed, x, scale, never  # noqa: F821 - no such name

    def batches():
        held = local
        while True:
            yield held

    bound.act = loss
    started = batches()
    next(started)
    found = reached({"x": [Draws(), functools.partial(loss, given_to_partial), bound.__init__, started]})
    values = [one.value for one in found]
    for expected in (GLOBAL, BY_PROPERTY, BY_HELPER, enclosed, default, given_to_partial, bound, local):
        assert expected in values
    assert {one.by_name for one in found if one.value in (GLOBAL, BY_PROPERTY, enclosed, default)} == {True}
    assert {one.by_name for one in found if one.value in (given_to_partial, bound, local)} == {False}


def test_what_is_in_an_attribute_too_does_not_count_as_found_by_name():
    assert [one.by_name for one in reached({"a": Draws(), "z": Thing(source=GLOBAL)}) if one.value is GLOBAL] == [False]


def test_a_closure_that_is_not_filled_yet_leads_nowhere():
    def outer():
        def inner():
            return later

        found = reached({"inner": inner})
        later = 1
        return found, later

    assert outer()[0] == []


def test_objects_of_libraries_are_given_and_not_gone_through():
    hidden = Thing()
    number = logging.Logger("x")  # noqa: LOG001 - of its own
    number.hidden = hidden
    assert paths({"a": number}) == {"a": number}
    assert paths({"a": number}, through=(logging.Logger,))["a.hidden"] is hidden


def test_paths_are_apart_and_the_same_in_every_process():
    def one(shared=Thing()):  # noqa: B008 - two functions, two objects
        return shared

    def two(shared=Thing()):  # noqa: B008
        return shared

    roots = {"x": [Thing(f=one), Thing(f=two), Draws()]}
    found = [one.path for one in reached(roots)]
    assert len({*found}) == len(found)
    assert found == [one.path for one in reached(roots)]


def test_of_long_containers_the_beginning_is_looked_at():
    assert len(reached({"x": [Thing() for _ in range(5000)]})) == 1000


def test_own_classes_are_those_of_no_installed_package():
    assert [is_own(kind) for kind in (Thing, Fraction, np.ndarray, int, ChangedAttributes, pytest.Item)] == [
        True,
        *5 * [False],
    ]
    assert {"GLOBAL", "random", "helper"} <= names_in_code(Draws)
    assert names_in_code(Fraction) == frozenset()


def everything(_owner, name):
    return not name.startswith("_")


def watched(owner, *, large=True):
    return ChangedAttributes({"data": owner}, wanted=everything, large=large, remedy="do this")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, float("nan"), "a", b"b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
) | st.lists(st.integers(0, 9), min_size=1, max_size=4).map(np.array)
attributes = st.dictionaries(st.sampled_from(["one", "two", "three"]), values, max_size=3)


def same(one, other):
    return repr(one) == repr(other)


@given(attributes, attributes)
@example({"one": [True, (0.0,)], "two": 0.0}, {"one": [1, (-0.0,)], "two": -0.0})
@example({"one": {"a": 1, "b": 2}}, {"one": {"b": 2, "a": 1}})
def test_what_changed_comes_back_and_what_did_not_stays_out(first, changes):
    here, there = Thing(**copy.deepcopy(first)), Thing(**copy.deepcopy(first))
    saved, restored = watched(here), watched(there)
    assert saved.state_dict() == {}
    vars(here).update(copy.deepcopy(changes))
    state = copy.deepcopy(saved.state_dict())
    assert state.get("data", {}).keys() <= changes.keys()
    restored.load_state_dict(state)
    assert {name: repr(value) for name, value in vars(there).items()} == {
        name: repr(value) for name, value in vars(here).items()
    }
    assert same(restored.state_dict(), state)


@given(attributes, attributes)
def test_what_was_not_changed_when_it_was_saved_gets_its_first_value_again(first, changes):
    thing = Thing(**copy.deepcopy(first))
    changed = watched(thing)
    nothing = changed.state_dict()
    vars(thing).update(copy.deepcopy(changes))
    changed.load_state_dict(nothing)
    assert {name: repr(vars(thing)[name]) for name in first} == {name: repr(value) for name, value in first.items()}


def test_arrays_and_lists_that_others_hold_are_filled_in_place():
    order, files = np.arange(4), OrderedDict(a=[1])
    thing = Thing(order=order, files=files, names=["a", "b"])
    names, changed = thing.names, watched(thing)
    changed.load_state_dict({"data": {"order": np.array([3, 2, 1, 0]), "files": {"b": 2}, "names": ["b"]}})
    assert order.tolist() == [3, 2, 1, 0]
    assert (names, dict(files)) == (["b"], {"b": 2})
    assert thing.order is order


@pytest.mark.parametrize("make", [lambda: np.ones(300_000), lambda: np.array([5.0, 1.0]), lambda: [5]])
def test_what_was_put_back_is_saved_again_though_it_seems_to_be_as_it_was_first(make):
    """Of a large array a few places alone say whether it changed, and a script may begin with what was saved."""
    saved = make()
    saved[0 if len(saved) < 10 else 7] = 5
    thing = Thing(weights=make())
    changed = watched(thing)
    changed.load_state_dict({"data": {"weights": saved}})
    assert same(changed.state_dict(), {"data": {"weights": saved}})
    assert thing.weights[7 % len(saved)] == saved[7 % len(saved)]


def test_large_arrays_caches_and_foreign_objects_are_named_once_and_not_saved(caplog):
    images = np.zeros((600, 600))
    thing = Thing(images=images, order=np.arange(300_000), cache={}, objects=[Fraction(1)])
    changed = watched(thing, large=False)
    images += 1
    thing.order = thing.order[::-1].copy()
    thing.cache["image"] = images
    thing.objects.append(Fraction(2))
    for _ in range(2):
        assert changed.state_dict().keys() == {"data"}
        assert changed.state_dict()["data"].keys() == {"order"}
    assert sorted(record.args[1] for record in caplog.records) == ["cache", "images", "objects"]
    assert "the training changes data.cache, which is not saved: do this" in caplog.text
    assert watched(thing).state_dict() == {}


def test_changes_that_are_only_watched_are_named(caplog):
    thing = Thing(count=0)
    changed = watched(thing)
    changed.warn_of_changes()
    assert not caplog.records
    thing.count = 1
    changed.warn_of_changes()
    assert "data.count" in caplog.text


def test_what_belongs_to_an_object_that_is_not_here_is_refused():
    with pytest.raises(ValueError, match="not here: other"):
        watched(Thing()).load_state_dict({"other": {"a": 1}})
