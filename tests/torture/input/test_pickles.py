"""Pickles of other libraries: plain and inert values, or no pickle. The judge of wholeness has an answer for each."""

from __future__ import annotations

import collections
import contextlib
import io
import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep.exchange.pickles import read_pickle
from spotkeep.pickle_operations import MalformedPickleError
from spotkeep.runner.script_checkpoints.pickles import PROTOCOLS, pickle_problem, plain_values

from .bounds import bounded, fed_by_strangers
from .mutations import CUTS, FLIPS, damaged
from .pickled import ROWS, mutated_pickle

VALUE = {"a": [1, 2.5, (True, None), b"raw", "text"], 2**80: {"x", 1j}, "n": collections.OrderedDict(b=bytearray(3))}
WHOLE = [pickle.dumps(VALUE, protocol) for protocol in range(6)]
PICKLES = st.sampled_from(WHOLE).flatmap(mutated_pickle)


def read(raw: bytes) -> Any:
    with contextlib.suppress(MalformedPickleError):
        return read_pickle(raw)
    return None


def test_the_pickles_that_are_altered_are_whole_ones() -> None:
    for raw in WHOLE:
        found = read(raw)
        assert (found["a"][0], found["n"]["b"] is None) == (1, False)
        assert raw[:1] != b"\x80" or pickle_problem(io.BytesIO(raw), len(raw)) is None


@fed_by_strangers(share=0.7)
@given(PICKLES | ROWS, FLIPS, CUTS)
def test_a_pickle_is_a_value_or_none(raw: bytes, flips: list[tuple[int, int]], cut: int | None) -> None:
    raw = damaged(raw, flips, cut)
    with bounded():
        read(raw)


@fed_by_strangers(share=0.3)
@given(PICKLES | ROWS, FLIPS, CUTS)
def test_a_pickle_is_judged(raw: bytes, flips: list[tuple[int, int]], cut: int | None) -> None:
    raw = damaged(raw, flips, cut)
    with bounded():
        plain_values(raw)
        if raw.startswith(PROTOCOLS):
            assert pickle_problem(io.BytesIO(raw), len(raw)) in (None, "it ends too early")
