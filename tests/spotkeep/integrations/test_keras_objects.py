"""What a training with Keras uses beyond what Keras gathers: it is found, and a resume ends with the same bits.

On torch, TensorFlow or JAX: what KERAS_BACKEND says, one in a process.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import shutil
import signal

import numpy as np
import pytest

BACKEND = os.environ["KERAS_BACKEND"]
backend_library = pytest.importorskip(BACKEND)
keras = pytest.importorskip("keras")

from spotkeep import UsageError, training_folder  # noqa: E402
from spotkeep.integrations.keras import best_files, fit_resumably  # noqa: E402

pytestmark = [
    {"torch": pytest.mark.torch, "tensorflow": pytest.mark.tensorflow, "jax": pytest.mark.jax}[BACKEND],
    pytest.mark.long,
    # Keras 3.15 and torch 2.13 do not know NumPy 2's way to ask for an array yet.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]

ROWS, BATCH, EPOCHS = 24, 6, 3
STEPS = EPOCHS * ROWS // BATCH
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
ARRAYS = {"x": X, "y": Y, "batch_size": BATCH}
ops, layers = keras.ops, keras.layers
eager = pytest.mark.skipif(BACKEND != "torch", reason="its step runs Python each time on torch alone")


class StopsAfter(keras.callbacks.Callback):
    """Raises, or gets a notice, after so many batches of all."""

    def __init__(self, batches=None, signum=None):
        super().__init__()
        self.batches, self.signum, self.seen = batches, signum, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.batches:
            if self.signum is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.signum)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def network(*, rate=0.0):
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dropout(rate), layers.Dense(1)])


def run(make, directory, *, stops_after=None, signum=None):
    """Give the digits of all that was trained: what `make` says counts, and the weights."""
    keras.utils.set_random_seed(4)
    keras.backend.clear_session(free_memory=False)
    model, options, ends = make()
    callbacks = [*options.pop("callbacks", ()), StopsAfter(stops_after, signum)]
    fit_resumably(model, **options, epochs=EPOCHS, verbose=0, callbacks=callbacks, directory=directory, every_steps=2)
    return [np.asarray(ops.convert_to_numpy(value)).tolist() for value in [*model.get_weights(), *ends()]]


def assert_ends_alike(make, tmp_path, *, stops=((3, None), (4, signal.SIGTERM), (7, signal.SIGTERM))):
    """Interrupt it within an epoch without notice, within one by a notice, and at an epoch's end; compare."""
    expected = run(make, tmp_path / "alone")
    for stops_after, signum in stops:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            run(make, tmp_path / "run", stops_after=stops_after, signum=signum)
    assert run(make, tmp_path / "run") == expected


class Custom(keras.Model):
    """A model whose step is its own: `losses_of` gives optimizers, the variables that each updates, and losses."""

    def __init__(self):
        super().__init__()
        self.network = network()
        self.built = True

    def call(self, x):
        return self.network(x)

    def losses_of(self, x, y):
        raise AssertionError("each kind of model has its own")

    def train_step(self, data):
        x, y = data
        for optimizer, variables, loss in self.losses_of(x, y):
            if BACKEND == "torch":
                self.zero_grad()
                for variable in variables:
                    variable.value.grad = None
                loss().backward()
                with backend_library.no_grad():
                    optimizer.apply([variable.value.grad for variable in variables], variables)
            else:
                with backend_library.GradientTape() as tape:
                    value = loss()
                optimizer.apply(tape.gradient(value, [v.value for v in variables]), variables)
        return {"done": ops.zeros(())}


custom = pytest.mark.skipif(BACKEND == "jax", reason="a step of its own is without side effects on JAX")


def two_optimizers():
    class Duel(Custom):
        def __init__(self):
            super().__init__()
            self.judge = keras.Sequential([layers.Input((1,)), layers.Dense(2, "tanh"), layers.Dense(1)])
            self.optimizers = {"judge": keras.optimizers.Adam(0.05), "maker": keras.optimizers.AdamW(0.02)}

        def losses_of(self, x, y):
            def judged(value, truth):
                logits = self.judge(value)
                return ops.mean(keras.losses.binary_crossentropy(ops.full((BATCH, 1), truth), logits, from_logits=True))

            yield (
                self.optimizers["judge"],
                self.judge.trainable_variables,
                lambda: judged(y, 1.0) + judged(self.network(x), 0.0),
            )
            yield self.optimizers["maker"], self.network.trainable_variables, lambda: judged(self.network(x), 1.0)

    model = Duel()
    model.compile()
    optimizers = model.optimizers.values()
    return model, dict(ARRAYS), lambda: [v for one in optimizers for v in one.variables]


