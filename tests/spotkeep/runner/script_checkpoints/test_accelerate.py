"""The folders of accelerate's `save_state`, by the real one: whole ones stay, and half ones do not."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from spotkeep.runner.script_checkpoints.putting_aside import put_aside_cut_off  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.long]

NEWEST = "checkpoint_1"


class Counter:
    """An object of the script's own."""

    def state_dict(self):
        return {"count": 1}

    def load_state_dict(self, state):
        pass


def prepared(folder, *, models=2):
    """Prepare an accelerator with automatic names."""
    project = accelerate.utils.ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True)
    accelerator = accelerate.Accelerator(cpu=True, project_config=project)
    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, shuffle=True)
    for _ in range(models):
        model = accelerator.prepare(torch.nn.Linear(2, 2))
        optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters()))
        accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer, 1), loader)
    accelerator.register_for_checkpointing(Counter())
    return accelerator


def save_twice(folder, *, models=2, **options):
    """Save twice, and give where to."""
    accelerator = prepared(folder, models=models)
    for _ in range(2):
        accelerator.save_state(**options)
    return folder / "checkpoints"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_twice(tmp_path_factory.mktemp("saved"))


@pytest.mark.parametrize("safe", [True, False])
def test_whatever_is_missing_or_cut_the_one_before_is_the_newest(unnoticed, only_arrived, tmp_path_factory, safe):
    saved = save_twice(tmp_path_factory.mktemp("saved"), safe_serialization=safe)
    assert list(unnoticed(saved, NEWEST)) == []
    assert list(only_arrived(saved, NEWEST)) == []


def test_one_that_the_script_names_is_found_by_what_is_in_it(copied, saved):
    checkpoints = copied(saved)
    (checkpoints.path / "checkpoint_0").rename(checkpoints.path / "epoch_3_best")
    (checkpoints.path / "checkpoint_1").rename(checkpoints.path / "last")
    assert checkpoints.put_aside() == {}
    (checkpoints.path / "last" / "random_states_0.pkl").unlink()
    (checkpoints.path / "epoch_3_best" / "optimizer.bin").unlink()
    assert checkpoints.put_aside() == {
        "epoch_3_best": "optimizer 0 is missing", "last": "random_states_0.pkl is missing",
    }  # fmt: skip


def test_without_models_there_are_no_weights_to_be_missed(copied, tmp_path_factory):
    assert copied(save_twice(tmp_path_factory.mktemp("saved"), models=0)).put_aside() == {}


def test_weights_that_a_hook_of_the_script_writes_are_weights(copied, saved):
    checkpoints = copied(saved)
    for folder in checkpoints.path.iterdir():
        for name in ("model.safetensors", "model_1.safetensors"):
            (folder / "unet").mkdir(exist_ok=True)
            (folder / name).rename(folder / "unet" / f"diffusion_{name}")
    assert checkpoints.put_aside() == {}
    shutil.rmtree(checkpoints.path / "checkpoint_0")
    shutil.rmtree(checkpoints.path / NEWEST / "unet")
    assert checkpoints.put_aside() == {NEWEST: "its weights are missing"}


def test_a_later_one_of_fewer_ranks_is_whole(copied, saved):
    checkpoints = copied(saved)
    state = checkpoints.path / "checkpoint_0" / "random_states_0.pkl"
    shutil.copy(state, state.with_name("random_states_1.pkl"))
    assert checkpoints.put_aside() == {}
    shutil.copy(state, checkpoints.path / NEWEST / "random_states_2.pkl")
    assert checkpoints.put_aside() == {NEWEST: "random_states_1.pkl is missing"}


def test_weights_in_several_files_go_together(copied, tmp_path):
    model = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(3)))
    accelerate.Accelerator(cpu=True).save_model(model, str(tmp_path / "saved" / "model"), max_shard_size="200KB")
    checkpoints = copied(tmp_path / "saved")
    assert checkpoints.put_aside() == {}
    (checkpoints.path / "model" / "model-00002-of-00003.safetensors").unlink()
    assert checkpoints.put_aside() == {
        "model/model.safetensors.index.json": "model-00002-of-00003.safetensors, which model.safetensors.index.json "
        "names, is missing"
    }


def test_what_the_script_does_not_prepare_any_more_is_not_missing(copied, saved):
    checkpoints = copied(saved)
    shutil.copytree(checkpoints.path / NEWEST, checkpoints.path / "checkpoint_2")
    for number in (1, 2):
        (checkpoints.path / f"checkpoint_{number}" / "scheduler_1.bin").unlink()
    assert checkpoints.put_aside() == {}


def test_a_script_goes_on_from_the_newest_whole_one(tmp_path):
    """accelerate's own way: the folder with the largest number."""
    folder = save_twice(tmp_path / "project")
    (folder / NEWEST / "scheduler.bin").unlink()
    with pytest.raises(FileNotFoundError):
        prepared(tmp_path / "project").load_state()
    put_aside_cut_off(folder, tmp_path / "aside")
    prepared(tmp_path / "project").load_state()
    assert [path.name for path in folder.iterdir()] == ["checkpoint_0"]
