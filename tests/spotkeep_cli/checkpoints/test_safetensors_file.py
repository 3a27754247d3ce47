"""Arrays leave in C order and little-endian, whatever they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.state.encoding import encode_state
from spotkeep_cli.checkpoints.elements import element_type
from spotkeep_cli.checkpoints.safetensors_file import from_column_major, row_major


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4), item=st.sampled_from(["u1", "u2", "u4", "u8"]))
def test_columns_become_rows(shape: list[int], item: str) -> None:
    array = np.arange(np.prod(shape), dtype=item).reshape(shape)
    raw = array.tobytes(order="F")
    assert from_column_major(raw, shape=tuple(shape), item_bytes=array.itemsize) == array.tobytes()


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", ">u2", "|b1", ">c8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_was_saved_leaves_as_others_read_it(tmp_path: Path, dtype: str, order: str) -> None:
    # More than one piece of it, so that no element is torn.
    array = np.asarray(np.arange(600_000).reshape(3, -1).astype(dtype), order=order)
    CheckpointDirectory(tmp_path).write(encode_state({"x": b"odd", "w": array}), step=1)
    with InspectedCheckpoint(tmp_path, 1) as checkpoint:
        entry = checkpoint.entries()[1]
        raw = b"".join(row_major(checkpoint, entry))
    assert element_type(entry).name == array.dtype.name
    assert raw == array.astype(array.dtype.newbyteorder("<")).tobytes()
