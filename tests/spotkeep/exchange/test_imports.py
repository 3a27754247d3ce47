"""An import makes a whole checkpoint that a script restores, or none, and the one that it replaces stays until then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotkeep import Checkpointer
from spotkeep.disk import staged_state
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.errors import ExchangeError, SaveError
from spotkeep.exchange import export_checkpoint, import_checkpoint, imports
from spotkeep.state.encoding import encode_state

STATE: dict[str, Any] = {"model": {"w": np.arange(5, dtype="f4")}, "epoch": 3}


def exported(tmp_path: Path, *, state: dict[str, Any], step: int = 1) -> Path:
    CheckpointDirectory(tmp_path / "from").write(encode_state(state), step=step)
    export_checkpoint(tmp_path / "from", tmp_path / "x.pt", format="torch", step=step, overwrite=True)
    return tmp_path / "x.pt"


def weights(path: Path, step: int) -> list[float]:
    found: list[float] = CheckpointDirectory(path).read(step).state["model"]["w"].tolist()
    return found


@pytest.mark.torch
def test_weights_of_a_hub_come_into_a_module_that_restores_nothing_else(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    trained = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    library.save_file(trained.state_dict(), tmp_path / "model.safetensors")
    import_checkpoint(tmp_path, tmp_path / "checkpoints")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    assert Checkpointer({"model": model}, directory=tmp_path / "checkpoints").restore() == 0
    for name, value in trained.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_an_existing_checkpoint_is_replaced_only_on_request(tmp_path: Path) -> None:
    source = exported(tmp_path, state=STATE)
    import_checkpoint(source, tmp_path / "to", step=4, arrays="numpy")
    source = exported(tmp_path, state={**STATE, "model": {"w": np.zeros(2, "f4")}}, step=2)
    with pytest.raises(ExchangeError, match="is there already"):
        import_checkpoint(source, tmp_path / "to", step=4, arrays="numpy")
    assert weights(tmp_path / "to", 4) == [0, 1, 2, 3, 4]
    import_checkpoint(source, tmp_path / "to", step=4, arrays="numpy", overwrite=True)
    assert weights(tmp_path / "to", 4) == [0, 0]


def test_the_one_to_be_replaced_stays_where_the_new_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = exported(tmp_path, state=STATE)
    import_checkpoint(source, tmp_path / "to", step=4, arrays="numpy")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(imports.LocalStorage, "write_at", full)
    with pytest.raises(SaveError, match="No space left on device"):
        import_checkpoint(source, tmp_path / "to", step=4, arrays="numpy", overwrite=True)
    monkeypatch.undo()
    assert weights(tmp_path / "to", 4) == [0, 1, 2, 3, 4]
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["step-4"]


def test_a_large_state_is_several_files_in_which_every_byte_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert imports.MAX_FILE_BYTES == staged_state.MAX_FILE_BYTES
    monkeypatch.setattr(imports, "MAX_FILE_BYTES", 2**20)
    state = {"model": {name: np.random.default_rng(3).random(size) for name, size in (("w", 200_000), ("v", 70_001))}}
    import_checkpoint(exported(tmp_path, state=state), tmp_path / "to", arrays="numpy")
    assert len(list((tmp_path / "to" / "step-0").glob("data-*.bin"))) == 3
    with InspectedCheckpoint(tmp_path / "to", 0) as checkpoint:
        assert list(checkpoint.damage()) == []
    found = CheckpointDirectory(tmp_path / "to").read(0).state
    for name, array in state["model"].items():
        np.testing.assert_array_equal(found["model"][name], array)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"step": -1}, "the step is -1"),
        ({"step": True}, "the step is True"),
        ({"arrays": "pandas"}, "give torch or numpy"),
        ({"format": "pickle"}, "no format 'pickle'"),
        ({"prefix": "nothing"}, "no names at the top"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ExchangeError, match=why):
        import_checkpoint(exported(tmp_path, state=STATE), tmp_path / "to", **changes)
    assert not (tmp_path / "to").exists()


def test_a_folder_of_a_runs_writers_takes_no_import(tmp_path: Path) -> None:
    CheckpointDirectory(tmp_path / "to").begin((1, 0), step=None)
    with pytest.raises(ExchangeError, match="holds checkpoints of a run's writers, and no reader would take"):
        import_checkpoint(exported(tmp_path, state=STATE), tmp_path / "to")


def test_a_file_of_another_kind_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    for source in (tmp_path / "x", tmp_path, tmp_path / "gone"):
        with pytest.raises(ExchangeError, match="is no checkpoint of DCP, Orbax or safetensors"):
            import_checkpoint(source, tmp_path / "to")
    with pytest.raises(ExchangeError, match=r"with another name, pass format='safetensors' or format='torch'$"):
        import_checkpoint(tmp_path / "x", tmp_path / "to")
    with pytest.raises(ExchangeError, match="there is no checkpoint in"):
        export_checkpoint(tmp_path, tmp_path / "y", format="torch")
