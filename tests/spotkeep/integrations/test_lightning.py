"""Lightning's Trainer, interrupted again and again after any batches, ends with the weights of an undisturbed run."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")
import lightning.pytorch as pl  # noqa: E402
import torchmetrics  # noqa: E402

from spotkeep import GlobalBatches, UsageError  # noqa: E402
from spotkeep.events import EVENT_PREFIX  # noqa: E402
from spotkeep.integrations.lightning import fit_resumably  # noqa: E402
from spotkeep.notices.notice import all_are_done  # noqa: E402
from tests.forking import environment_of_script, said_of_kinds  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    # Lightning 2.6 asks torch 2.13 in an older way.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    # Advice for large data.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers:UserWarning"),
]

IMAGES, BATCH, EPOCHS = 40, 8, 3
BATCHES = IMAGES // BATCH


class KilledError(Exception):
    """The process is gone."""


class Digits(torch.utils.data.Dataset):
    """Draws random numbers while it loads."""

    def __init__(self, count=IMAGES):
        pixels, labels = load_digits(return_X_y=True)
        self.pixels, self.labels = (
            torch.tensor(pixels[:count] / 16.0, dtype=torch.float32),
            torch.tensor(labels[:count]),
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pixels[index] + 0.1 * torch.randn(64), self.labels[index]


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(
            nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 10)
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(images), labels))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class Backbone(Net):
    """Its optimizer gets what is not frozen."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = self.layers[:2], self.layers[2:]

    def configure_optimizers(self):
        return torch.optim.AdamW([value for value in self.parameters() if value.requires_grad], lr=0.01)


class Unfreezes(pl.callbacks.BaseFinetuning):
    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.backbone, train_bn=False)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone, optimizer, lr=0.005)
            pl_module.layers[3].eval()


class Measures(Net):
    """Collects in hooks and metrics, and trains by what it has measured over an epoch."""

    def __init__(self):
        super().__init__()
        self.mean = torchmetrics.MeanMetric()

    def on_train_epoch_start(self):
        self.seen, self.scale = [], 1 + float(torch.rand(()))
        self.log("scale", self.scale)

    def training_step(self, batch, batch_idx):
        loss = self.scale * super().training_step(batch, batch_idx)
        self.seen.append(batch_idx)
        self.mean(loss.detach())
        self.log("loss", loss, on_epoch=True)
        self.log("mean", self.mean, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        self.layers[0].weight.data.mul_(self.mean.compute())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "loss"}}


class Momentum(torch.optim.Optimizer):
    """Keeps its state in another type than the parameters have."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure()
        for value in self.param_groups[0]["params"]:
            kept = self.state[value].setdefault("momentum", torch.zeros(value.shape, dtype=torch.float32))
            value.sub_(kept.mul_(0.9).add_(value.grad), alpha=0.01)
        return loss


class Precise(Net):
    """Keeps the version of its weights, and cannot take others."""

    def __init__(self):
        super().__init__()
        self.double()

    def training_step(self, batch, batch_idx):
        with torch.enable_grad():
            return super().training_step([batch[0].double(), batch[1]], batch_idx)

    def validation_step(self, batch, batch_idx):
        super().validation_step([batch[0].double(), batch[1]], batch_idx)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        assert local_metadata.get("version") == 1, "older weights would be converted"
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)

    def configure_optimizers(self):
        return Momentum(self.parameters())


class OwnGenerator(torch.utils.data.Sampler):
    """Shuffles with a generator of its own, which goes on from pass to pass."""

    def __init__(self, seed=3):
        self.generator = np.random.default_rng(seed)

    def __len__(self):
        return IMAGES

    def __iter__(self):
        return iter(self.generator.permutation(IMAGES).tolist())


class Interrupts(pl.Callback):
    """Ends the training in a hook: after a batch, counted through all attempts, or when it comes to it so often."""

    def __init__(self, hook=None, at=None, signum=None):
        self._hook, self._at, self._signum = hook, at, signum
        self.seen = []
        if hook is not None:
            setattr(self, hook, self._count)

    def _count(self, trainer, *others):
        self.seen.append(trainer.global_step)
        batches = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        if self._at == (batches if self._hook == "on_train_batch_end" else len(self.seen)):
            if self._signum is None:
                raise KilledError
            os.kill(os.getpid(), self._signum)


class Evaluations(pl.Callback):
    def __init__(self):
        self.losses = {}

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.losses[trainer.global_step] = float(trainer.callback_metrics["val_loss"])


def run(directory, *callbacks, net=Net, own=(), loaders=None, own_loader=False, name=None, **trainer_options):
    pl.seed_everything(7, verbose=False)
    model = net()
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=50)
    trainer = pl.Trainer(
        **{
            "max_epochs": EPOCHS,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": str(directory),
            "callbacks": [*(make() for make in own), *callbacks, stopping],
            **trainer_options,
        }
    )
    train = torch.utils.data.DataLoader(Digits(), BATCH, shuffle=True) if loaders is None else loaders
    fit_resumably(
        *(trainer, model, None if own_loader else train, torch.utils.data.DataLoader(Digits(16), 8)),
        directory=directory / "checkpoints",
        every_steps=2,
        name=name,
    )
    weights = {name: value.numpy().tobytes() for name, value in model.state_dict().items()}
    return weights, trainer.global_step, trainer.current_epoch, float(stopping.best_score)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Gives the end of a run that nothing happens to; each is trained once, and read alone."""
    return functools.cache(lambda **options: run(tmp_path_factory.mktemp("undisturbed"), **options))


