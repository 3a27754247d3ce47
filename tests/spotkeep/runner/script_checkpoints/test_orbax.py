"""Orbax's checkpoints, by the real one: whole ones stay, and half ones do not."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

jax = pytest.importorskip("jax")
orbax = pytest.importorskip("orbax.checkpoint")

import jax.numpy as jnp  # noqa: E402
import orbax.checkpoint.experimental.v1 as orbax_1  # noqa: E402
from flax.training import checkpoints as of_flax  # noqa: E402

from spotkeep.runner.script_checkpoints.putting_aside import put_aside_cut_off  # noqa: E402

pytestmark = [pytest.mark.jax, pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

NOT_NEEDED = re.compile(
    r"(.*/)?((commit_success.txt|orbax.checkpoint) (empty|half)|ocdbt.process_0/d/[0-9a-f]{32} missing)"
)
"""The content of a mark does not matter; a restore does not read the nodes of each process, which are merged."""
CUT_DATA = re.compile(r"(.*/)?(ocdbt.process_0/d/[0-9a-f]{32} half|[0-9]+(\.[0-9]+)* half|c(/[0-9]+)* half)")
"""The packed bytes of arrays. Orbax refuses them itself."""


def state(number):
    return {"w": jnp.arange(4000.0).reshape(40, 100) + number, "b": jnp.zeros(3), "step": number, "seen": np.arange(3)}


def with_manager(folder):
    with orbax.CheckpointManager(str(folder)) as manager:
        for step in (4, 8):
            manager.save(step, args=orbax.args.StandardSave(state(step)))


def with_items(folder):
    with orbax.CheckpointManager(str(folder)) as manager:
        for step in (4, 8):
            items = {"state": orbax.args.StandardSave(state(step)), "position": orbax.args.JsonSave({"step": step})}
            manager.save(step, args=orbax.args.Composite(**items))


def without_manager(folder):
    with orbax.StandardCheckpointer() as checkpointer:
        for step in (4, 8):
            checkpointer.save(str(folder / str(step)), state(step))


def without_database(folder):
    for step in (4, 8):
        with orbax.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
            checkpointer.save(str(folder / str(step)), state(step))


def with_version_1(folder):
    for step in (4, 8):
        items = {"state": state(step), "position": {"step": step}}
        orbax_1.save_checkpointables(str(folder / str(step)), items)


def as_zarr_3(folder):
    for step in (4, 8):
        handler = orbax.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=True)
        with orbax.Checkpointer(handler) as checkpointer:
            checkpointer.save(str(folder / str(step)), state(step))


WRITERS = {
    written.__name__: written
    for written in (with_manager, with_items, with_version_1, without_manager, without_database, as_zarr_3)
}


@pytest.mark.parametrize("how", WRITERS)
def test_whatever_is_missing_or_cut_the_one_before_is_the_newest(unnoticed, only_arrived, tmp_path_factory, how):
    folder = tmp_path_factory.mktemp("orbax")
    WRITERS[how](folder)
    missed = list(unnoticed(folder, "8"))
    assert [each for each in missed if not NOT_NEEDED.fullmatch(each) and not CUT_DATA.fullmatch(each)] == []
    assert list(only_arrived(folder, "8")) == []


def test_arrays_may_follow_a_node_of_the_tree_in_one_file(copied, tmp_path):
    """TensorStore 0.1.86 packs what waits to be written: about one file in a thousand begins with a node."""
    with_items(tmp_path / "orbax")
    checkpoints = copied(tmp_path / "orbax")
    folder = checkpoints.path / "8" / "state" / "ocdbt.process_0" / "d"
    by_size = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    node, arrays = by_size[0], by_size[-1]
    assert node.read_bytes()[:4] == b"\x0c\xdb\x20\xde"
    arrays.write_bytes(node.read_bytes() + arrays.read_bytes())
    assert checkpoints.put_aside() == {}
    arrays.unlink()
    assert checkpoints.put_aside() == {"8": "state/ocdbt.process_0/d/<arrays> is missing"}


def test_the_arrays_are_missing_though_their_description_is_there(copied, tmp_path):
    with_manager(tmp_path / "orbax")
    for lost in ("d", "ocdbt.process_0", "manifest.ocdbt"):
        checkpoints = copied(tmp_path / "orbax")
        path = checkpoints.path / "8" / "default" / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert list(checkpoints.put_aside()) == ["8"], lost
    shutil.rmtree(checkpoints.path / "4")
    for path in (checkpoints.path / "8" / "default").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.name == "_METADATA" or path.unlink()
    assert checkpoints.put_aside() == {"8": "its arrays are missing"}


def test_the_data_file_that_a_restore_needs_is_missed(copied, tmp_path):
    with_manager(tmp_path / "orbax")
    checkpoints = copied(tmp_path / "orbax")
    data = max((checkpoints.path / "8/default/ocdbt.process_0/d").iterdir(), key=lambda path: path.stat().st_size)
    data.unlink()
    assert list(checkpoints.put_aside()) == ["8"]


def test_a_script_goes_on_from_the_newest_whole_one(copied, tmp_path):
    with_manager(tmp_path / "orbax")
    checkpoints = copied(tmp_path / "orbax")
    shutil.rmtree(checkpoints.path / "8" / "default" / "d")
    put_aside_cut_off(checkpoints.path, tmp_path / "aside")
    with orbax.CheckpointManager(str(checkpoints.path)) as manager:
        assert manager.latest_step() == 4
        restored = manager.restore(4, args=orbax.args.StandardRestore(state(0)))
    assert np.array_equal(restored["w"], state(4)["w"])


def test_an_older_one_that_keeps_its_arrays_in_one_file_is_whole(copied, tmp_path):
    """As `orbax/checkpoint/testing/aggregate_all.checkpoint` in Orbax itself."""
    (tmp_path / "orbax" / "8").mkdir(parents=True)
    (tmp_path / "orbax" / "8" / "checkpoint").write_bytes(b"packed")
    leaf = {"value_metadata": {"value_type": "np.ndarray", "skip_deserialize": True}}
    (tmp_path / "orbax" / "8" / "_METADATA").write_text(json.dumps({"tree_metadata": {"('a',)": leaf}}))
    assert copied(tmp_path / "orbax").put_aside() == {}


def test_items_that_a_script_removes_from_older_checkpoints_are_not_missed_there(copied, tmp_path):
    with_version_1(tmp_path / "orbax")
    checkpoints = copied(tmp_path / "orbax")
    shutil.rmtree(checkpoints.path / "4" / "state")
    assert checkpoints.put_aside() == {}
    shutil.rmtree(checkpoints.path / "8" / "state")
    assert checkpoints.put_aside() == {"8": "state is missing"}


def test_what_an_item_is_left_out_of_is_whole(copied, tmp_path):
    with orbax.CheckpointManager(str(tmp_path / "orbax")) as manager:
        manager.save(4, args=orbax.args.StandardSave(state(4)), metrics={"loss": 1.0})
        manager.save(8, args=orbax.args.StandardSave(state(8)))
    assert copied(tmp_path / "orbax").put_aside() == {}


def test_what_was_being_written_is_no_checkpoint(copied, tmp_path):
    with_manager(tmp_path / "orbax")
    checkpoints = copied(tmp_path / "orbax")
    (checkpoints.path / "8").rename(checkpoints.path / "8.orbax-checkpoint-tmp")
    assert checkpoints.put_aside() == {"8.orbax-checkpoint-tmp": "it was being written"}


def test_flax_writes_the_same(copied, tmp_path):
    for step in (4, 8):
        of_flax.save_checkpoint(str(tmp_path / "flax"), state(step), step, keep=2)
    checkpoints = copied(tmp_path / "flax")
    assert checkpoints.put_aside() == {}
    (checkpoints.path / "checkpoint_8" / "_METADATA").unlink()
    assert list(checkpoints.put_aside()) == ["checkpoint_8"]
