"""Pickles are read and written without a class of theirs, and nothing in a hostile one is executed."""

from __future__ import annotations

import contextlib
import pickle
import pickletools
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.exchange.pickles import (
    Call,
    Global,
    Instance,
    Persistent,
    read_pickle,
    written_pickle,
)
from spotkeep.pickle_operations import MalformedPickleError

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=20,
)


@given(VALUES, st.integers(0, 5))
def test_a_pickle_of_any_protocol_is_read_as_python_reads_it(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


@given(VALUES)
def test_python_reads_what_is_written(value: Any) -> None:
    assert pickle.loads(written_pickle(value)) == value  # noqa: S301 - our own
    assert read_pickle(written_pickle(value)) == value


@pytest.mark.parametrize("value", [b"\0\xff", bytearray(b"x"), 1 + 2j, Counter({"a": 2}), [b"", (b"a",)]])
def test_values_that_need_a_call_are_written_as_python_writes_them(value: Any) -> None:
    found = pickle.loads(written_pickle(value))  # noqa: S301 - our own
    assert (found, type(found)) == (value, type(value))


def test_an_ordered_dictionary_is_a_dictionary() -> None:
    assert read_pickle(pickle.dumps(OrderedDict(a=1, b=[2]))) == {"a": 1, "b": [2]}


class Hostile:
    """Makes a file in its folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "executed"
    raw = pickle.dumps([Hostile(target), 1], protocol)
    found = read_pickle(raw)
    assert not target.exists()
    assert isinstance(found[0], Call)
    assert found[1] == 1
    pickle.loads(raw)  # noqa: S301 - to show that Python would
    assert target.exists()


def test_objects_are_inert() -> None:
    value = Instance(Global("a.b", "C"), (1,), {"x": 2})
    found = read_pickle(written_pickle([value, Persistent(("storage", "0")), Global("torch", "float32")]))
    assert (str(found[0].function), found[0].arguments, found[0].state) == ("a.b.C", (1,), {"x": 2})
    assert isinstance(found[0], Instance)
    assert found[1:] == [Persistent(("storage", "0")), Global("torch", "float32")]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "it has no end"),
        (b"\x80\x02N", "it has no end"),
        (b"\x80\x02X\xff\0\0\0a.", "255 bytes in a"),
        (b"\x80\x02S'\\o'\n.", "byte b'S'"),
        (b"\x80\x02(a.", "mark as a value"),
        (b"\x80\x02(q\x01.", "mark as a value"),
        (b"\x80\x02N0.", "not leave one value"),
        (b"\x80\x02NN.", "not leave one value"),
        (b"\x80\x02h\x05.", "5"),
        (b"\x80\x02}N].", "not leave one value"),
        (b"\x80\x02N]s.", "fills a|no pickle"),
        (b"\x80\x02KaNK\x01\x87N.", "not leave one value"),
        (b"\x80\x02}]Ns.", "unhashable"),
        (b"\x80\x04\x8c\x01aK\x01\x93.", "names no class"),
        (b"\x80\x02NNb.", "changes a NoneType"),
        (b"\x80\x02ca\nb\nNR.", "no tuple"),
        (b"\x80\x02ca\\o\nb", "a line has no end"),
        (b"\x80\x02c\xff\nb\n.", "no pickle"),
        (b"\x82\x01.", "EXT1"),
        (b"(ia\nb\n.", "INST"),
        (b"\x80\x02r\xff\xff\xff\xff.", "no pickle"),
        # Hashed or written as text, these would take for ever, or end the process.
        (b"\x80\x02}N" + b"2\x86" * 60 + b"Ns.", "key of nested tuples"),
        (b"\x80\x02})" + b"\x85" * 500_000 + b"Ns.", "key of nested tuples"),
        (b"\x80\x02}(N" + b"2\x86" * 60 + b"Nd.", "key of nested tuples"),
        (b"\x80\x02}N" + b"2\x86" * 60 + b"QNs.", "key of nested tuples"),
    ],
)
def test_another_thing_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(MalformedPickleError, match=why):
        read_pickle(raw)


def test_a_large_number_of_a_memo_takes_no_memory() -> None:
    assert read_pickle(b"\x80\x02]r\xff\xff\xff\xff.") == []


@pytest.mark.parametrize("raw", [
    b"cos\nsystem\n" + b"2\x85R" * 60,
    b"](N" + b"2\x86" * 60 + b"\x91a",
    b"\x8f(N" + b"2\x86" * 60 + b"\x90",
])  # fmt: skip
def test_values_in_2_to_the_power_of_60_places_are_read_in_bounded_time(raw: bytes) -> None:
    assert read_pickle(b"\x80\x04" + raw + b".") is not None


def test_sets_are_inert_because_their_items_would_be_hashed() -> None:
    assert [str(found.function) for found in read_pickle(pickle.dumps([{1}, frozenset("a")]))] == [
        "builtins.set",
        "builtins.frozenset",
    ]


CODES = [operation.code.encode("latin-1") for operation in pickletools.opcodes]


@given(st.lists(st.sampled_from(CODES) | st.binary(max_size=4), max_size=30).map(b"".join))
def test_any_bytes_are_a_value_or_an_error(raw: bytes) -> None:
    with contextlib.suppress(MalformedPickleError):
        read_pickle(raw + b".")


def test_values_that_are_not_plain_are_refused() -> None:
    with pytest.raises(MalformedPickleError, match="cannot hold a set"):
        written_pickle([{1}])
    nested: list[Any] = []
    for _ in range(500):
        nested = [nested]
    with pytest.raises(MalformedPickleError, match="nested too deeply"):
        written_pickle(nested)
