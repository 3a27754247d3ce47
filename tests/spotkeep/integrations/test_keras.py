"""Keras' fit, interrupted again and again, ends with the weights and the history of an undisturbed run.

On torch, TensorFlow or JAX: what KERAS_BACKEND says, one in a process.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import signal
import sys

import numpy as np
import pytest

BACKEND = os.environ["KERAS_BACKEND"]
pytest.importorskip(BACKEND)
keras = pytest.importorskip("keras")

from sklearn.datasets import load_digits  # noqa: E402 - takes seconds, and only these tests need it

from spotkeep import StateMismatchError, UsageError  # noqa: E402
from spotkeep.integrations.keras import fit_resumably  # noqa: E402
from spotkeep.notices.notice import left_file  # noqa: E402

pytestmark = [
    {"torch": pytest.mark.torch, "tensorflow": pytest.mark.tensorflow, "jax": pytest.mark.jax}[BACKEND],
    pytest.mark.long,
    # Keras 3.15 and torch 2.13 do not know NumPy 2's way to ask for an array yet.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]

IMAGES, BATCH, EPOCHS = 40, 8, 3
STEPS = EPOCHS * IMAGES // BATCH
decided_alike = pytest.mark.skipif(BACKEND != "torch", reason="decided alike on all backends, and shown on torch")
"""TensorFlow and JAX compile each model anew: seconds each time. Which batch comes next is decided alike on all three.
They differ in what is saved: few batches show that as well, and few kinds of data."""


def digits():
    pixels, labels = load_digits(return_X_y=True)
    return (pixels[:IMAGES] / 16.0).astype("float32"), labels[:IMAGES]


class DiesAfter(keras.callbacks.LambdaCallback):
    """Dies, or gets a notice, after so many batches."""

    def __init__(self, batches=None, signum=None):
        super().__init__()
        self.batches, self.signum = batches, signum

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.batches:
            if self.signum is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.signum)


class Counts(keras.callbacks.Callback):
    """A callback of the user's own that keeps something."""

    def __init__(self):
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches = state["batches"]


class Noisy(keras.utils.PyDataset):
    """Draws random numbers while it loads; on TensorFlow, which loads ahead, they follow from the batch."""

    def __init__(self):
        super().__init__()
        self.pixels, self.labels = digits()

    def __len__(self):
        return IMAGES // BATCH

    def __getitem__(self, index):
        random = np.random.default_rng(index) if BACKEND == "tensorflow" else np.random
        chosen = slice(index * BATCH, (index + 1) * BATCH)
        return self.pixels[chosen] + 0.1 * random.normal(size=(BATCH, 64)).astype("float32"), self.labels[chosen]


def noisy_batches():
    """Give what fit takes: a dataset of Keras, on torch a DataLoader."""
    if BACKEND != "torch":
        return {"x": Noisy()}
    data = importlib.import_module("torch.utils.data")

    class Samples(data.Dataset):
        def __init__(self):
            self.pixels, self.labels = digits()

        def __len__(self):
            return IMAGES

        def __getitem__(self, index):
            return self.pixels[index] + 0.1 * np.random.standard_normal(64).astype("float32"), self.labels[index]

    return {"x": data.DataLoader(Samples(), BATCH, shuffle=True), "shuffle": False}


