"""Checkpoints of torch.distributed.checkpoint: its own loader reads ours, and ours come from its own, to the bit."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.errors import ExchangeError
from spotkeep.exchange import dcp, export_checkpoint, import_checkpoint
from spotkeep.exchange.elements import Array
from spotkeep.exchange.pickles import Call, Global, Instance, read_pickle, written_pickle
from spotkeep.state.encoding import encode_state

RANKS = Path(__file__).with_name("dcp_on_ranks.py")


def saved(tmp_path: Path, state: dict[str, Any]) -> Path:
    CheckpointDirectory(tmp_path / "checkpoints").write(encode_state(state), step=2)
    export_checkpoint(tmp_path / "checkpoints", tmp_path / "dcp", format="dcp")
    return tmp_path / "dcp"


def trained() -> tuple[Any, Any]:
    import torch

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("chunk_bytes", [2**26, 100])
def test_its_loader_reads_what_was_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as library

    monkeypatch.setattr(dcp, "_CHUNK_BYTES", chunk_bytes)
    model, optimizer = trained()
    more = {"tiny": torch.arange(5).to(torch.float8_e4m3fn), "empty": torch.zeros(0, 3), "number": torch.tensor(4.0)}
    state = {"model": model, "optimizer": optimizer, "more": more, "epoch": 3, "list": [torch.ones(2), {"a": "b"}]}
    folder = saved(tmp_path, state)
    fresh, fresh_optimizer = trained()
    torch.nn.init.zeros_(fresh[0].weight)
    loaded = {
        "model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()},
        "optimizer": _zeros(fresh_optimizer.state_dict()),
        "more": _zeros(more),
        "epoch": None,
        "list": [torch.zeros(2), {"a": ""}],
    }
    library.load(loaded, checkpoint_id=folder)
    assert (loaded["epoch"], loaded["list"][1]) == (3, {"a": "b"})
    assert torch.equal(loaded["list"][0], torch.ones(2))
    for name, value in model.state_dict().items():
        assert torch.equal(loaded["model"][name], value)
    assert str(loaded["optimizer"]) == str(optimizer.state_dict())
    for name, value in more.items():
        assert torch.equal(loaded["more"][name].reshape(-1).view(torch.uint8), value.reshape(-1).view(torch.uint8))


def _zeros(state: Any) -> Any:
    import torch

    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state)
    if isinstance(state, dict):
        return {key: _zeros(value) for key, value in state.items()}
    return [_zeros(value) for value in state] if isinstance(state, list) else state


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_script_goes_on_from_one_of_its_checkpoints(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch.distributed.checkpoint as library

    from spotkeep import Checkpointer

    model, optimizer = trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": {"epoch": 3}}
    library.save(state, checkpoint_id=tmp_path / "dcp")
    made = import_checkpoint(tmp_path / "dcp", tmp_path / "checkpoints", step=40)
    assert (made.format, made.left_out) == ("dcp", ())
    fresh, fresh_optimizer = trained()
    with_zeros = {"model": fresh, "optimizer": fresh_optimizer, "done": {"epoch": 0}}
    fresh[0].weight.data.zero_()
    assert Checkpointer(with_zeros, directory=tmp_path / "checkpoints").restore() == 40
    assert with_zeros["done"] == {"epoch": 3}
    assert str(fresh_optimizer.state_dict()) == str(optimizer.state_dict())
    for name, value in model.state_dict().items():
        assert (fresh.state_dict()[name] == value).all()


def on_ranks(count: int, *arguments: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(RANKS), str(count), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.torch
@pytest.mark.long
def test_two_ranks_load_an_export_and_an_import_takes_the_parts_of_two_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    on_ranks(2, "save", str(tmp_path / "theirs"))
    assert len(list((tmp_path / "theirs").glob("*.distcp"))) == 2
    made = import_checkpoint(tmp_path / "theirs", tmp_path / "checkpoints", step=1)
    assert (made.tensors, made.left_out) == (5, ())
    export_checkpoint(tmp_path / "checkpoints", tmp_path / "ours", format="dcp")
    for count in (1, 2):
        on_ranks(count, "load", str(tmp_path / "ours"))


@pytest.mark.torch
@pytest.mark.long
def test_a_checkpoint_of_two_ranks_is_exported_whole(tmp_path: Path) -> None:
    """Tensors that are divided among the ranks are put together on the way, in each format."""
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    on_ranks(2, "ours", str(tmp_path / "checkpoints"))
    torch.manual_seed(0)
    rows, columns = torch.randn(7, 5), torch.randn(6, 9)
    expected = {"rows": rows, "columns": columns, "copied": rows, "few": rows[:1], "plain": rows}
    export_checkpoint(tmp_path / "checkpoints", tmp_path / "x.safetensors", format="safetensors")
    export_checkpoint(tmp_path / "checkpoints", tmp_path / "x.pt", format="torch")
    export_checkpoint(tmp_path / "checkpoints", tmp_path / "dcp", format="dcp")
    of_safetensors, of_torch = load_file(tmp_path / "x.safetensors"), torch.load(tmp_path / "x.pt", weights_only=True)
    for name, tensor in expected.items():
        assert torch.equal(of_safetensors[f"model.{name}"], tensor)
        assert torch.equal(of_torch["model"][name], tensor)
    for count in (1, 2):
        on_ranks(count, "load", str(tmp_path / "dcp"))


def test_what_is_written_is_read_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "_CHUNK_BYTES", 1000)
    state = {
        "w": np.arange(3_000, dtype="f4").reshape(30, 10, 10),
        "long": np.arange(40_000.0),
        "n": {"a": [1, 2], "b": (np.ones(2, "i8"), 3), "c": []},
        "optimizer": {"state": {0: {"m": np.ones(3, "f4")}}, "param_groups": [{"lr": 0.1, "params": [0]}]},
    }
    folder = saved(tmp_path, state)
    import_checkpoint(folder, tmp_path / "imported", arrays="numpy")
    found = CheckpointDirectory(tmp_path / "imported").read(0).state
    np.testing.assert_array_equal(found["w"], state["w"])
    np.testing.assert_array_equal(found["long"], state["long"])
    assert found["n"]["a"] == [1, 2]
    assert found["n"]["b"][1] == 3
    assert list(found["optimizer"]["state"]) == [0]
    assert found["optimizer"]["param_groups"] == [{"lr": 0.1, "params": [0]}]


def test_two_values_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match=r"two values have the name 'a\.b'"):
        saved(tmp_path, {"a": {"b": np.ones(1)}, "a.b": np.ones(1)})
    assert not (tmp_path / "dcp").exists()


Change = Callable[[Any], None]


def fields(value: Any, name: str) -> Any:
    return next(found for found in value.values() if found.function.name == name).state


def of_place(**changes: Any) -> Change:
    return lambda meta: fields(meta.state["storage_data"], "_StorageInfo").update(changes)


def of_tensor(change: Callable[[Any], None]) -> Change:
    return lambda meta: change(meta.state["state_dict_metadata"]["w"].state)


def size(*sizes: int) -> Call:
    return Call(Global("torch", "Size"), (sizes,))


def box(offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Instance:
    chunk = Global("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata")
    return Instance(chunk, (), {"offsets": size(*offsets), "sizes": size(*sizes)})


def _with_a_place_twice(meta: Any) -> None:
    (index, place), *_ = meta.state["storage_data"].items()
    meta.state["storage_data"][Instance(index.function, (), {"fqn": "again"})] = place


def _of_another_type(tensor: Any) -> None:
    tensor["properties"].state = (Global("torch", "int32"),)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (of_place(relative_path="../__0_0.distcp"), "no file beside it"),
        (of_place(relative_path="/etc/passwd"), "no file beside it"),
        (of_place(relative_path=".metadata"), "no file beside it"),
        (of_place(relative_path="gone.distcp"), "cannot be opened"),
        (of_place(relative_path=["__0_0.distcp"]), "makes no sense"),
        (of_place(offset=-1), "makes no sense"),
        (lambda meta: next(iter(meta.state["storage_data"])).state.update(fqn=["w"]), "makes no sense"),
        (_with_a_place_twice, "more bytes than its files"),
        (of_place(length=2**50), "more bytes than its files"),
        (of_place(offset=100), "no file of torch.save|cut off|no beginning"),
        (of_place(transform_descriptors=["zstd"]), "compressed or otherwise transformed"),
        (lambda meta: meta.state.update(storage_data=None), "names no places"),
        (lambda meta: meta.state["storage_data"].clear(), "the place of"),
        (lambda meta: meta.state.update(state_dict_metadata=3), "describes no state"),
        (lambda meta: meta.state["planner_data"].update(w=("n",), n=("n",)), "two values into one place"),
        (lambda meta: meta.state["planner_data"].update(w=("n", "x")), "two values into one place"),
        (lambda meta: meta.state["planner_data"].update(w=(1.5,)), "a path that makes no sense"),
        (of_tensor(lambda tensor: tensor["chunks"].clear()), "is not whole"),
        (of_tensor(lambda tensor: tensor["chunks"].append(tensor["chunks"][0])), "share elements"),
        (of_tensor(lambda tensor: tensor.update(chunks=[box((0, 0), (2, 2))])), "is not whole"),
        (of_tensor(lambda tensor: tensor.update(chunks=[box((0, 0), (9, 2))])), "beyond the shape"),
        (of_tensor(lambda tensor: tensor.update(size=size(6))), "dimensions|is not whole"),
        (of_tensor(lambda tensor: tensor.update(size=size(-1, 2))), "a shape that makes no sense"),
        (of_tensor(lambda tensor: tensor.update(size=(3, 2))), "a shape that makes no sense"),
        (
            of_tensor(lambda tensor: tensor.update(size=size(2**40, 2**20), chunks=[box((0, 0), (2**40, 2**20))])),
            "has fewer bytes than its shape",
        ),
        (of_tensor(_of_another_type), "another shape or type"),
    ],
)
def test_hostile_metadata_are_refused(tmp_path: Path, change: Change, why: str) -> None:
    folder = saved(tmp_path, {"w": np.arange(6, dtype="f4").reshape(3, 2), "n": 3})
    meta = read_pickle((folder / ".metadata").read_bytes())
    change(meta)
    (folder / ".metadata").write_bytes(written_pickle(meta))
    with pytest.raises(ExchangeError, match=why):
        import_checkpoint(folder, tmp_path / "imported")
    assert not (tmp_path / "imported" / "step-0").exists()


def test_metadata_that_would_run_code_run_none(tmp_path: Path) -> None:
    folder = saved(tmp_path, {"w": np.ones(2)})
    marker = tmp_path / "executed"

    class Hostile:
        def __reduce__(self) -> Any:
            return (Path.touch, (marker,))

    (folder / ".metadata").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ExchangeError, match="in the place of a Metadata"):
        import_checkpoint(folder, tmp_path / "imported")
    assert not marker.exists()


def test_an_altered_file_is_refused_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    folder = saved(tmp_path, {"w": np.arange(9_000, dtype="f4")})
    data = folder / "__0_0.distcp"
    raw = bytearray(data.read_bytes())
    raw[len(raw) // 2] ^= 1
    data.write_bytes(raw)
    with pytest.raises(ExchangeError, match="its checksum does not hold"):
        import_checkpoint(folder, tmp_path / "imported")
    assert list((tmp_path / "imported").iterdir()) == []


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = saved(tmp_path, {"w": np.ones(2)})
    (folder / "__0_0.distcp").rename(tmp_path / "elsewhere")
    (folder / "__0_0.distcp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ExchangeError, match="cannot be opened"):
        import_checkpoint(folder, tmp_path / "imported")


def test_memory_holds_a_piece_of_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "_CHUNK_BYTES", 2**20)
    folder = saved(tmp_path, {"w": np.zeros((1024, 2048), "f4")})
    with dcp.read_dcp(folder) as state:
        pieces = [len(piece) for piece in state["w"].pieces()]
        assert isinstance(state["w"], Array)
    assert (sum(pieces), max(pieces)) == (8 * 2**20, 2**20)
