"""A pickle that ends too early is recognised without executing it, and plain values are read out of one."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import io
import pickle
import struct

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier

from spotkeep.runner.script_checkpoints.files import problem_of
from spotkeep.runner.script_checkpoints.pickles import pickle_problem, plain_values

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.decimals(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.frozensets(st.text())
    ),
    max_leaves=20,
)
LARGE = {"text": "\u00fc" * 70_000, "bytes": b"." * 200_000, "array": np.arange(30_000), "many": list(range(2_000)),
         "class": collections.OrderedDict(a=decimal.Decimal(1)), "raw": bytearray(100_000)}  # fmt: skip


def problem(content):
    return pickle_problem(io.BytesIO(content), len(content))


@given(value=ANYTHING, protocol=st.integers(2, 5), data=st.data())
@settings(max_examples=50)
def test_a_pickle_is_whole_as_it_was_written_and_nowhere_before_its_end(value, protocol, data):
    content = pickle.dumps(value, protocol)
    assert problem(content) is None
    assert problem(content + pickle.dumps(value)) is None, "several in one file"
    cut = data.draw(st.integers(2, len(content) - 1), label="cut")
    assert problem(content[:cut]) is not None


@pytest.mark.parametrize("protocol", range(2, 6))
def test_so_is_one_of_large_values_between_frames(protocol):
    content = pickle.dumps(LARGE, protocol)
    assert problem(content) is None
    for cut in {*range(2, len(content), 17_011), *range(len(content) - 40, len(content))}:
        assert problem(content[:cut]) is not None


def test_what_follows_a_pickle_in_the_same_file_is_not_judged():
    assert problem(pickle.dumps([1], 2) + b"B\xff\xff\xff\xffraw data") is None
    assert problem(pickle.dumps([1]) + b"B\xff\xff\xff\xffraw data") is None


@given(content=st.binary(max_size=300), protocol=st.integers(2, 5))
def test_any_bytes_get_an_answer(content, protocol):
    problem(bytes((0x80, protocol)) + content)
    plain_values(content)


def test_lengths_that_are_not_there_take_no_memory():
    for code in (b"\x8e", b"\x8d", b"\x96", b"\x95"):
        assert problem(b"\x80\x05" + code + struct.pack("<Q", 2**62)) == "it ends too early"


class Hostile:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


def test_nothing_is_executed():
    assert problem(pickle.dumps(Hostile())) is None
    assert plain_values(pickle.dumps(Hostile()))[-1] == "a pickle was executed"


@given(
    values=st.lists(st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.text()),
    protocol=st.integers(2, 5),
)
def test_plain_values_are_read_in_their_order(values, protocol):
    assert plain_values(pickle.dumps(values, protocol)) == values
    again = [*values, {"date": dt.date(2020, 1, 1), "values": values}]
    assert plain_values(pickle.dumps(again, protocol))[: len(values)] == values


@pytest.mark.parametrize("compress", [0, 3, ("gzip", 3)])
def test_what_joblib_writes(tmp_path, compress):
    path = tmp_path / "model.joblib"
    x = np.random.default_rng(0).normal(size=(99, 5))
    joblib.dump({"x": x, "model": SGDClassifier().fit(x, x[:, 0] > 0)}, path, compress=compress)
    assert problem_of(path) is None
    content = path.read_bytes()
    for cut in range(0, len(content), 97):
        path.write_bytes(content[:cut])
        # Behind an array's raw bytes only the last byte of all is known.
        assert problem_of(path) is not None or (not compress and content[cut - 1 : cut] == b".")