class Scaled(keras.losses.Loss):
    """A loss with a weight of its own."""

    def __init__(self):
        super().__init__()
        self.temperature = keras.Variable(1.0)

    def call(self, y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred * self.temperature), -1)


SHARED = {}


def loss_with_a_weight_and_objects_outside():
    loss, optimizer = Scaled(), keras.optimizers.SGD(0.1, momentum=0.9)
    SHARED["seeds"], SHARED["metric"] = keras.random.SeedGenerator(3), keras.metrics.Mean()

    class Learned(Custom):
        def losses_of(self, x, y):
            x = x + keras.random.normal((BATCH, 4), seed=SHARED["seeds"])
            SHARED["metric"].update_state(x)
            yield optimizer, [*self.trainable_variables, loss.temperature], lambda: ops.mean(loss(y, self.network(x)))

    model = Learned()
    model.compile()
    ends = lambda: [loss.temperature, *optimizer.variables, *SHARED["metric"].variables]  # noqa: E731
    return model, dict(ARRAYS), ends


@custom
@pytest.mark.parametrize("make", [two_optimizers, loss_with_a_weight_and_objects_outside])
def test_what_a_step_of_its_own_updates_comes_back(tmp_path, make):
    assert_ends_alike(make, tmp_path)


@eager
def test_what_python_keeps_between_the_steps_comes_back(tmp_path):
    def make():
        class Counting(Custom):
            def __init__(self):
                super().__init__()
                self.turn, self._moved, self.seen = 0, np.zeros(2), []
                self.random = np.random.default_rng(3)
                self.wrapped = layers.TorchModuleWrapper(backend_library.nn.BatchNorm1d(4))
                self.descent = backend_library.optim.SGD(self.network.parameters(), 0.1, momentum=0.9)

            def losses_of(self, x, y):
                self.turn += 1
                self._moved += self.random.normal(size=2)
                self.seen.append(float(keras.random.normal(())))
                self.wrapped(x, training=True)
                if self.turn % 3 == 0:
                    self.descent.zero_grad()
                    ops.mean(self.network(x) * self.seen[-1]).backward()
                    self.descent.step()
                return ()

        model = Counting()
        model.compile()
        ends = lambda: [model.turn, model._moved, model.seen, model.wrapped.module.running_var]  # noqa: E731
        return model, dict(ARRAYS), ends

    assert_ends_alike(make, tmp_path)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="variables of TensorFlow")
def test_variables_of_the_backend_itself_come_back(tmp_path):
    tf = backend_library

    def make():
        class Queue(Custom):
            def __init__(self):
                super().__init__()
                self.queue, self.random = tf.Variable(tf.zeros((2, 4))), tf.random.Generator.from_seed(5)

            def losses_of(self, x, y):
                self.queue.assign(tf.concat([self.queue[1:], x[:1] + self.random.normal((1, 4))], 0))
                return ()

        model = Queue()
        model.compile()
        return model, dict(ARRAYS), lambda: [model.queue, model.random.state]

    assert_ends_alike(make, tmp_path)


def compiled(data, *, optimizer=None, callbacks=(), rate=0.0, ends=list):
    model = network(rate=rate)
    model.compile(optimizer or keras.optimizers.Adam(0.05), "mse")
    return model, {**data, "callbacks": list(callbacks)}, lambda: [*model.optimizer.variables, *ends()]


class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.order = np.arange(ROWS)

    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, index):
        chosen = self.order[index * BATCH : (index + 1) * BATCH]
        return X[chosen], Y[chosen]


class InStateAtTheBeginning(Rows):
    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(5)

    def on_epoch_begin(self):
        self.random.shuffle(self.order)

    def state_dict(self):
        return {"order": self.order.copy(), "random": self.random.bit_generator.state}

    def load_state_dict(self, state):
        self.order, self.random.bit_generator.state = np.array(state["order"]), state["random"]