# What is trained, after which batches it is killed, and after which it gets a notice. 5 and 10 are the end of an epoch.
# Evaluated twice and killed after 5, it goes on with what was saved when Lightning had noted that the last batch began.
CASES = {
    "as it comes": ({}, {4, 5}, {1, 5, 10}),
    "accumulated": ({"accumulate_grad_batches": 2}, {3, 6}, {1, 5}),
    "evaluated twice": ({"val_check_interval": 2}, {2, 5}, {7, 9}),
    "types and versions": ({"net": Precise}, {4}, {8}),
    "unfrozen": ({"net": Backbone, "own": (Unfreezes,)}, {9}, {4, 8, 12}),
    "measured": ({"net": Measures}, {9}, {3, 5, 12}),
    "averaged in a swing": (
        {"own": (lambda: pl.callbacks.StochasticWeightAveraging(0.02, swa_epoch_start=2, annealing_epochs=3),)},
        {9},
        {3, 8, 17},
    ),
    "averaged for evaluations, accumulated by epochs": (
        {
            "own": (
                lambda: pl.callbacks.EMAWeightAveraging(decay=0.9),
                lambda: pl.callbacks.GradientAccumulationScheduler({1: 2}),
            )
        },
        {9},
        {5, 7},
    ),
}


@pytest.mark.parametrize(("options", "killed", "noticed"), CASES.values(), ids=CASES)
def test_interrupted_again_and_again_it_ends_with_the_same_bits(
    tmp_path, undisturbed, a_few_of, options, killed, noticed
):
    expected = undisturbed(**options)
    drawn = set() if options else {*a_few_of(range(1, EPOCHS * BATCHES), 2)}
    for at in sorted(killed | noticed | drawn):
        if at in killed | drawn:
            with pytest.raises(KilledError):
                run(tmp_path, Interrupts("on_train_batch_end", at), **options)
        if at in noticed | drawn:
            with pytest.raises(SystemExit) as ending:
                run(tmp_path, Interrupts("on_train_batch_end", at, signal.SIGTERM), **options)
            assert ending.value.code == 75
            assert options or (tmp_path / "checkpoints" / f"step-{at}").is_dir(), "no step is lost"
    assert run(tmp_path, **options) == expected
    batches = Interrupts("on_train_batch_end")
    assert run(tmp_path, batches, **options)[0] == expected[0]
    assert batches.seen == [], "a run that is done does nothing again"


# With the gradients of two batches, 3 steps are an epoch.
@pytest.mark.parametrize(
    ("options", "steps"), [({}, (3, 5)), ({"accumulate_grad_batches": 2}, (3,))], ids=["as it comes", "accumulated"]
)
def test_paused_it_ends_with_the_same_bits(tmp_path, monkeypatch, undisturbed, options, steps):
    expected = undisturbed(**options)
    for pause_at in steps:
        monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
        # Asked again, it would train on, and pauses at once: in the middle of an epoch, or at its end.
        for _attempt in range(2):
            with pytest.raises(SystemExit) as ending:
                run(tmp_path, **options)
            assert ending.value.code == 0
        assert max(int(path.name[5:]) for path in (tmp_path / "checkpoints").glob("step-*")) == pause_at
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(expected[1]))
    assert run(tmp_path, **options) == expected


