"""Whatever a folder holds, it gets an answer: a checkpoint of a stranger must not end the run before its script."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.script_checkpoints.cut_off import cut_off_in
from spotkeep.runner.script_checkpoints.folder import read_folder

NAMES = [
    "trainer_state.json", "training_args.bin", "config.json", "model.safetensors.index.json", "rng_state_1.pth",
    "random_states_0.pkl", "optimizer_1.bin", ".metadata", "__0_0.distcp", "latest", "zero_to_fp32.py",
    "_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt", ".zarray", "zarr.json", "saved_model.pb", "checkpoint",
    "training_metadata.json", "latest.weights.h5", "m.weights.json", "model-1.txt", "model-2.json",
]  # fmt: skip
KEYS = [
    "weight_map", "tree_metadata", "value_metadata", "value_type", "item_handlers", "commit_timestamp_nsecs", "shape",
    "chunks", "chunk_grid", "configuration", "chunk_shape", "dimension_separator", "chunk_key_encoding", "a",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5) | st.just("jax.Array"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
CONTENTS = st.binary(max_size=40) | OBJECTS.map(lambda value: json.dumps(value).encode())


@given(
    folders=st.dictionaries(
        st.sampled_from(["checkpoint-1", "checkpoint-2", "3", "3/d", "epoch_4", "s.ckpt", "5/variables"]),
        st.dictionaries(st.sampled_from(NAMES), CONTENTS, max_size=5),
        max_size=4,
    )
)
def test_whatever_a_folder_holds_it_gets_an_answer(tmp_path_factory, folders):
    root = tmp_path_factory.getbasetemp() / "any"
    shutil.rmtree(root, ignore_errors=True)
    for folder, contents in folders.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (root / folder / name).write_bytes(content)
    root.mkdir(exist_ok=True)
    for one in cut_off_in(read_folder(root), pytest.fail):
        assert all(path.exists() for path in one.paths)
        assert one.problem
