"""Hugging Face's Trainer, interrupted again and again at any steps, ends with the weights of an undisturbed run."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")
trainer_jit_checkpoint = pytest.importorskip("transformers.trainer_jit_checkpoint")

from spotkeep import GlobalBatches, StateMismatchError, UsageError  # noqa: E402
from spotkeep.disk import checkpoint_directory  # noqa: E402
from spotkeep.disk.chunked_files import read_data_file  # noqa: E402
from spotkeep.integrations.transformers import train_resumably  # noqa: E402
from spotkeep.notices.notice import all_are_done, left_file  # noqa: E402
from spotkeep.runner.script_checkpoints.putting_aside import put_aside_cut_off  # noqa: E402
from tests.forking import environment_of_script, said_of_kinds  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.long]

IMAGES, BATCH, EPOCHS = 48, 8, 2
STEPS = EPOCHS * IMAGES // BATCH


class Digits(torch.utils.data.Dataset):
    """Rows of a digit as a sequence, with noise that is drawn while it is loaded."""

    def __init__(self):
        pixels, labels = load_digits(return_X_y=True)
        self.pixels, self.labels = torch.tensor(pixels[:IMAGES], dtype=torch.long), torch.tensor(labels[:IMAGES])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        noise = torch.randint(0, 2, self.pixels[index].shape)
        return {"input_ids": self.pixels[index] + noise, "labels": self.labels[index]}


class Stream(torch.utils.data.IterableDataset):
    """Gives items in an order that is drawn anew in each pass; each worker gives a part of them."""

    def __init__(self):
        self.digits = Digits()

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        order = torch.randperm(20)
        for index in order if worker is None else order[worker.id :: worker.num_workers]:
            yield self.digits[int(index)]


class StreamOfKnownLength(Stream):
    def __len__(self):
        return 20


class OwnGenerator(torch.utils.data.Sampler):
    """Shuffles with a generator of its own, which goes on from pass to pass, and counts the passes."""

    def __init__(self):
        self.generator = np.random.default_rng(3)
        self.passes = 0

    def __len__(self):
        return IMAGES

    def __iter__(self):
        self.passes += 1
        for index in self.generator.permutation(IMAGES):
            yield (int(index) + self.passes) % IMAGES


class StreamOfItsOwn(Stream):
    """Is shuffled by a generator of its own."""

    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(3)

    def __iter__(self):
        yield from (self.digits[int(index)] for index in self.generator.permutation(20))


class DiesAt(transformers.TrainerCallback):
    def __init__(self, step, signum=None):
        self.step, self.signum = step, signum

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            if self.signum is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.signum)


class Evaluations(transformers.TrainerCallback):
    """Keeps at which steps it was evaluated."""

    def __init__(self):
        self.steps = []

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]

    def on_evaluate(self, args, state, control, **_):
        self.steps.append(state.global_step)


class StopsEpochs(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_epoch_stop = state.global_step in (3, 4)


class Unfreezes(transformers.TrainerCallback):
    """Trains the head alone in the first epoch."""

    def on_train_begin(self, args, state, control, model, **_):
        model.bert.requires_grad_(False)

    def on_epoch_begin(self, args, state, control, model, **_):
        if state.epoch == 1:
            model.bert.requires_grad_(True)


def trainer(directory, *callbacks, data=Digits, sampler=None, own=(), **options):
    transformers.set_seed(5)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=10
    )
    arguments = {
        "output_dir": str(directory / "trainer"),
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": EPOCHS,
        "learning_rate": 0.01,
        "lr_scheduler_type": "cosine",
        "save_strategy": "no",
        "logging_steps": 5,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 5,
        **options,
    }
    made = transformers.Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=transformers.TrainingArguments(**arguments),
        train_dataset=data(),
        eval_dataset=Digits(),
        callbacks=[*(make() for make in own), *callbacks],
    )
    if sampler is not None:
        order = sampler()
        made._get_train_sampler = lambda *_: order
    return made


def weights(trained):
    return {name: value.numpy().tobytes() for name, value in trained.model.state_dict().items()}


def logged(trained):
    return [
        {name: entry[name] for name in entry if name in ("loss", "step", "grad_norm")}
        for entry in trained.state.log_history
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Gives the weights and the log of a run that nothing happens to; each is trained once, and read alone."""

    def train(**options):
        directory = tmp_path_factory.mktemp("undisturbed")
        trained = trainer(directory, **options)
        train_resumably(trained, directory=directory / "checkpoints", every_steps=4)
        return weights(trained), logged(trained)

    return functools.cache(train)