def test_a_notice_before_the_first_batch_changes_nothing(tmp_path, undisturbed):
    with pytest.raises(SystemExit):
        run(tmp_path, Interrupts("on_train_batch_start", 1, signal.SIGTERM))
    assert (tmp_path / "checkpoints" / "step-0").is_dir()
    assert run(tmp_path) == undisturbed()


def test_on_a_notice_an_evaluation_is_left_and_done_again_with_the_same_random_numbers(
    tmp_path, undisturbed, monkeypatch, capsys
):
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "0")
    evaluations = Evaluations()
    run(tmp_path / "undisturbed", evaluations)
    lines = (line for line in capsys.readouterr().out.splitlines() if line.startswith(EVENT_PREFIX))
    events = [json.loads(line[len(EVENT_PREFIX) :]) for line in lines]
    measured = [event["metrics"]["val_loss"] for event in events if "val_loss" in event.get("metrics", {})]
    assert measured == list(evaluations.losses.values()), "what the module logs is measured at each evaluation"

    # Two batches of the check before the training, two in each epoch: this is the second one of the second epoch.
    with pytest.raises(SystemExit) as leaving:
        run(tmp_path, Interrupts("on_validation_batch_start", 6, signal.SIGTERM))
    assert leaving.value.code == 75
    assert (tmp_path / "checkpoints" / "step-10").is_dir()
    again, batches = Evaluations(), Interrupts("on_validation_batch_end")
    assert run(tmp_path, again, batches) == undisturbed()
    assert again.losses == {step: loss for step, loss in evaluations.losses.items() if step >= 2 * BATCHES}
    assert batches.seen.count(10) == 2, "the evaluation is done again as a whole"


def test_loaders_of_different_lengths_go_on_together(tmp_path, monkeypatch):
    def both(self, batch, batch_idx):
        return sum(torch.nn.functional.cross_entropy(self.layers(images), labels) for images, labels in batch.values())

    monkeypatch.setattr(Net, "training_step", both)

    def loaders():
        return {
            "long": torch.utils.data.DataLoader(Digits(), 8, shuffle=True),
            "short": torch.utils.data.DataLoader(Digits(16), 8, shuffle=True, generator=torch.Generator()),
        }

    expected = run(tmp_path / "undisturbed", loaders=loaders())
    for at in (3, 7):
        with pytest.raises(KilledError):
            run(tmp_path, Interrupts("on_train_batch_end", at), loaders=loaders())
    assert run(tmp_path, loaders=loaders()) == expected


def test_a_sampler_with_a_generator_of_its_own_goes_on(tmp_path):
    def loader(seed=3):
        return torch.utils.data.DataLoader(Digits(), BATCH, sampler=OwnGenerator(seed))

    expected = run(tmp_path / "left alone", loaders=loader())
    for at in (3, 5, 8):
        with pytest.raises(SystemExit):
            run(tmp_path / "kept", Interrupts("on_train_batch_end", at, signal.SIGTERM), loaders=loader())
    assert run(tmp_path / "kept", loaders=loader()) == expected


def test_data_in_another_order_is_refused_before_the_first_step(tmp_path):
    class ByChance(OwnGenerator):
        def __iter__(self):
            return iter(np.random.default_rng().permutation(IMAGES).tolist())

    loader = torch.utils.data.DataLoader(Digits(), BATCH, sampler=ByChance())
    with pytest.raises(SystemExit):
        run(tmp_path, Interrupts("on_train_batch_end", 3, signal.SIGTERM), loaders=loader)
    batches = Interrupts("on_train_batch_end")
    with pytest.raises(UsageError, match="loader of the training data does not give the batches that were trained on"):
        run(tmp_path, batches, loaders=loader)
    assert batches.seen == []