class AtTheEnd(Rows):
    """As most datasets of Keras do it."""

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class WithAListAndAGeneratorOfItsOwn(Rows):
    def __init__(self):
        super().__init__()
        self.files, self.epoch = [f"row {row}" for row in range(ROWS)], 0
        self.random = random.Random(4)  # noqa: S311 - it shuffles

    def on_epoch_begin(self):
        self.epoch += 1
        self.random.shuffle(self.files)
        self.order = np.array([int(file.split()[1]) for file in self.files]) if self.epoch > 1 else self.order


GENERATOR = np.random.default_rng(8)


class FromTheStateOfTheScript(Rows):
    def on_epoch_begin(self):
        GENERATOR.shuffle(self.order)


class Augmented(Rows):
    """Draws while it loads."""

    def __init__(self):
        super().__init__()
        self.noise = layers.GaussianNoise(0.1, seed=2)
        self.random = np.random.RandomState(3)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        x = np.asarray(ops.convert_to_numpy(self.noise(x, training=True)))
        return x + self.random.normal(size=x.shape).astype("float32"), y


# TensorFlow and JAX compile each model anew: seconds each time. What is found and put back is decided alike.
DATASETS = [
    (AtTheEnd, False),
    pytest.param(InStateAtTheBeginning, True, marks=eager),
    pytest.param(WithAListAndAGeneratorOfItsOwn, False, marks=eager),
    pytest.param(FromTheStateOfTheScript, True, marks=eager),
    pytest.param(FromTheStateOfTheScript, False, marks=eager),
    pytest.param(Augmented, False, marks=eager),
]


@pytest.mark.parametrize(("kind", "in_state"), DATASETS)
def test_a_dataset_is_where_it_was(tmp_path, kind, in_state):
    def make():
        GENERATOR.bit_generator.state = np.random.default_rng(8).bit_generator.state
        data = kind()
        validation = kind()
        state = {"data": data if hasattr(data, "state_dict") else GENERATOR}
        options = {"x": data, "shuffle": False, "validation_data": validation}
        options = {**options, "state": state} if in_state else options
        return compiled(options, ends=lambda: [data.order, validation.order])

    assert_ends_alike(make, tmp_path)


@eager
@pytest.mark.parametrize("in_state", [False, True])
def test_samplers_and_generators_of_a_loader_are_where_they_were(tmp_path, in_state):
    data = importlib.import_module("torch.utils.data")

    class Sampler(data.Sampler):
        def __init__(self, random):
            self.random, self.epoch = random, 0

        def __len__(self):
            return ROWS

        def __iter__(self):
            self.epoch += 1
            order = self.random.permutation(ROWS)
            return iter(order[:: -1 if self.epoch % 2 else 1].tolist())

    class Noise(data.Dataset):
        def __init__(self, generator):
            self.generator = generator

        def __len__(self):
            return ROWS

        def __getitem__(self, index):
            return X[index] + float(backend_library.rand((), generator=self.generator)), Y[index]

    def make(sampled):
        def of_sampler():
            random, generator = np.random.default_rng(1), backend_library.Generator().manual_seed(2)
            by = {"sampler": Sampler(random)} if sampled else {"generator": generator, "shuffle": True}
            x = data.DataLoader(Noise(generator), BATCH, **by)
            state = {"random": random, "generator": generator} if in_state else {}
            return compiled({"x": x, "shuffle": False, "state": state}, ends=lambda: [generator.get_state()])

        return of_sampler

    assert_ends_alike(make(True), tmp_path / "sampler")
    assert_ends_alike(make(False), tmp_path / "generator")


def generated(random):
    while True:
        x = random.normal(size=(BATCH, 4)).astype("float32")
        yield x, x.sum(1, keepdims=True)