def run(
    directory,
    *,
    kind="arrays",
    batches=None,
    signum=None,
    patience=9,
    min_delta=0.001,
    epochs=EPOCHS,
    batch_size=BATCH,
    others=(),
    **options,
):
    keras.utils.set_random_seed(4)
    keras.backend.clear_session(free_memory=False)  # to look for garbage in all that is imported takes time
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((64,)),
            layers.GaussianNoise(0.1),
            layers.Dense(12, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(
            keras.optimizers.schedules.CosineDecay(0.01, 100) if kind == "schedule" else 0.01
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    counts = Counts()
    callbacks = [
        keras.callbacks.EarlyStopping(
            monitor="loss", patience=patience, restore_best_weights=True, min_delta=min_delta
        ),
        counts,
        DiesAfter(batches, signum),
        *others,
    ]
    if kind != "schedule":
        callbacks.append(keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=9.0, factor=0.5))
    x, y = digits()
    data = {"x": x, "y": y, "batch_size": batch_size}
    if kind == "loader":
        data = noisy_batches()
    fit_resumably(
        model,
        **data,
        epochs=epochs,
        verbose=0,
        validation_data=(x, y),
        callbacks=callbacks,
        directory=directory,
        **{"every_steps": 2, **options},
    )
    weights = [np.asarray(value).tobytes() for value in model.get_weights()]
    return weights, model.history.history, float(model.optimizer.learning_rate), counts.batches


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Gives the end of a run that nothing happens to; each is trained once, and read alone."""
    return functools.cache(lambda **options: run(tmp_path_factory.mktemp("undisturbed"), **options))


# What is trained, after which batches it is killed, and after which it gets a notice; 5 and 10 are the end of an epoch.
# What has five batches is saved when the next epoch begins.
CASES = {"arrays": ({6}, {8, 10}), "loader": ({7}, {8}), "schedule": ({8}, set())}


@pytest.mark.parametrize("kind", ["arrays", "loader", pytest.param("schedule", marks=decided_alike)])
def test_interrupted_again_and_again_it_ends_with_the_same_bits(tmp_path, undisturbed, a_few_of, kind):
    expected = undisturbed(kind=kind)
    assert len(expected[1]["val_loss"]) == EPOCHS
    assert expected[3] == STEPS
    early = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        run(tmp_path, kind=kind, others=[early])
    assert (tmp_path / "step-0").is_dir(), "a notice before the first batch"
    killed, noticed = CASES[kind]
    drawn = {*a_few_of(range(1, STEPS), 2)} if BACKEND == "torch" and kind == "arrays" else set()
    for batches in sorted(killed | noticed | drawn):
        if batches in killed | drawn:
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path, kind=kind, batches=batches, every_steps=5)
        if batches in noticed | drawn:
            with pytest.raises(SystemExit) as ending:
                run(tmp_path, kind=kind, batches=batches, signum=signal.SIGTERM, every_steps=5)
            assert ending.value.code == 75
            assert (tmp_path / f"step-{batches}").is_dir(), "no step is lost"
    assert run(tmp_path, kind=kind, every_steps=5) == expected


@decided_alike
def test_paused_it_ends_with_the_same_bits(tmp_path, monkeypatch, undisturbed):
    expected = undisturbed(kind="arrays")
    for pause_at in (5, 6):
        monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
        # Asked again, it would train on, and pauses at once: after the evaluation of an epoch, or in its middle.
        for _ in range(2):
            with pytest.raises(SystemExit) as ending:
                run(tmp_path)
            assert ending.value.code == 0
            assert max(int(path.name[5:]) for path in tmp_path.glob("step-*")) == pause_at
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(STEPS))
    assert run(tmp_path) == expected
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "1")
    assert run(tmp_path) == expected, "one that is done is done"


@decided_alike
def test_a_notice_after_the_last_batch_does_not_wait_for_the_evaluation_and_the_runner_learns_why(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(tmp_path / "notice.json"))
    ended = []
    watches = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ended.append(epoch))
    with pytest.raises(SystemExit):
        run(tmp_path / "checkpoints", batches=5, signum=signal.SIGTERM, others=[watches])
    assert ended == []
    assert left_file(tmp_path / "notice.json").exists()


@decided_alike
def test_a_run_that_was_stopped_early_stays_stopped(tmp_path, job_events):
    expected = run(tmp_path / "undisturbed", patience=1, min_delta=9.0)
    assert len(expected[1]["loss"]) == 2
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", patience=1, min_delta=9.0, batches=8)
    assert run(tmp_path / "run", patience=1, min_delta=9.0) == expected
    assert run(tmp_path / "run", patience=1, min_delta=9.0) == expected
    assert [event["step"] for event in job_events() if event["event"] == "resume"] == [0, 0, 6, 10]


@decided_alike
def test_more_epochs_than_before_go_on(tmp_path):
    expected = run(tmp_path / "undisturbed", epochs=4)
    run(tmp_path / "run", epochs=3)
    assert run(tmp_path / "run", epochs=4) == expected


@decided_alike
def test_fewer_batches_than_before_are_reported(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batches=5)
    with pytest.raises(UsageError, match="after 4 batches of epoch 0, which has fewer now"):
        run(tmp_path, batch_size=20)


@decided_alike
def test_other_callbacks_than_before_do_not_fit(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batches=5)
    with pytest.raises(StateMismatchError, match=r"'EarlyStopping', 'Counts', 'ReduceLROnPlateau', 'History'"):
        run(tmp_path, batches=5, others=[Counts()])


@decided_alike
def test_a_callback_whose_state_is_unknown_is_reported(tmp_path, caplog):
    class Unknown(keras.callbacks.Callback):
        pass

    with caplog.at_level(logging.WARNING, "spotkeep"):
        run(tmp_path, epochs=1, others=[keras.callbacks.TerminateOnNaN(), Unknown()])
    assert [record.args for record in caplog.records] == [("Unknown",)]


@decided_alike
def test_keras_own_backup_is_refused(tmp_path):
    with pytest.raises(UsageError, match="leave it out"):
        run(tmp_path, others=[keras.callbacks.BackupAndRestore(str(tmp_path))])


@decided_alike
def test_a_name_that_is_taken_is_warned_of(tmp_path, caplog):
    run(tmp_path, state={"data": {"seen": 0}}, epochs=1)
    assert caplog.text.count("the state has 'data', under which the integration saves") == 1


@decided_alike
def test_another_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")
    with pytest.raises(UsageError, match="set KERAS_BACKEND to one of torch, tensorflow, jax"):
        run(tmp_path)


@decided_alike
def test_a_second_fit_of_the_process_has_a_name_or_is_refused(tmp_path, new_process):
    first = run(tmp_path, epochs=1)
    with pytest.raises(UsageError, match=f"ended in this process, after step {IMAGES // BATCH}"):
        run(tmp_path, epochs=1)
    assert run(tmp_path, epochs=1, name="fine-tuning") == first


@decided_alike
def test_data_and_settings_that_changed_are_said(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batches=5)
    run(tmp_path, epochs=EPOCHS + 1)
    assert f"epochs was {EPOCHS} and is {EPOCHS + 1}" in caplog.text
    assert caplog.text.count(" was ") == 2, "the data and the optimizer are as they were"


@decided_alike
def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.delitem(sys.modules, "spotkeep.integrations.keras")
    with pytest.raises(ImportError, match="install 'keras>=3', and torch"):
        importlib.import_module("spotkeep.integrations.keras")
