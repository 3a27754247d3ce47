"""Checkpoints of torch.distributed.checkpoint from strangers: a state with whole arrays, or an error of an exchange."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import ExchangeError
from spotkeep.exchange import dcp
from spotkeep.exchange.dcp import METADATA, read_dcp, write_dcp
from spotkeep.exchange.elements import Array

from .bounds import bounded, fed_by_strangers
from .exchanged import read_arrays
from .mutations import CUTS, FLIPS, damaged
from .pickled import mutated_pickle

DATA = "__0_0.distcp"


def array(*shape: int) -> Array:
    whole = Array("tensor", "float32", shape, lambda: iter(()))
    return Array("tensor", "float32", shape, partial(iter, [bytes(whole.size)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("dcp")
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(dcp, "_CHUNK_BYTES", 48)
        write_dcp(found, {"model": {"w": array(4, 6), "b": array(0, 2)}, "list": [array(2), {"n": 3}], "epoch": 7})
    return found


@pytest.fixture(scope="module")
def metadata(folder: Path) -> bytes:
    return (folder / METADATA).read_bytes()


@pytest.fixture(scope="module")
def data_file(folder: Path) -> bytes:
    return (folder / DATA).read_bytes()


def read(folder: Path, *, metadata: bytes, data_file: bytes) -> Any:
    (folder / METADATA).write_bytes(metadata)
    (folder / DATA).write_bytes(data_file)
    with bounded(), contextlib.suppress(ExchangeError), read_dcp(folder) as state:
        read_arrays(state)
        return state
    return None


def test_the_checkpoint_that_is_altered_is_a_whole_one(folder: Path, metadata: bytes, data_file: bytes) -> None:
    found = read(folder, metadata=metadata, data_file=data_file)
    assert (found["model"]["w"].shape, found["list"][1], found["epoch"]) == ((4, 6), {"n": 3}, 7)


@fed_by_strangers(share=0.8)
@given(st.data())
def test_any_metadata_are_read_or_refused(folder: Path, metadata: bytes, data_file: bytes, data: st.DataObject) -> None:
    read(folder, metadata=data.draw(mutated_pickle(metadata)), data_file=data_file)


@fed_by_strangers(share=0.2)
@given(FLIPS, CUTS)
def test_a_damaged_file_is_read_or_refused(
    folder: Path, metadata: bytes, data_file: bytes, flips: list[tuple[int, int]], cut: int | None
) -> None:
    read(folder, metadata=metadata, data_file=damaged(data_file, flips, cut))
