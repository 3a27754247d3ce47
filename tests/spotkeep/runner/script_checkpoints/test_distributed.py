"""What several ranks write, by torch's own writers: whole ones stay, and half ones do not."""

from __future__ import annotations

import os
import pickle

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.filesystem import SerializationFormat  # noqa: E402

from spotkeep.runner.script_checkpoints.putting_aside import put_aside_cut_off  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]

WRITERS = {
    "as it is": {},
    "a file for each tensor": {"single_file_per_rank": False},
    "in threads": {"single_file_per_rank": False, "thread_count": 2},
    "not synced": {"sync_files": False},
    "as safetensors": {"serialization_format": SerializationFormat.SAFETENSORS},
}


def save(path, *, rows=20, step=8, **options):
    state = {"model": torch.nn.Linear(30, rows).state_dict()}
    if "serialization_format" not in options:
        state |= {"step": step, "seen": torch.arange(5)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(str(path), **options))


@pytest.mark.parametrize("how", WRITERS)
def test_whatever_is_missing_or_cut_the_one_before_is_the_newest(unnoticed, only_arrived, tmp_path_factory, how):
    folder = tmp_path_factory.mktemp("dcp")
    for step in ("4", "8"):
        save(folder / step, **WRITERS[how])
    assert list(unnoticed(folder, "8")) == []
    assert list(only_arrived(folder, "8")) == []


def test_data_of_another_save_are_no_data_of_this(copied, tmp_path):
    for name, rows in (("4", 20), ("8", 20), ("other", 21)):
        save(tmp_path / "dcp" / name, rows=rows)
    checkpoints = copied(tmp_path / "dcp")
    (checkpoints.path / "other" / "__0_0.distcp").rename(checkpoints.path / "8" / "__0_0.distcp")
    assert set(checkpoints.put_aside()) == {"8", "other"}


def test_what_lightning_keeps_beside_the_shards_belongs_to_them(copied, tmp_path):
    for step in (4, 8):
        save(tmp_path / "lightning" / f"epoch=0-step={step}.ckpt")
        torch.save({"global_step": step}, tmp_path / "lightning" / f"epoch=0-step={step}.ckpt" / "meta.pt")
    checkpoints = copied(tmp_path / "lightning")
    assert checkpoints.put_aside() == {}
    (checkpoints.path / "epoch=0-step=8.ckpt" / "meta.pt").unlink()
    assert checkpoints.put_aside() == {"epoch=0-step=8.ckpt": "its meta.pt is missing"}


def test_a_folder_within_a_checkpoint_of_the_trainer_is_a_part_of_it(copied, tmp_path):
    for step in (4, 8):
        folder = tmp_path / "fsdp" / f"checkpoint-{step}"
        save(folder / "pytorch_model_fsdp_0")
        save(folder / "optimizer_0")
        for name in ("scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
            torch.save({}, folder / name)
        (folder / "trainer_state.json").write_text("{}")
    checkpoints = copied(tmp_path / "fsdp")
    assert checkpoints.put_aside() == {}
    (checkpoints.path / "checkpoint-8" / "optimizer_0" / ".metadata").unlink()
    assert checkpoints.put_aside() == {"checkpoint-8": "optimizer_0: its .metadata is missing"}


class Hostile:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


def test_nothing_of_the_metadata_is_executed(copied, tmp_path):
    save(tmp_path / "dcp" / "8")
    (tmp_path / "dcp" / "8" / ".metadata").write_bytes(pickle.dumps(Hostile()))
    (tmp_path / "dcp" / "8" / "model.pkl").write_bytes(pickle.dumps(Hostile()))
    assert copied(tmp_path / "dcp").put_aside() == {}


def test_deepspeeds_own_file_names_the_newest_whole_one(copied, tmp_path):
    for step in (4, 8):
        (tmp_path / "deepspeed" / f"global_step{step}").mkdir(parents=True)
        torch.save({}, tmp_path / "deepspeed" / f"global_step{step}" / "mp_rank_00_model_states.pt")
    (tmp_path / "deepspeed" / "latest").write_text("global_step8")
    for lost, latest in (("global_step4", "global_step8"), ("global_step8", "global_step4")):
        folder = copied(tmp_path / "deepspeed").path
        os.truncate(folder / lost / "mp_rank_00_model_states.pt", 100)
        put_aside_cut_off(folder, tmp_path / "aside")
        assert {path.name for path in folder.iterdir()} == {"latest", latest}
        assert (folder / "latest").read_text() == latest


def deepspeed(folder, *, ranks=2):
    """Write files with the names that DeepSpeed's ZeRO gives them."""
    for step in (4, 8):
        tag = folder / f"checkpoint-{step}" / f"global_step{step}"
        tag.mkdir(parents=True)
        torch.save({}, tag / "mp_rank_00_model_states.pt")
        for rank in range(ranks):
            torch.save({}, tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
            torch.save({}, tag.parent / f"rng_state_{rank}.pth")
        (tag.parent / "latest").write_text(tag.name)
        (tag.parent / "zero_to_fp32.py").write_text("")
        (tag.parent / "trainer_state.json").write_text("{}")


def test_deepspeeds_part_in_the_trainers_folder(copied, tmp_path):
    deepspeed(tmp_path / "deepspeed")
    assert copied(tmp_path / "deepspeed").put_aside() == {}
    for lost, problem in [
        ("latest", "its latest is missing"),
        ("global_step8/mp_rank_00_model_states.pt", "the states of its model are missing"),
        ("global_step8/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "the states of rank 0 are missing"),
        ("rng_state_0.pth", "rng_state_0.pth is missing"),
    ]:
        checkpoints = copied(tmp_path / "deepspeed")
        (checkpoints.path / "checkpoint-8" / lost).unlink()
        [(name, found)] = checkpoints.put_aside().items()
        assert (name, found.rpartition(": ")[2]) == ("checkpoint-8", problem)


def test_lightnings_folder_of_deepspeed_goes_as_a_whole(copied, tmp_path):
    for step in (4, 8):
        folder = tmp_path / "lightning" / f"epoch=0-step={step}.ckpt"
        (folder / "checkpoint").mkdir(parents=True)
        torch.save({}, folder / "checkpoint" / "mp_rank_00_model_states.pt")
        torch.save({}, folder / "checkpoint" / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
        (folder / "latest").write_text("checkpoint")
        (folder / "zero_to_fp32.py").write_text("")
    assert copied(tmp_path / "lightning").put_aside() == {}
    for lost in ("latest", "checkpoint/mp_rank_00_model_states.pt"):
        checkpoints = copied(tmp_path / "lightning")
        (checkpoints.path / "epoch=0-step=8.ckpt" / lost).unlink()
        assert list(checkpoints.put_aside()) == ["epoch=0-step=8.ckpt"]
