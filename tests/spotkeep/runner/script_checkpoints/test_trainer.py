"""The `checkpoint-<step>` of Hugging Face's Trainer, by the real one: whole ones stay, and half ones do not."""

from __future__ import annotations

import functools
import json
import shutil

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import save_file  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.long]

NEWEST = "checkpoint-4"
HARMLESS = {"config.json missing", "training_args.bin missing"}
"""A resume takes neither of them."""
STATE = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


def train(folder, *, plain=False, shard_size=None, **options):
    """Train four steps and save after each second one."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=20, **sizes))
    if shard_size:
        model.save_pretrained = functools.partial(model.save_pretrained, max_shard_size=shard_size)
    if plain:
        model = Plain(model)
    rows = [
        {"input_ids": [number % 20, 3, 4], "attention_mask": [1, 1, 1], "labels": number % 2} for number in range(8)
    ]
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=2, max_steps=4, save_steps=2, use_cpu=True, report_to=[],
        disable_tqdm=True, **options,
    )  # fmt: skip
    transformers.Trainer(model, arguments, train_dataset=rows).train()
    return folder


class Plain(torch.nn.Module):
    """No model of transformers: the Trainer then writes nothing but the weights."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, labels):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return train(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def without_state(tmp_path_factory):
    return train(tmp_path_factory.mktemp("model-only"), save_only_model=True)


def test_whatever_is_missing_or_cut_the_one_before_is_the_newest(unnoticed, only_arrived, full):
    assert set(unnoticed(full, NEWEST)) == HARMLESS
    assert list(only_arrived(full, NEWEST)) == []


def test_so_it_is_with_weights_in_shards_and_without_transformers_model(unnoticed, tmp_path_factory):
    sharded = train(tmp_path_factory.mktemp("sharded"), shard_size="10KB")
    assert len(list((sharded / NEWEST).glob("model-*-of-*.safetensors"))) > 1
    assert set(unnoticed(sharded, NEWEST)) == HARMLESS
    assert set(unnoticed(train(tmp_path_factory.mktemp("plain"), plain=True), NEWEST)) <= HARMLESS


def test_one_that_was_saved_without_its_state_is_whole(unnoticed, without_state):
    assert set(unnoticed(without_state, NEWEST)) == HARMLESS


def test_without_a_checkpoint_before_its_arguments_say_whether_the_state_is_missing(copied, full, without_state):
    for series, lost, problem in [
        (full, STATE[:1], "its optimizer is missing"),
        (full, STATE[1:2], "its scheduler.pt is missing"),
        (full, STATE[2:], "its random state is missing"),
        (full, STATE, "its optimizer is missing"),
        (without_state, (), None),
    ]:
        checkpoints = copied(series)
        shutil.rmtree(checkpoints.path / "checkpoint-2")
        for name in lost:
            (checkpoints.path / NEWEST / name).unlink()
        assert checkpoints.put_aside() == ({NEWEST: problem} if problem else {})


def test_what_a_script_leaves_out_each_time_is_not_missing(copied, full):
    checkpoints = copied(full)
    for step in (2, 4):
        (checkpoints.path / f"checkpoint-{step}" / "optimizer.pt").unlink()
    assert checkpoints.put_aside() == {}


def test_one_that_was_saved_with_its_state_after_some_without_is_whole_and_the_other_way_round(
    copied, full, without_state
):
    for first, second in ((full, without_state), (without_state, full)):
        checkpoints = copied(first)
        shutil.rmtree(checkpoints.path / NEWEST)
        shutil.copytree(second / NEWEST, checkpoints.path / NEWEST)
        assert checkpoints.put_aside() == {}


def test_of_several_ranks_each_has_its_random_state(copied, full):
    checkpoints = copied(full)
    for folder in checkpoints.path.iterdir():
        for rank in range(3):
            shutil.copy(folder / "rng_state.pth", folder / f"rng_state_{rank}.pth")
        (folder / "rng_state.pth").unlink()
    assert checkpoints.put_aside() == {}
    (checkpoints.path / NEWEST / "rng_state_1.pth").unlink()
    assert checkpoints.put_aside() == {NEWEST: "rng_state_1.pth is missing"}
    # The last one is missed by what its arguments say of the number of processes.
    (checkpoints.path / NEWEST / "rng_state_2.pth").rename(checkpoints.path / NEWEST / "rng_state_1.pth")
    assert checkpoints.put_aside() == {}
    torch.save({"save_strategy": "steps", "num_processes": 3}, checkpoints.path / NEWEST / "training_args.bin")
    assert checkpoints.put_aside() == {NEWEST: "rng_state_2.pth is missing"}


def test_a_script_that_saves_the_model_by_itself_each_time_has_no_state_to_be_missed(copied, without_state):
    checkpoints = copied(without_state)
    for folder in checkpoints.path.iterdir():
        (folder / "trainer_state.json").unlink()
    assert checkpoints.put_aside() == {}


def test_the_parts_of_an_adapter_go_together(copied, full):
    checkpoints = copied(full)
    for folder in checkpoints.path.iterdir():
        (folder / "model.safetensors").unlink()
        (folder / "config.json").unlink()
        save_file({"lora_A": torch.ones(2)}, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert checkpoints.put_aside() == {}
    for name, problem in [
        ("adapter_config.json", "adapter_config.json is missing"),
        ("adapter_model.safetensors", "its weights are missing"),
    ]:
        content = (checkpoints.path / NEWEST / name).read_bytes()
        (checkpoints.path / NEWEST / name).unlink()
        assert checkpoints.put_aside() == {NEWEST: problem}
        (checkpoints.path / NEWEST / name).write_bytes(content)


def test_folders_of_that_name_that_no_trainer_wrote_stay(copied, tmp_path):
    theirs = tmp_path / "theirs"
    for name in ("model.pt", "optimizer.pt", "scheduler.pt"):
        (theirs / "checkpoint-1").mkdir(parents=True, exist_ok=True)
        torch.save({"step": 1}, theirs / "checkpoint-1" / name)
    (theirs / "checkpoint-2").mkdir()
    (theirs / "checkpoint-2" / "config.json").write_text('{"lr": 0.1}')
    (theirs / "checkpoint-3").mkdir()
    (theirs / "checkpoint-3" / "config.json").write_text('{"lr": 0.1}')
    torch.save({}, theirs / "checkpoint-3" / "mm_projector.bin")
    (theirs / "checkpoint-4").mkdir()
    torch.save({"arguments": [1]}, theirs / "checkpoint-4" / "training_args.bin")  # of a script without a Trainer
    torch.save({}, theirs / "checkpoint-4" / "pytorch_model.bin")
    assert copied(theirs).put_aside() == {}


def test_a_script_goes_on_from_the_newest_whole_one(copied, full):
    """The Trainer's own way to find the newest: what is left is what it finds, and can read."""
    checkpoints = copied(full)
    (checkpoints.path / NEWEST / "model.safetensors").unlink()
    [gone] = checkpoints.put_aside()
    shutil.rmtree(checkpoints.path / gone)
    last = transformers.trainer_utils.get_last_checkpoint(str(checkpoints.path))
    assert json.loads((checkpoints.path / last / "trainer_state.json").read_text())["global_step"] == 2
