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
from spotkeep_cli.checkpoints.safetensors_file import in_row_major, row_major


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    item=st.sampled_from(["u1", "u2", "u4", "u8"]),
    data=st.data(),
)
def test_any_order_of_the_dimensions_becomes_rows(shape: list[int], item: str, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    array = np.arange(np.prod(shape), dtype=item).reshape(shape)
    raw = array.transpose(order).tobytes()
    assert in_row_major(raw, shape=tuple(shape), order=order, item_bytes=array.itemsize) == array.tobytes()


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", ">u2", "|b1", ">c8"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)], ids=["C", "F", "columns of each matrix"])
def test_what_was_saved_leaves_as_others_read_it(tmp_path: Path, dtype: str, order: tuple[int, ...]) -> None:
    # More than one piece of it, so that no element is torn.
    array = np.arange(600_000).reshape(3, 40, -1).transpose(order).astype(dtype, order="C").transpose(np.argsort(order))
    CheckpointDirectory(tmp_path).write(encode_state({"x": b"odd", "w": array}), step=1)
    with InspectedCheckpoint(tmp_path, 1) as checkpoint:
        entry = checkpoint.entries()[1]
        raw = b"".join(row_major(checkpoint, entry))
    assert element_type(entry).name == array.dtype.name
    assert raw == array.astype(array.dtype.newbyteorder("<")).tobytes()