# What is trained, after which steps it is killed, and after which it gets a notice; 6 is the end of an epoch, and 4 has
# just been saved.
CASES = {
    "as it comes": ({}, {1, 4, 6}, {6, 11}),
    "accumulated": ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": BATCH // 2}, {5}, {6}),
    "evaluated": ({"eval_strategy": "steps", "eval_steps": 3}, {2}, {3, 6}),
    "evaluated each epoch": ({"eval_strategy": "epoch"}, {6}, {6}),
    "grouped": ({"train_sampling_strategy": "group_by_length"}, {6}, {4}),
    # 3 batches are a pass. With the gradients of two batches, 3 steps are two passes, and one pass ends in a step.
    "stream": ({"data": Stream, "max_steps": STEPS}, {2, 3}, {5, 9}),
    "stream, accumulated": ({"data": Stream, "max_steps": 7, "gradient_accumulation_steps": 2}, {1}, {2, 3}),
    "stream of known length": ({"data": StreamOfKnownLength, "eval_strategy": "epoch"}, {1}, {3, 4}),
    "stream with a generator": ({"data": StreamOfItsOwn, "max_steps": 8}, {5}, {2, 3, 4}),
    "sampler with a generator": ({"sampler": OwnGenerator, "num_train_epochs": 3}, {7}, {2, 6, 13}),
    "epochs that are stopped early": ({"own": (StopsEpochs,), "num_train_epochs": 3}, {5}, {3, 4, 7}),
    "gradual unfreezing": ({"own": (Unfreezes,)}, {7}, {2, 8}),
    "evaluated and logged at a time": ({"eval_strategy": "steps", "eval_steps": 5}, {4}, {5, 10}),
    "evaluated on start": ({"eval_on_start": True, "own": (Evaluations,)}, {1}, {7}),
}


@pytest.mark.parametrize(("options", "killed", "noticed"), CASES.values(), ids=CASES)
def test_interrupted_again_and_again_it_ends_with_the_same_bits(
    tmp_path, undisturbed, a_few_of, options, killed, noticed
):
    expected = undisturbed(**options)
    assert weights(trainer(tmp_path)) != expected[0]
    train = {"directory": tmp_path / "checkpoints", "every_steps": 4}
    drawn = set() if options else {*a_few_of(range(1, STEPS), 2)}
    for step in sorted(killed | noticed | drawn):
        if step in killed | drawn:
            with pytest.raises(KeyboardInterrupt):
                train_resumably(trainer(tmp_path, DiesAt(step), **options), **train)
        if step in noticed | drawn:
            with pytest.raises(SystemExit) as ending:
                train_resumably(trainer(tmp_path, DiesAt(step, signal.SIGTERM), **options), **train)
            assert ending.value.code == 75
            assert (tmp_path / "checkpoints" / f"step-{step}").is_dir(), "no step is lost"
    resumed = trainer(tmp_path, **options)
    train_resumably(resumed, **train)
    assert (weights(resumed), logged(resumed)) == expected


@pytest.mark.parametrize("options", [{}, {"eval_strategy": "epoch"}], ids=["as it comes", "evaluated each epoch"])
def test_paused_it_ends_with_the_same_bits(tmp_path, monkeypatch, undisturbed, options):
    expected = undisturbed(**options)
    train = {"directory": tmp_path / "checkpoints", "every_steps": 4}
    for pause_at in (6, 7):
        monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
        # Asked again, it would train on, and pauses at once: after the evaluation of an epoch, or in its middle.
        for _attempt in range(2):
            with pytest.raises(SystemExit) as ending:
                train_resumably(trainer(tmp_path, **options), **train)
            assert ending.value.code == 0
        assert max(int(path.name[5:]) for path in (tmp_path / "checkpoints").glob("step-*")) == pause_at
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(STEPS))
    resumed = trainer(tmp_path, **options)
    train_resumably(resumed, **train)
    assert (weights(resumed), logged(resumed)) == expected


