"""A state becomes a document and raw bytes, and comes back as it was: type for type, bit for bit."""

from __future__ import annotations

import enum
import itertools
import json
import math
import random
import struct
from collections import Counter, OrderedDict, namedtuple

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import Checkpointer
from spotkeep.errors import StateError
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import encode_state

DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?"),
    npst.complex_number_dtypes(endianness="?"),
    npst.datetime64_dtypes(endianness="?"),
    npst.timedelta64_dtypes(endianness="?"),
    npst.byte_string_dtypes(endianness="?", max_len=5),
    npst.unicode_string_dtypes(endianness="?", max_len=5),
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**5000), max_value=2**5000),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.text(st.characters(categories=["Cs"])),
    st.binary(),
)
KEYS = st.one_of(
    st.text(), st.integers(), st.none(), st.booleans(), st.floats(allow_nan=False), st.tuples(st.text(), st.integers())
)
VALUES = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda inside: st.one_of(
        st.lists(inside, max_size=4), st.lists(inside, max_size=4).map(tuple), st.dictionaries(KEYS, inside, max_size=4)
    ),
    max_leaves=15,
)
STATES = st.dictionaries(st.text(), VALUES, max_size=4)


def round_trip(state):
    encoded = encode_state(state)
    document = json.loads(json.dumps(encoded.document, allow_nan=False))
    stream = bytearray()
    for blob in encoded.blobs:
        assert blob.offset >= len(stream), "blobs never overlap"
        assert blob.offset % 64 == 0
        stream += bytes(blob.offset - len(stream)) + bytes(blob.raw)
    assert encoded.parts[0].size == -(-len(stream) // 4096) * 4096
    return decode_state(document, lambda number, offset, size: bytes(stream[offset : offset + size]))


def identical(left, right):
    """Equal in type, structure and every bit; NaN is identical to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            identical(a, b) and identical(left[a], right[b]) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return struct.pack("dd", left.real, left.imag) == struct.pack("dd", right.real, right.imag)
    if isinstance(left, (np.ndarray, np.generic)):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return left == right


@given(state=STATES)
def test_every_state_comes_back_as_it_was(state):
    assert identical(round_trip(state), state)


@given(state=STATES, cuts=st.sets(st.integers(1, 40)))
def test_a_stream_that_is_cut_anywhere_has_all_its_bytes(state, cuts):
    (whole,) = encode_state(state).parts
    places = sorted({0, whole.size, *(cut * whole.size // 41 for cut in cuts)})
    found = bytearray()
    for start, end in itertools.pairwise(places):
        part = whole.between(start, end)
        raw = bytearray(part.size)
        for blob in part.blobs:
            raw[blob.offset : blob.offset + len(blob.raw)] = blob.raw
        found += raw
    expected = bytearray(whole.size)
    for blob in whole.blobs:
        expected[blob.offset : blob.offset + len(blob.raw)] = blob.raw
    assert found == expected


@given(array=ARRAYS.filter(lambda array: array.ndim >= 2))
def test_views_and_orders_in_memory_are_stored_by_value(array):
    for view in (array.T, array[::-1], array[:, ::2], np.asfortranarray(array)):
        restored = round_trip({"view": view})["view"]
        assert identical(restored, np.array(view, order="K"))


def test_the_order_in_memory_comes_back_because_it_decides_the_last_bit_of_a_sum():
    array = np.asfortranarray(np.random.default_rng(0).normal(size=(37, 51)))
    restored = round_trip({"a": array})["a"]
    assert restored.flags.f_contiguous
    assert not restored.flags.c_contiguous
    assert restored.sum() == array.sum()


@given(array=ARRAYS, data=st.data())
def test_any_order_of_the_dimensions_in_memory_comes_back(array, data):
    order = data.draw(st.permutations(range(array.ndim)))
    turned = array.transpose(order)
    restored = round_trip({"a": turned})["a"]
    assert identical(restored, turned)
    long = [axis for axis in range(turned.ndim) if turned.shape[axis] > 1]
    assert not turned.size or [restored.strides[axis] for axis in long] == [turned.strides[axis] for axis in long]


def test_restored_arrays_can_be_written_to():
    restored = round_trip({"a": np.arange(5)})["a"]
    restored += 1
    assert restored.tolist() == [1, 2, 3, 4, 5]


def test_structured_arrays_and_numpy_scalars_come_back():
    records = np.array([(1, 2.5, [1, 2])], dtype=[("id", ">i4"), ("x", "<f8"), ("pair", "u1", (2,))])
    nested = np.zeros(2, dtype=[("a", [("b", "i2")])])
    state = {"records": records, "nested": nested, "scalar": np.float32(0.1), "when": np.datetime64("2026-11-21")}
    assert identical(round_trip(state), state)


@pytest.mark.parametrize(
    "generator",
    [
        np.random.default_rng(3),
        np.random.Generator(np.random.MT19937(3)),
        np.random.Generator(np.random.Philox(3)),
        np.random.RandomState(3),
        random.Random(3),  # noqa: S311 - nothing secret
    ],
    ids=lambda generator: type(getattr(generator, "bit_generator", generator)).__name__,
)
def test_random_generators_are_saved_as_their_state(generator):
    first = round_trip({"rng": generator})["rng"]
    again = round_trip({"rng": generator})["rng"]
    assert json.dumps(repr(first)) == json.dumps(repr(again))
    generator.random()
    assert repr(round_trip({"rng": generator})["rng"]) != repr(first)


def test_objects_with_a_state_dict_are_saved_as_what_it_says():
    class Schedule:
        def state_dict(self):
            return OrderedDict(epoch=3, milestones=Counter({10: 1}))

        def load_state_dict(self, state):
            raise AssertionError("saving loads nothing")

    restored = round_trip({"schedule": Schedule()})["schedule"]
    assert restored == {"epoch": 3, "milestones": Counter({10: 1})}
    assert type(restored["milestones"]) is Counter


class Colour(enum.IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


class Inner:
    def state_dict(self):
        return {"fine": 1, "inner": Inner()}

    def load_state_dict(self, state):
        raise AssertionError("saving loads nothing")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.array([object()]), "holds Python objects"),
        (np.array([{}], dtype=[("a", "O")]), "holds Python objects"),
        (np.ma.masked_array([1], mask=[True]), "MaskedArray cannot be saved"),
        (object(), "object cannot be saved"),
        ({1, 2}, "set cannot be saved"),
        (lambda: 1, "function cannot be saved"),
        (np.random.Generator, "type cannot be saved"),
        (Colour.RED, "convert it to one before saving"),
        (Point(1, 2), "come back as a plain tuple"),
        ({frozenset(): 1}, "the key frozenset() is a frozenset"),
        (Inner(), "state['x']['inner']"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_cannot_come_back_is_refused_with_its_place(value, reason):
    with pytest.raises(StateError) as refusal:
        encode_state({"x": value})
    (problem,) = refusal.value.problems
    assert problem.startswith("state['x']")
    assert reason in problem


def test_all_problems_are_reported_at_once():
    with pytest.raises(StateError) as refusal:
        encode_state({"a": object(), "b": [1, {2}], "c": {"d": np.array([None])}})
    assert [problem.split(":")[0] for problem in refusal.value.problems] == [
        "state['a']",
        "state['b'][1]",
        "state['c']['d']",
    ]


def test_a_state_that_contains_itself_or_is_too_deep_is_refused():
    ring: list[object] = []
    ring.append(ring)
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(StateError, match="contains itself"):
        encode_state({"ring": ring})
    with pytest.raises(StateError, match="nested deeper"):
        encode_state({"deep": deep})
    shared = [1]
    assert round_trip({"twice": [shared, shared]}) == {"twice": [[1], [1]]}


def test_nan_keeps_its_bits():
    strange = struct.unpack(">d", bytes.fromhex("7ff8dead0000beef"))[0]
    assert math.isnan(strange)
    assert identical(round_trip({"x": strange}), {"x": strange})


def test_a_read_only_array_is_refused_by_its_place(tmp_path):
    """As pandas 3 gives them."""
    order = np.arange(3)
    order.flags.writeable = False
    with pytest.raises(StateError) as refusal, Checkpointer({"w": np.zeros(2), "x": [{"order": order}]}, tmp_path):
        pytest.fail("entered")
    (problem,) = refusal.value.problems
    assert problem.startswith("state['x'][0]['order']: it is read-only")


@pytest.mark.torch
class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def buffers(self, torch):
        with torch.inference_mode():
            inference = torch.zeros(3)
        return {
            "made by expand": (torch.zeros(3, 1).expand(3, 2), "as expand"),
            "made in inference mode": (inference, "inference_mode"),
        }

    @pytest.mark.parametrize("kind", ["made by expand", "made in inference mode"])
    def test_a_tensor_that_cannot_be_filled_is_refused_by_its_place(self, torch, kind, tmp_path):
        tensor, reason = self.buffers(torch)[kind]
        module = torch.nn.Sequential(torch.nn.Identity())
        module[0].register_buffer("grid", tensor)
        for state, place in (({"model": module}, "state['model']['0.grid']"), ({"t": [tensor]}, "state['t'][0]")):
            with pytest.raises(StateError, match=reason) as refusal, Checkpointer(state, tmp_path):
                pytest.fail("entered")
            assert [problem.partition(": ")[0] for problem in refusal.value.problems] == [place]

    def test_a_module_whose_own_loader_puts_another_tensor_there_is_taken(self, torch, tmp_path):
        class Replaces(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("grid", torch.zeros(3, 1).expand(3, 2))

            def _load_from_state_dict(self, state_dict, prefix, *others):
                self.grid = state_dict[prefix + "grid"]

        with Checkpointer({"model": Replaces()}, tmp_path) as checkpointer:
            checkpointer.save(1)
        model = Replaces()
        assert Checkpointer({"model": model}, tmp_path).restore() == 1

    def test_a_lazy_module_is_refused_before_it_has_seen_a_batch(self, torch, tmp_path):
        lazy = torch.nn.LazyLinear(2)
        with pytest.raises(StateError, match="give the module a batch before"), Checkpointer({"l": lazy}, tmp_path):
            pytest.fail("entered")
        lazy(torch.ones(1, 3))
        with Checkpointer({"l": lazy}, tmp_path):
            pass
