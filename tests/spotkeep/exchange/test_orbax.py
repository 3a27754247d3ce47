"""Checkpoints of Orbax: its own checkpointer reads ours to the bit, and ours come from its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.errors import ExchangeError
from spotkeep.exchange import Exported, export_checkpoint, import_checkpoint, orbax
from spotkeep.state.encoding import encode_state

pytestmark = pytest.mark.jax


def library() -> Any:
    return pytest.importorskip("orbax.checkpoint")


def exported(tmp_path: Path, state: dict[str, Any]) -> Exported:
    CheckpointDirectory(tmp_path / "checkpoints").write(encode_state(state), step=2)
    return export_checkpoint(tmp_path / "checkpoints", tmp_path / "orbax", format="orbax")


@pytest.mark.parametrize("chunk_bytes", [2**25, 5_000])
def test_its_checkpointer_reads_what_was_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    checkpointer = library().StandardCheckpointer()
    monkeypatch.setattr(orbax, "_CHUNK_BYTES", chunk_bytes)
    state = {
        "params": {"w": np.arange(6_000, dtype="f4").reshape(30, 200), "0.b": np.ones(4, "f2")},
        "columns": np.asfortranarray(np.arange(6, dtype=">i8").reshape(2, 3)),
        "deep": np.arange(9_000.0).reshape(3, 3_000),
        "complex": np.full(3, 1 + 2j),
        "list": [np.zeros(3, "u1"), (1, 2.5, True, None)],
        "step": 7,
        "number": np.float32(2.5),
        "text": "left out",
        "none": np.zeros((0, 3)),
    }
    written = exported(tmp_path, state)
    assert [name for name, _ in written.left_out] == ["text", "none"]
    found = checkpointer.restore((tmp_path / "orbax").absolute())
    for one, other in (
        (found["params"]["w"], state["params"]["w"]),
        (found["params"]["0.b"], state["params"]["0.b"]),
        (found["columns"], state["columns"].astype("<i8")),
        (found["deep"], state["deep"]),
        (found["complex"], state["complex"]),
        (found["list"][0], state["list"][0]),
        (found["number"], np.asarray(state["number"])),
    ):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    assert (found["list"][1], found["step"]) == ([1, 2.5, True, None], 7)


def test_its_checkpointer_gives_arrays_of_jax_where_they_are_asked_for(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    checkpointer = library().StandardCheckpointer()
    exported(tmp_path, {"w": np.arange(12, dtype="f4").reshape(3, 4)})
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = {"w": jax.ShapeDtypeStruct((3, 4), "float32", sharding=place)}
    found = checkpointer.restore((tmp_path / "orbax").absolute(), wanted)["w"]
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, np.arange(12, dtype="f4").reshape(3, 4))


@pytest.mark.parametrize("form", ["standard", "zarr 3", "a folder an array", "a manager"])
def test_a_script_goes_on_from_one_of_its_checkpoints(tmp_path: Path, form: str) -> None:
    ocp = library()
    import jax.numpy as jnp

    from spotkeep import Checkpointer

    tree = {
        "params": {"w": jnp.arange(12.0).reshape(3, 4), "v": np.arange(5)},
        "opt": [{"mu": np.full(3, 2.5)}],
        "done": {"epoch": 4},
    }
    place = (tmp_path / "theirs").absolute()
    if form == "a manager":
        with ocp.CheckpointManager(place) as manager:
            manager.save(3, args=ocp.args.StandardSave(tree))
            manager.wait_until_finished()
        place /= "3"
    else:
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=form != "a folder an array", use_zarr3=form == "zarr 3")
        with ocp.StandardCheckpointer() if form == "standard" else ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(place, tree)
    made = import_checkpoint(place, tmp_path / "checkpoints", step=12)
    assert (made.format, made.tensors, made.values, made.left_out) == ("orbax", 3, 1, ())
    state = {
        "params": {"w": np.zeros((3, 4), "f4"), "v": np.zeros(5, "i8")},
        "opt": [{"mu": np.zeros(3)}],
        "done": {"epoch": 0},
    }
    assert Checkpointer(state, directory=tmp_path / "checkpoints").restore() == 12
    np.testing.assert_array_equal(state["params"]["w"], tree["params"]["w"])
    np.testing.assert_array_equal(state["params"]["v"], tree["params"]["v"])
    np.testing.assert_array_equal(state["opt"][0]["mu"], tree["opt"][0]["mu"])
    assert state["done"] == {"epoch": 4}


def test_types_of_jax_alone_become_tensors_of_torch_on_request(tmp_path: Path) -> None:
    import jax.numpy as jnp

    place = (tmp_path / "theirs").absolute()
    with library().StandardCheckpointer() as checkpointer:
        checkpointer.save(place, {"w": jnp.ones(4, jnp.bfloat16)})
    with pytest.raises(ExchangeError, match="NumPy has no bfloat16"):
        import_checkpoint(place, tmp_path / "checkpoints")
    assert import_checkpoint(place, tmp_path / "checkpoints", arrays="torch").tensors == 1


Change = Callable[[dict[str, Any]], Any]


def renamed(*keys: str) -> Change:
    def change(tree: dict[str, Any]) -> None:
        tree["('w',)"]["key_metadata"] = [{"key": key, "key_type": 2} for key in keys]

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (renamed("gone"), "the array 'gone' cannot be read"),
        (renamed("..", "..", "etc"), "cannot be read"),
        (renamed("v"), "two values into one place"),
        (renamed("v", "x"), "cannot be read"),
        (renamed(), "a name that makes no sense"),
        (lambda tree: tree["('w',)"].update(value_metadata={}), "an entry that makes no sense"),
        (lambda tree: tree.update({"('x',)": 3}), "a name that makes no sense"),
    ],
)
def test_a_hostile_tree_is_refused(tmp_path: Path, change: Change, why: str) -> None:
    library()
    exported(tmp_path, {"v": np.ones(2), "w": np.ones(3)})
    path = tmp_path / "orbax" / "_METADATA"
    document = json.loads(path.read_text())
    change(document["tree_metadata"])
    path.write_text(json.dumps(document))
    with pytest.raises(ExchangeError, match=why):
        import_checkpoint(tmp_path / "orbax", tmp_path / "imported")
    assert not (tmp_path / "imported" / "step-0").exists()


def test_a_damaged_store_and_a_link_are_refused(tmp_path: Path) -> None:
    library()
    exported(tmp_path, {"w": np.random.default_rng(1).random(5_000)})
    (tmp_path / "orbax" / "more").symlink_to(tmp_path)
    with pytest.raises(ExchangeError, match="more is a link"):
        import_checkpoint(tmp_path / "orbax", tmp_path / "imported")
    (tmp_path / "orbax" / "more").unlink()
    largest = max((tmp_path / "orbax" / "d").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:1_000])
    with pytest.raises(ExchangeError, match="cannot be read"):
        import_checkpoint(tmp_path / "orbax", tmp_path / "imported")
    assert not (tmp_path / "imported" / "step-0").exists()


def test_a_folder_without_a_tree_is_no_checkpoint(tmp_path: Path) -> None:
    library()
    with pytest.raises(ExchangeError, match="has no _METADATA"):
        import_checkpoint(tmp_path, tmp_path / "imported", format="orbax")
