"""Trees of Orbax from strangers: a state with whole arrays, or an error of an exchange.

The store of the arrays is TensorStore's own, which reads it in other threads. They share the bounds.
"""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import ExchangeError
from spotkeep.exchange.elements import Array
from spotkeep.exchange.orbax import read_orbax, write_orbax

from .bounds import bounded, fed_by_strangers
from .exchanged import read_arrays
from .mutations import NUMBERS, as_json, mutated

pytestmark = pytest.mark.jax


def array(*shape: int) -> Array:
    whole = Array("ndarray", "float32", shape, lambda: iter(()))
    return Array("ndarray", "float32", shape, partial(iter, [bytes(whole.size)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tensorstore")
    found = tmp_path_factory.mktemp("orbax")
    write_orbax(found, {"params": {"w": array(4, 6), "b": array(2)}, "list": [array(2), 3], "none": None}, [])
    return found


@pytest.fixture(scope="module")
def tree(folder: Path) -> Any:
    document = json.loads((folder / "_METADATA").read_text())
    read(folder, json.dumps(document))  # TensorStore has its threads then.
    return document


def read(folder: Path, tree: str) -> Any:
    (folder / "_METADATA").write_text(tree)
    with bounded(), contextlib.suppress(ExchangeError):
        state = read_orbax(folder)
        read_arrays(state)
        return state
    return None


def test_the_tree_that_is_altered_is_a_whole_one(folder: Path, tree: Any) -> None:
    found = read(folder, json.dumps(tree))
    assert (found["params"]["w"].shape, found["list"][1], found["none"]) == ((4, 6), 3, None)


@fed_by_strangers()
@given(st.data(), NUMBERS)
def test_any_tree_is_read_or_refused(folder: Path, tree: Any, data: st.DataObject, number: str) -> None:
    read(folder, as_json(data.draw(mutated(tree)), number=number))