@pytest.mark.enable_socket  # workers hand batches over through sockets of the machine's own
def test_loaders_of_the_model_itself_and_their_workers_load_the_same_batches(tmp_path, undisturbed, monkeypatch):
    expected = undisturbed()
    made = torch.utils.data.DataLoader(Digits(), BATCH, shuffle=True, num_workers=2)
    monkeypatch.setattr(Net, "train_dataloader", lambda self: made, raising=False)
    with pytest.raises(KilledError):
        run(tmp_path, Interrupts("on_train_batch_end", 8), own_loader=True)
    assert run(tmp_path, own_loader=True) == expected


def test_a_notice_within_an_evaluation_waits_while_other_weights_stand_in_their_place(tmp_path, undisturbed):
    options = CASES["averaged for evaluations, accumulated by epochs"][0]
    with pytest.raises(SystemExit):
        run(tmp_path, Interrupts("on_validation_batch_start", 4, signal.SIGTERM), **options)
    assert run(tmp_path, **options) == undisturbed(**options)


class IsBest(Net):
    """Is best in the second epoch."""

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.log("distance", abs(self.current_epoch - 1.0))


def with_best(directory, place, *callbacks):
    """Train, and give what the best model is: its step and its weights."""
    best = pl.callbacks.ModelCheckpoint(monitor="distance", save_top_k=2)
    options = {"logger": pl.loggers.CSVLogger(str(place)), "enable_checkpointing": True}
    options["log_every_n_steps"] = 1
    run(directory, best, *callbacks, net=IsBest, **options)
    found = torch.load(best.best_model_path, weights_only=True)
    weights = {name: value.numpy().tobytes() for name, value in found["state_dict"].items()}
    return found["global_step"], float(best.best_model_score), len(best.best_k_models), weights


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "another version of the logger"])
def test_the_best_model_comes_back(tmp_path, lost):
    expected = with_best(tmp_path / "left alone", tmp_path / "left alone")
    assert expected[:3] == (10, 0.0, 2)
    for at in (4, 12):
        with pytest.raises(SystemExit):
            with_best(tmp_path / "kept", tmp_path / "place", Interrupts("on_train_batch_end", at, signal.SIGTERM))
        if lost:
            shutil.rmtree(tmp_path / "place")
    assert with_best(tmp_path / "kept", tmp_path / "place") == expected


def test_a_best_model_that_is_lost_is_named_before_the_first_step(tmp_path, caplog):
    with pytest.raises(SystemExit):
        with_best(tmp_path, tmp_path / "place", Interrupts("on_train_batch_end", 12, signal.SIGTERM))
    for gone in (tmp_path / "place", tmp_path / "checkpoints" / "best-models"):
        shutil.rmtree(gone)
    with pytest.raises(SystemExit):
        with_best(tmp_path, tmp_path / "place", Interrupts("on_train_batch_start", 1, signal.SIGTERM))
    assert any(
        "the best model so far" in message and 'ckpt_path="best" fails' in message for message in caplog.messages
    )


class Counts(pl.Callback):
    """Keeps something, and has no way to give it."""

    def on_train_batch_end(self, *_):
        self.batches = getattr(self, "batches", 0) + 1


class CountsOn(Counts):
    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches = state["batches"]


def test_callbacks_come_back_or_are_named(tmp_path, caplog):
    with pytest.raises(KilledError):
        run(tmp_path, Counts(), CountsOn(), Interrupts("on_train_batch_end", 7))
    named = [message.split()[3] for message in caplog.messages if "is not saved" in message]
    assert named == ["Interrupts", "Counts"], "one when the training begins, one when it has got something to keep"
    counts = CountsOn()
    run(tmp_path, counts)
    assert counts.batches == EPOCHS * BATCHES


def test_pruning_is_refused(tmp_path):
    with pytest.raises(UsageError, match="ModelPruning is among the callbacks"):
        run(tmp_path, pl.callbacks.ModelPruning("l1_unstructured", amount=0.2))


def test_lightnings_own_files_are_written_as_ever(tmp_path):
    run(tmp_path, pl.callbacks.ModelCheckpoint(tmp_path, filename="mine"), enable_checkpointing=True)
    assert torch.load(tmp_path / "mine.ckpt", weights_only=True)["epoch"] == EPOCHS - 1