def test_trainers_own_checkpoint_on_a_notice_does_not_end_the_training_as_if_it_were_done(
    tmp_path, monkeypatch, undisturbed
):
    """Three seconds after SIGTERM it would stop the training, at the end of a step that takes as long."""
    monkeypatch.setattr(trainer_jit_checkpoint.CheckpointManager.__init__, "__defaults__", (0,))
    monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(tmp_path / "notice.json"))
    before = signal.getsignal(signal.SIGTERM)

    def in_the_step(args, state, control, **_):
        if state.global_step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            for timer in threading.enumerate():
                if isinstance(timer, threading.Timer):
                    timer.join()

    noticed = DiesAt(-1)
    noticed.on_pre_optimizer_step = in_the_step
    train = {"directory": tmp_path / "checkpoints", "every_steps": 4}
    with pytest.raises(SystemExit) as ending:
        train_resumably(trainer(tmp_path, noticed, enable_jit_checkpoint=True), **train)
    assert ending.value.code == 75
    assert not all_are_done(tmp_path / "notice.json")
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = trainer(tmp_path, enable_jit_checkpoint=True)
    monkeypatch.delenv("SPOTKEEP_NOTICE_FILE")
    train_resumably(resumed, **train)
    assert (weights(resumed), logged(resumed)) == undisturbed()


class Stops(DiesAt):
    """Ends the training on a notice in a hook, as scripts do that save on SIGTERM themselves."""

    def __init__(self, step, hook):
        super().__init__(step, signal.SIGTERM)
        self._asked = False
        own = getattr(self, hook)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_asked", True))

        def stop(args, state, control, **more):
            own(args, state, control, **more)
            control.should_training_stop |= self._asked

        setattr(self, hook, stop)


@pytest.mark.parametrize(("hook", "step"), [("on_step_end", 5), ("on_epoch_end", 6)])
def test_a_callback_that_ends_the_training_on_a_notice_does_not_make_it_done(tmp_path, undisturbed, hook, step):
    train = {"directory": tmp_path / "checkpoints", "every_steps": 4}
    try:
        with pytest.raises(SystemExit) as ending:
            train_resumably(trainer(tmp_path, Stops(step, hook)), **train)
        assert ending.value.code == 75
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resumed = trainer(tmp_path)
    train_resumably(resumed, **train)
    assert (weights(resumed), logged(resumed)) == undisturbed()


def test_notices_before_the_first_step_change_nothing(tmp_path, undisturbed):
    for hook in ("on_train_begin", "on_epoch_begin", "on_step_begin"):
        early = DiesAt(-1)
        setattr(early, hook, lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit):
            train_resumably(trainer(tmp_path, early), directory=tmp_path / "checkpoints", every_steps=4)
    resumed = trainer(tmp_path)
    train_resumably(resumed, directory=tmp_path / "checkpoints", every_steps=4)
    assert (weights(resumed), logged(resumed)) == undisturbed()


def test_on_a_notice_an_evaluation_is_left_to_the_next_attempt_and_the_runner_learns_why(tmp_path, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(tmp_path / "notice.json"))
    evaluations = Evaluations()
    options = {"eval_strategy": "steps", "eval_steps": 3, "num_train_epochs": 1}
    train = {"directory": tmp_path / "checkpoints"}
    with pytest.raises(SystemExit):
        train_resumably(trainer(tmp_path, DiesAt(3, signal.SIGTERM), evaluations, **options), **train)
    assert evaluations.steps == []
    assert left_file(tmp_path / "notice.json").exists()
    train_resumably(trainer(tmp_path, evaluations, **options), **train)
    assert evaluations.steps == [3, 6]


@pytest.mark.enable_socket  # workers hand batches over through sockets of the machine's own
def test_a_streams_workers_give_the_same_items_again(tmp_path, undisturbed):
    options = {"data": Stream, "max_steps": 7, "dataloader_num_workers": 2, "dataloader_persistent_workers": True}
    for step in (2, 5):
        with pytest.raises(SystemExit):
            train_resumably(trainer(tmp_path, DiesAt(step, signal.SIGTERM), **options), directory=tmp_path / "kept")
    resumed = trainer(tmp_path, **options)
    train_resumably(resumed, directory=tmp_path / "kept")
    assert (weights(resumed), logged(resumed)) == undisturbed(**options)