def test_a_generator_goes_on_where_it_was_in_any_epoch(tmp_path):
    def make():
        random = np.random.default_rng(6)
        options = {"x": generated(random), "steps_per_epoch": STEPS // EPOCHS}
        # TensorFlow loads ahead: there its random numbers must not stand in the state.
        return compiled(options if BACKEND == "tensorflow" else {**options, "state": {"random": random}})

    assert_ends_alike(make, tmp_path)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a dataset of TensorFlow")
@pytest.mark.parametrize("again", [False, None])
def test_a_dataset_that_shuffles_in_each_epoch_is_named(tmp_path, caplog, again):
    rows = backend_library.data.Dataset.from_tensor_slices((X, Y)).shuffle(ROWS, reshuffle_each_iteration=again)
    run(lambda: compiled({"x": rows.batch(BATCH).prefetch(2), "shuffle": False}), tmp_path)
    assert ("shuffles" in caplog.text) is (again is None)


@eager
def test_other_batches_of_several_workers_are_a_warning(tmp_path, caplog):
    class Draws(Rows):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + np.random.default_rng().normal(size=x.shape).astype("float32"), y

    def make():
        return compiled({"x": Draws(workers=2), "shuffle": False})

    with pytest.raises(SystemExit):
        run(make, tmp_path, stops_after=3, signum=signal.SIGTERM)
    run(make, tmp_path)
    assert "the first 3 batches of epoch 0 are others" in caplog.text
    assert "several workers" in caplog.text


@eager
def test_a_generator_that_ends_too_early_is_named(tmp_path):
    few = (batch for batch in itertools.islice(generated(np.random.default_rng(6)), 7))
    with pytest.raises(UsageError, match="the generator ended after 7 batches"):
        run(lambda: compiled({"x": few, "steps_per_epoch": 4}), tmp_path)


@eager
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_a_generator_of_one_pass_is_refused_for_several_epochs_and_taken_for_one(tmp_path):
    def few():
        yield from itertools.islice(generated(np.random.default_rng(6)), 4)

    with pytest.raises(UsageError, match=r"first two batches in each later one\. Pass steps_per_epoch"):
        run(lambda: compiled({"x": few()}), tmp_path / "several")
    model, options, _ = compiled({"x": few(), "shuffle": False})
    fit_resumably(model, **options, epochs=EPOCHS, initial_epoch=EPOCHS - 1, verbose=0, directory=tmp_path / "one")
    assert int(model.optimizer.iterations) == 4


@eager
@pytest.mark.parametrize("data", [Rows, lambda: importlib.import_module("torch.utils.data").DataLoader(Rows(), None)])
def test_data_in_whose_middle_an_epoch_ends_is_named(tmp_path, caplog, data):
    run(lambda: compiled({"x": data(), "shuffle": False, "steps_per_epoch": ROWS // BATCH}), tmp_path / "fits")
    assert "middle of the data" not in caplog.text
    run(lambda: compiled({"x": data(), "shuffle": False, "steps_per_epoch": 2}), tmp_path / "does not")
    assert "steps_per_epoch is 2, and the data has 4 batches" in caplog.text


@eager
@pytest.mark.parametrize("name", ["best.keras", "best-{epoch}-{loss:.3f}.keras"])
def test_the_best_model_comes_back_from_the_checkpoint_where_its_file_is_lost(tmp_path, monkeypatch, caplog, name):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path / "run"))
    machine = tmp_path / "machine"

    def make():
        shutil.rmtree(machine, ignore_errors=True)
        # A rate at which the model is worse from the second epoch on.
        best = keras.callbacks.ModelCheckpoint(machine / "deep" / name, monitor="loss", save_best_only=True)
        worse = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 if epoch == 0 else 9.0)

        def ends():
            (file,) = (machine / "deep").iterdir()
            return [file.name, *keras.models.load_model(file).get_weights()]

        return compiled(ARRAYS, callbacks=[worse, best], ends=ends)

    assert_ends_alike(make, tmp_path)
    assert "lies outside" in caplog.text


@pytest.mark.parametrize("variable", [True, False])
def test_the_best_model_is_carried_where_it_lies_outside_of_what_the_platform_keeps(
    tmp_path, monkeypatch, caplog, variable
):
    kept = tmp_path / "kept"
    kept.mkdir()
    if variable:
        monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(kept))
    else:
        monkeypatch.setattr(training_folder, "PLATFORM_DIRECTORY", kept)
    of_a_name = {"kept_in": kept / "fold-2"}
    for inside in (kept, kept / "fold-2"):
        best_files([keras.callbacks.ModelCheckpoint(inside / "best.keras", save_best_only=True)], **of_a_name)
    assert not caplog.records
    best_files([keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True)], **of_a_name)
    assert "lies outside" in caplog.text