def test_a_handler_that_ends_the_training_on_a_notice_does_not_make_it_done(tmp_path, undisturbed):
    interrupts = Interrupts("on_train_batch_end", 7, signal.SIGTERM)
    trainers = []
    interrupts.setup = lambda trainer, *_, **__: trainers.append(trainer)
    before = signal.signal(signal.SIGTERM, lambda *_: setattr(trainers[-1], "should_stop", True))
    try:
        with pytest.raises(SystemExit) as ending:
            run(tmp_path, interrupts)
        assert ending.value.code == 75
    finally:
        signal.signal(signal.SIGTERM, before)
    assert run(tmp_path) == undisturbed()


def test_a_training_that_was_done_before_says_that_it_is_done(tmp_path, monkeypatch):
    """Lightning calls no hook then; and the script may end with 0 because a notice has come."""
    for start in ("the first", "the next"):
        monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(tmp_path / start))
        run(tmp_path, max_epochs=1)
        assert all_are_done(tmp_path / start), start


def test_global_batches_are_refused_because_lightning_divides_a_loader(tmp_path):
    batches = GlobalBatches(8, batch_size=4)
    with pytest.raises(UsageError, match="Lightning divides the batches of its loaders among the ranks"):
        run(tmp_path, loaders=torch.utils.data.DataLoader(Digits(), batch_sampler=batches))


def test_data_without_indices_is_refused(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from Digits()

    with pytest.raises(UsageError, match="DataLoader over Stream"):
        run(tmp_path, loaders=torch.utils.data.DataLoader(Stream()))


def test_on_two_ranks_it_ends_with_the_same_bits_on_both(tmp_path):
    """Real processes, which Lightning starts itself, or torchrun: a notice to either rank, and an error on both."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("lightning_on_two_ranks.py")), str(tmp_path)],
        env=environment_of_script(),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line for line in done.stdout.splitlines() if line.startswith(("rank", "the notice", "as it", "own"))]
    assert sorted(said) == [
        "rank 0 is through", "rank 1 is through", "the notice ended rank 0 with 75, and its last step is saved",
    ]  # fmt: skip


KINDS = ("ddp", "fsdp", "model parallel")


@pytest.fixture(scope="module")
def said_on_other_ranks(tmp_path_factory):
    script = Path(__file__).with_name("lightning_on_other_ranks.py")
    return said_of_kinds(script, tmp_path_factory.mktemp("other-ranks"), *KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_with_as_many_ranks_and_with_others(said_on_other_ranks, kind):
    """From two ranks to three and to one, with the saved state, the rows that are left, and what was measured."""
    said, errors = said_on_other_ranks
    lines = [line for line in said[kind] if line and not line.startswith("spotkeep-event")]
    assert lines == [f"{kind} is through"], errors[-3000:]
    # The script keeps the samples of a step by it.
    assert {*re.findall(r"^ +- (.+) was .+ and is", errors, re.MULTILINE)} == {"accumulate_grad_batches"}
    assert "with another number of ranks than 2, does not give the batches" in errors


def test_processes_that_begin_in_the_middle_of_the_script_are_refused(tmp_path):
    with pytest.raises(UsageError, match="in the middle of the script"):
        run(tmp_path, strategy="ddp_spawn", devices=2)


def test_deepspeed_is_refused_with_the_strategies_that_take_its_place(tmp_path):
    class WithoutItsLibrary(pl.strategies.DeepSpeedStrategy):
        def __init__(self):
            pl.strategies.DDPStrategy.__init__(self)

    with pytest.raises(UsageError, match=r'has the parts .* Use strategy="fsdp" or ModelParallelStrategy'):
        run(tmp_path, strategy=WithoutItsLibrary(), devices=2)


def test_a_second_fit_of_the_process_has_a_name_or_is_refused(tmp_path, new_process):
    first = run(tmp_path, max_epochs=1)
    with pytest.raises(UsageError, match=f"ended in this process, after step {BATCHES}"):
        run(tmp_path, max_epochs=1)
    assert run(tmp_path, name="unfrozen", max_epochs=1) == first


def test_without_the_library_it_says_what_to_install(monkeypatch):
    for package in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "spotkeep.integrations.lightning")
    with pytest.raises(ImportError, match=r"install 'lightning>=2\.4' or 'pytorch-lightning>=2\.4'"):
        importlib.import_module("spotkeep.integrations.lightning")
