"""Files of safetensors and their indices from strangers: arrays with all their bytes, or an error of an exchange."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import ExchangeError
from spotkeep.exchange.safetensors_files import read_safetensors

from .bounds import bounded, fed_by_strangers
from .exchanged import read_arrays
from .mutations import CUTS, FLIPS, NUMBERS, as_json, damaged, mutated

HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "I8", "shape": [], "data_offsets": [24, 25]},
    "c": {"dtype": "BF16", "shape": [0, 2], "data_offsets": [25, 25]},
}
INDEX = {"metadata": {"total_size": 25}, "weight_map": dict.fromkeys("abc", "x.safetensors")}


def file_of(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(25)


WHOLE = file_of(json.dumps(HEADER).encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("safetensors")


def read(folder: Path, *, file: bytes, index: bytes) -> Any:
    (folder / "x.safetensors").write_bytes(file)
    (folder / "x.safetensors.index.json").write_bytes(index)
    with bounded(), contextlib.suppress(ExchangeError), read_safetensors(folder) as (arrays, _):
        read_arrays(arrays)
        return arrays
    return None


def test_the_files_that_are_altered_are_whole_ones(folder: Path) -> None:
    found = read(folder, file=WHOLE, index=json.dumps(INDEX).encode())
    assert {name: array.shape for name, array in found.items()} == {"a": (2, 3), "b": (), "c": (0, 2)}


@fed_by_strangers(share=0.5)
@given(mutated(HEADER), NUMBERS)
def test_any_header_is_read_or_refused(folder: Path, header: Any, number: str) -> None:
    read(folder, file=file_of(as_json(header, number=number).encode()), index=json.dumps(INDEX).encode())


@fed_by_strangers(share=0.25)
@given(mutated(INDEX), NUMBERS)
def test_any_index_is_read_or_refused(folder: Path, index: Any, number: str) -> None:
    read(folder, file=WHOLE, index=as_json(index, number=number).encode())


@fed_by_strangers(share=0.25)
@given(st.just(WHOLE) | st.binary(max_size=300), FLIPS, CUTS)
def test_any_bytes_are_read_or_refused(folder: Path, raw: bytes, flips: list[tuple[int, int]], cut: int | None) -> None:
    read(folder, file=damaged(raw, flips, cut), index=json.dumps(INDEX).encode())