def test_the_directory_stands_behind_the_state_as_in_a_checkpointer(tmp_path):
    train_resumably(trainer(tmp_path, max_steps=1), None, tmp_path / "here")
    assert list((tmp_path / "here").glob("step-*"))


def test_data_in_another_order_is_refused_before_the_first_step(tmp_path):
    class ByChance(OwnGenerator):
        def __iter__(self):
            return iter(np.random.default_rng().permutation(IMAGES).tolist())

    train = {"directory": tmp_path / "kept", "every_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        train_resumably(trainer(tmp_path, DiesAt(4), sampler=ByChance), **train)
    with pytest.raises(UsageError, match="loader of the training data does not give the batches that were trained on"):
        train_resumably(trainer(tmp_path, DiesAt(5), sampler=ByChance), **train)


def best_at(directory, *callbacks, best=4, output="output", **options):
    """Give a Trainer whose model is the best at a step, and that ends with it."""
    made = trainer(
        *(directory / output, *callbacks),
        **{
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 2,
            "metric_for_best_model": "rank",
            "greater_is_better": False,
            "load_best_model_at_end": True,
            **options,
        },
    )
    evaluate = made.evaluate
    made.evaluate = lambda **named: {**evaluate(**named), "eval_rank": abs(made.state.global_step - best)}
    return made


@pytest.mark.parametrize("signum", [None, signal.SIGTERM], ids=["killed", "noticed"])
@pytest.mark.parametrize("at", [5, 4, 3], ids=["after the best", "at the best", "before the best"])
def test_the_best_model_comes_back_though_its_folder_was_lost(tmp_path, at, signum):
    left_alone = best_at(tmp_path, output="of the other")
    train_resumably(left_alone, directory=tmp_path / "left alone")
    train = {"directory": tmp_path / "kept", "every_steps": 1}
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train_resumably(best_at(tmp_path, DiesAt(at, signum), output="of attempt 1"), **train)
    shutil.rmtree(tmp_path / "of attempt 1")
    put_aside_cut_off(tmp_path / "kept", tmp_path / "aside")  # as `run` does before the script starts
    resumed = best_at(tmp_path, output="of attempt 2")
    train_resumably(resumed, **train)
    assert resumed.state.best_model_checkpoint == str(tmp_path / "of attempt 2" / "trainer" / "checkpoint-4")
    assert weights(resumed) == weights(left_alone)
    assert not list((tmp_path / "kept" / "best-models").rglob("optimizer*")), "what is not needed for it is not copied"


def test_among_the_checkpoints_the_best_model_is_not_copied(tmp_path):
    train_resumably(best_at(tmp_path), directory=tmp_path)
    assert not (tmp_path / "best-models").exists()


def test_a_best_model_that_is_lost_is_named_before_the_first_step(tmp_path):
    train = {"directory": tmp_path / "kept", "every_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        train_resumably(best_at(tmp_path, DiesAt(6)), **train)
    shutil.rmtree(tmp_path / "output")
    shutil.rmtree(tmp_path / "kept" / "best-models")
    with pytest.raises(UsageError, match=r"output_dir, .*output/trainer, was lost .* load_best_model_at_end=False"):
        train_resumably(best_at(tmp_path), **train)
    train_resumably(best_at(tmp_path, load_best_model_at_end=False), **train)


@pytest.mark.enable_socket
def test_what_does_not_reach_s3_is_said_at_the_start(tmp_path, bucket, network, caplog):
    train_resumably(best_at(tmp_path, max_steps=2), directory=tmp_path / "kept", remote=f"s3://{bucket.name}/run")
    assert any("the best model lies in output_dir" in message for message in caplog.messages)


def test_an_evaluation_that_is_left_can_stop_the_training(tmp_path):
    """The notice comes at the very step whose evaluation ends the training: not one step more is trained."""

    def early(*callbacks):
        stopping = transformers.EarlyStoppingCallback(early_stopping_patience=1)
        return best_at(tmp_path, *callbacks, stopping, metric_for_best_model="loss", greater_is_better=True, seed=1)

    left_alone = early()
    steps = train_resumably(left_alone, directory=tmp_path / "left alone").global_step
    assert steps < STEPS
    with pytest.raises(SystemExit):
        train_resumably(early(DiesAt(steps, signal.SIGTERM)), directory=tmp_path / "kept")
    resumed = early()
    assert train_resumably(resumed, directory=tmp_path / "kept").global_step == steps
    assert (weights(resumed), logged(resumed)) == (weights(left_alone), logged(left_alone))


class Counts(transformers.TrainerCallback):
    """Keeps something, and has no way to give it."""

    def on_step_end(self, args, state, control, **_):
        self.steps = getattr(self, "steps", 0) + 1


class CountsAsTrainerKnows(Counts, transformers.trainer_callback.ExportableState):
    steps = 0

    def state(self):
        return {"args": {}, "attributes": {"steps": self.steps}}


class CountsAsTorchDoes(Counts):
    steps = 0

    def state_dict(self):
        return {"so far": self.steps}

    def load_state_dict(self, state):
        self.steps = state["so far"]


def test_callbacks_come_back_or_are_named(tmp_path, caplog):
    train = {"directory": tmp_path / "kept", "every_steps": 1}
    callbacks = CountsAsTrainerKnows(), CountsAsTorchDoes()
    with pytest.raises(KeyboardInterrupt):
        train_resumably(trainer(tmp_path, *callbacks, Counts(), DiesAt(5)), **train)
    named = [message.split()[3] for message in caplog.messages if "is not saved" in message]
    assert named == ["DiesAt", "Counts"], "one when the training begins, one when it has got something to keep"
    callbacks = CountsAsTrainerKnows(), CountsAsTorchDoes()
    train_resumably(trainer(tmp_path, *callbacks), **train)
    assert [callback.steps for callback in callbacks] == [STEPS, STEPS]


def test_what_trainer_does_not_know_is_saved_where_it_is_given(tmp_path):
    seen = torch.zeros(1)

    class Sees(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            seen.add_(1)

    train = {"state": {"seen": seen}, "directory": tmp_path / "kept", "every_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        train_resumably(trainer(tmp_path, Sees(), DiesAt(5)), **train)
    seen.zero_()
    train_resumably(trainer(tmp_path, Sees()), **train)
    assert seen == STEPS


@pytest.mark.parametrize("option", ["state", "per_rank"])
def test_a_name_that_is_taken_is_warned_of(tmp_path, option, caplog):
    train_resumably(trainer(tmp_path, max_steps=1), **{option: {"random": {}, "seen": {}}}, directory=tmp_path)
    assert caplog.text.count("the state has 'random', under which the integration saves") == 1


def test_early_stopping_counts_on_and_stays_stopped(tmp_path):
    def early(*callbacks):
        stopping = transformers.EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=99.0)
        return trainer(
            *(tmp_path, *callbacks, stopping),
            eval_strategy="steps",
            eval_steps=2,
            metric_for_best_model="eval_loss",
            save_steps=2,
            save_strategy="steps",
            load_best_model_at_end=True,
        )

    train = {"directory": tmp_path / "checkpoints", "every_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        train_resumably(early(DiesAt(5)), **train)
    resumed = early()
    assert train_resumably(resumed, **train).global_step == 6, "two evaluations without progress, one of them before"
    again = early()
    assert train_resumably(again, **train).global_step == 6
    assert weights(again) == weights(resumed)


@pytest.mark.enable_socket
def test_a_fresh_machine_goes_on_from_s3_and_reads_the_checkpoint_once(
    tmp_path, undisturbed, bucket, network, job_events, monkeypatch
):
    expected = undisturbed()
    remote = f"s3://{bucket.name}/run"
    with pytest.raises(SystemExit):
        train_resumably(
            trainer(tmp_path, DiesAt(5, signal.SIGTERM)), directory=tmp_path / "first", remote=remote, every_steps=3
        )
    read = []
    monkeypatch.setattr(
        checkpoint_directory,
        "read_data_file",
        lambda file, *rest, **more: read.append(file.size) or read_data_file(file, *rest, **more),
    )
    job_events().clear()
    resumed = trainer(tmp_path)
    monkeypatch.setattr(resumed, "save_model", lambda *_, **__: pytest.fail("weights were written"))
    train_resumably(resumed, directory=tmp_path / "second", remote=remote)
    assert (weights(resumed), logged(resumed)) == expected
    events = [(event["event"], event["step"]) for event in job_events() if event["event"] in ("downloaded", "resume")]
    assert events == [("downloaded", 5), ("resume", 5)]
    assert len(read) == len(list((tmp_path / "first" / "step-5").glob("data-*"))), "each file once"


KINDS = ("ddp", "fsdp")


@pytest.fixture(scope="module")
def said_on_other_ranks(tmp_path_factory):
    script = Path(__file__).with_name("trainer_on_other_ranks.py")
    return said_of_kinds(script, tmp_path_factory.mktemp("other-ranks"), *KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_with_as_many_ranks_and_with_others(said_on_other_ranks, kind):
    """From two ranks to three and to one, with the saved state and the rows that are left, divided or whole."""
    said, errors = said_on_other_ranks
    lines = [line for line in said[kind] if line and not line.startswith(("{", "spotkeep-event"))]
    assert lines == [f"{kind} is through"], errors[-3000:]
    # The script keeps the samples of a step by it.
    assert {*re.findall(r"^ +- (.+) was .+ and is", errors, re.MULTILINE)} == {"per_device_train_batch_size"}


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    train = {"directory": tmp_path / "checkpoints"}
    with pytest.raises(SystemExit):
        train_resumably(trainer(tmp_path, DiesAt(2, signal.SIGTERM)), **train)
    other = trainer(tmp_path)
    other.model = torch.nn.Linear(2, 2)
    with pytest.raises(StateMismatchError, match=r"the checkpoint has no state\['model'\]\['"):
        train_resumably(other, **train)


def test_what_cannot_be_resumed_is_refused_with_all_reasons(tmp_path):
    unfit = trainer(tmp_path, auto_find_batch_size=True)
    unfit.is_deepspeed_enabled = True
    with pytest.raises(UsageError, match=r"DeepSpeed .* \(take fsdp=True in its place\); auto_find_batch_size"):
        train_resumably(unfit, directory=tmp_path)


def test_fsdp_of_version_1_is_refused_with_the_way_to_version_2(tmp_path):
    unfit = trainer(tmp_path)
    unfit.is_fsdp_enabled = True
    unfit.accelerator.state.fsdp_plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=1)
    try:
        with pytest.raises(UsageError, match=r'take fsdp_config=\{"version": 2\} in its place'):
            train_resumably(unfit, directory=tmp_path)
    finally:
        unfit.accelerator.state.fsdp_plugin = None


def test_global_batches_are_refused_because_accelerate_divides_a_loader(tmp_path):
    divided = trainer(tmp_path)
    batches = GlobalBatches(IMAGES, batch_size=BATCH, drop_last=True)
    divided.get_train_dataloader = lambda: torch.utils.data.DataLoader(Digits(), batch_sampler=batches)
    with pytest.raises(UsageError, match=r"Trainer divides the batches .* give Trainer a DataLoader with a batch_size"):
        train_resumably(divided, directory=tmp_path / "kept")


def test_a_second_training_of_the_process_has_a_name_or_is_refused(tmp_path, new_process, caplog):
    def trained(**options):
        made = trainer(tmp_path, max_steps=3)
        train_resumably(made, directory=tmp_path / "checkpoints", **options)
        return weights(made)

    first = trained()
    with pytest.raises(UsageError, match="ended in this process, after step 3"):
        trained()
    assert trained(name="second") == first
    new_process()
    train_resumably(trainer(tmp_path, max_steps=4, learning_rate=0.5), directory=tmp_path / "checkpoints")
    assert "learning_rate was 0.01 and is 0.5" in caplog.text


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "spotkeep.integrations.transformers")
    with pytest.raises(ImportError, match=r"install 'transformers\[torch\]>=5'"):
        importlib.import_module("spotkeep.integrations.transformers")


def test_on_two_ranks_it_ends_with_the_same_bits_on_both(tmp_path):
    """Real processes: interrupted by a kill of both, and by notices to one."""
    script = Path(__file__).with_name("trainer_on_two_ranks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment_of_script(),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if not line.startswith(("spotkeep-event", "{"))]
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(said) == ["rank 0 is through", "rank 1 is through"]