@eager
def test_a_best_model_that_is_gone_is_named_before_the_first_step(tmp_path, caplog):
    def make():
        best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss", save_best_only=True)
        return compiled(ARRAYS, callbacks=[best])

    with pytest.raises(KeyboardInterrupt):
        run(make, tmp_path / "run", stops_after=7)
    assert "best.keras" not in caplog.text
    (tmp_path / "best.keras").unlink()
    with pytest.raises(KeyboardInterrupt):
        run(make, tmp_path / "run", stops_after=8)
    assert "best.keras, in which ModelCheckpoint wrote the best model, is not there any more" in caplog.text


class NoExceptionError(BaseException):
    """What torch's CheckpointException is."""


@eager
@pytest.mark.parametrize("kind", [AttributeError, NoExceptionError])
def test_an_object_whose_state_cannot_be_had_is_named(tmp_path, caplog, kind):
    class NotReady(Rows):
        def state_dict(self):
            raise kind("nothing was loaded yet")

        def load_state_dict(self, state):
            raise AssertionError("it has given no state")

    run(lambda: compiled({"x": NotReady(), "shuffle": False}), tmp_path)
    assert "what x keeps is not saved: nothing was loaded yet" in caplog.text


@eager
def test_a_log_that_is_written_anew_is_named(tmp_path, caplog):
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    run(lambda: compiled(ARRAYS, callbacks=[log]), tmp_path / "run")
    assert "CSVLogger writes" in caplog.text


def test_what_callbacks_change_in_batches_that_are_passed_over_does_not_count(tmp_path):
    def make():
        rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
        seen = {"batches": 0}
        counts = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.update(batches=seen["batches"] + 1)
        )
        options = {**ARRAYS, "state": {"seen": seen}}
        return compiled(options, callbacks=[rate, counts], rate=0.5, ends=lambda: [seen["batches"]])

    assert_ends_alike(make, tmp_path)


@eager
def test_averaged_weights_and_a_scaled_loss_come_back(tmp_path):
    def make():
        inner = keras.optimizers.Adam(0.05, use_ema=True, ema_overwrite_frequency=5)
        optimizer = keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=3)
        return compiled(ARRAYS, optimizer=optimizer, callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)])

    assert_ends_alike(make, tmp_path)


@eager
def test_a_layer_that_was_frozen_stays_frozen(tmp_path):
    def make():
        def freeze(epoch, logs):
            if epoch == 1:
                model.layers[0].trainable = False
                model.layers[1].rate = 0.3

        model, options, ends = compiled(
            ARRAYS, rate=0.1, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=freeze)]
        )
        return model, options, lambda: [*ends(), model.layers[0].trainable]

    assert_ends_alike(make, tmp_path, stops=[(10, signal.SIGTERM)])


@eager
@pytest.mark.parametrize("when", ["in the first batch", "by another compile"])
def test_what_comes_after_the_beginning_and_is_not_saved_is_refused_by_name(tmp_path, when):
    def make():
        class Late(Custom):
            def losses_of(self, x, y):
                if not hasattr(self, "late"):
                    self.late = {"scale": keras.Variable(1.0, name="scale")}
                return ()

        if when == "in the first batch":
            model = Late()
            model.compile()
            return model, dict(ARRAYS), list
        again = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: setattr(model, "optimizer", None))
        model, options, ends = compiled(ARRAYS, callbacks=[again])
        return model, options, ends

    expected = r"scale.* Make them before fit_resumably" if when == "in the first batch" else "compiled anew"
    with pytest.raises(UsageError, match=expected):
        run(make, tmp_path / "run")


@pytest.mark.skipif(BACKEND == "tensorflow", reason="takes its batches where Python does not see them")
def test_other_batches_than_those_that_were_trained_on_are_refused(tmp_path):
    def make(seed):
        x = X + np.random.default_rng(seed).normal(size=X.shape).astype("float32")
        return lambda: compiled({**ARRAYS, "x": x})

    with pytest.raises(SystemExit):
        run(make(0), tmp_path / "run", stops_after=3, signum=signal.SIGTERM)
    with pytest.raises(UsageError, match="first 3 batches of epoch 0 are others than those that were trained on"):
        run(make(1), tmp_path / "run")
