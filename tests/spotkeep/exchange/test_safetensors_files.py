"""Safetensors are read back to the bit, in one file or several, and a hostile file is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.errors import ExchangeError
from spotkeep.exchange import export_checkpoint, import_checkpoint
from spotkeep.exchange.safetensors_files import read_safetensors
from spotkeep.state.encoding import encode_state

STATE = {
    "model": {f"layer{number}": np.arange(2_000, dtype="f4") + number for number in range(5)},
    "wide": np.arange(9_000.0),
}


def folder_of(tmp_path: Path, *, shard_bytes: int) -> Path:
    CheckpointDirectory(tmp_path / "checkpoints").write(encode_state(STATE), step=3)
    target = tmp_path / "exported"
    export_checkpoint(tmp_path / "checkpoints", target, format="safetensors", shard_bytes=shard_bytes)
    return target


def test_a_large_state_is_several_files_and_an_index_that_the_library_reads(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    folder = folder_of(tmp_path, shard_bytes=20_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert files == [f"model-0000{number}-of-00004.safetensors" for number in range(1, 5)]
    assert index["metadata"]["total_size"] == 5 * 8_000 + 72_000
    found = {name: library.load_file(folder / file)[name] for name, file in index["weight_map"].items()}
    assert found.keys() == {*(f"model.{name}" for name in STATE["model"]), "wide"}
    np.testing.assert_array_equal(found["wide"], STATE["wide"])
    np.testing.assert_array_equal(found["model.layer4"], STATE["model"]["layer4"])


def test_one_file_of_a_folder_needs_no_index(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, shard_bytes=10**6)
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("shard_bytes", [20_000, 10**6])
def test_a_folder_is_imported_with_one_part_of_its_names(tmp_path: Path, shard_bytes: int) -> None:
    folder = folder_of(tmp_path, shard_bytes=shard_bytes)
    made = import_checkpoint(folder, tmp_path / "imported", prefix="model.", arrays="numpy")
    assert (made.format, made.tensors, made.left_out) == ("safetensors", 5, ())
    state = CheckpointDirectory(tmp_path / "imported").read(0).state
    assert state.keys() == {"model"}
    for name, array in STATE["model"].items():
        np.testing.assert_array_equal(state["model"][name], array)


def test_files_of_the_library_are_imported(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    state = {"b": np.arange(5, dtype="i8"), "a": np.ones((2, 0), "f2"), "c": np.array(True)}
    library.save_file(state, tmp_path / "x.safetensors", metadata={"by": "me"})
    import_checkpoint(tmp_path / "x.safetensors", tmp_path / "imported", under="weights", arrays="numpy", step=4)
    found = CheckpointDirectory(tmp_path / "imported").read(4).state["weights"]
    for name, array in state.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def raw_file(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(first: int, end: int, **changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [(end - first) // 4], "data_offsets": [first, end], **changes}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no file of safetensors"),
        (b"\xff" * 20, "its header has"),
        ((10**9).to_bytes(8, "little") + b"{}", "its header has"),
        (raw_file(b"[1]", b""), "no file of safetensors"),
        (raw_file(b"{", b""), "no file of safetensors"),
        (raw_file(b"[" * 100_000, b""), "no file of safetensors"),
        (raw_file(b'{"a":1,"a":2}', b""), "a name stands in it twice"),
        (raw_file({"__metadata__": {"a": 1}}, b""), "no texts"),
        (raw_file({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), "overlap or leave a hole"),
        (raw_file({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)), "overlap or leave a hole"),
        (raw_file({"a": entry(4, 8)}, bytes(8)), "overlap or leave a hole"),
        (raw_file({"a": entry(0, 8)}, bytes(4)), "its arrays end at"),
        (raw_file({"a": entry(0, 8)}, bytes(12)), "its arrays end at"),
        (raw_file({"a": entry(0, 8, shape=[2**40])}, bytes(8)), "does not have the bytes of its shape"),
        (raw_file({"a": entry(0, 8, shape=[2, -1])}, bytes(8)), "makes no sense"),
        (raw_file({"a": entry(0, 8, shape=[True, 2])}, bytes(8)), "makes no sense"),
        (raw_file({"a": entry(8, 0)}, bytes(8)), "makes no sense|does not have"),
        (raw_file({"a": entry(0, 8, dtype="F4")}, bytes(8)), "is not read here"),
        (raw_file({"a": entry(0, 8, dtype=["F32"])}, bytes(8)), "is not read here"),
        (raw_file({"a": entry(0, 8, more=1)}, bytes(8)), "makes no sense"),
        (raw_file({"a": None}, b""), "makes no sense"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, raw: bytes, why: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ExchangeError, match=why):
        import_checkpoint(path, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


def with_index(change: Callable[[dict[str, str]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["weight_map"] = change(index["weight_map"])
        path.write_text(json.dumps(index))

    return apply


def linked(folder: Path) -> None:
    (first, *_) = sorted(folder.glob("*.safetensors"))
    moved = folder.parent / "elsewhere"
    first.rename(moved)
    first.symlink_to(moved)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_index(lambda names: dict.fromkeys(names, "../x.safetensors")), "no file beside it"),
        (with_index(lambda names: dict.fromkeys(names, "/etc/x.safetensors")), "no file beside it"),
        (with_index(lambda names: dict.fromkeys(names, 3)), "no file beside it"),
        (with_index(lambda names: dict.fromkeys(names, "gone.safetensors")), "gone.safetensors cannot be opened"),
        (with_index(lambda _: {}), "no weight_map"),
        (with_index(lambda names: {**names, "more": names["wide"]}), "does not have the arrays that the index names"),
        (linked, "cannot be opened"),
    ],
)
def test_an_index_that_leads_elsewhere_or_lies_is_refused(
    tmp_path: Path, change: Callable[[Path], None], why: str
) -> None:
    folder = folder_of(tmp_path, shard_bytes=20_000)
    change(folder)
    with pytest.raises(ExchangeError, match=why):
        import_checkpoint(folder, tmp_path / "imported")


def test_a_file_that_is_cut_off_while_it_is_read_leaves_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw_file({"a": entry(0, 2**22)}, bytes(2**22)))
    with read_safetensors(path) as (found, _):
        pieces = found["a"].pieces()
        next(pieces)
        path.write_bytes(path.read_bytes()[: 2**21])
        with pytest.raises(ExchangeError, match="cut off"):
            list(pieces)
