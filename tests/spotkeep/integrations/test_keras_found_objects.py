"""What a training with Keras uses beyond what Keras gathers: it is found, and a resume ends with the same bits.

On torch, TensorFlow or JAX: what KERAS_BACKEND says, one in a process.
"""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import pytest

BACKEND = os.environ["KERAS_BACKEND"]
backend_library = pytest.importorskip(BACKEND)
keras = pytest.importorskip("keras")

from spotkeep.integrations.keras import fit_resumably  # noqa: E402

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


def assert_ends_alike(make, tmp_path):
    """Interrupt it within an epoch without notice, within one by a notice, and at an epoch's end; compare."""
    expected = run(make, tmp_path / "alone")
    for stops_after, signum in ((3, None), (4, signal.SIGTERM), (7, signal.SIGTERM)):
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
        raise NotImplementedError

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
    return model, {"x": X, "y": Y, "batch_size": BATCH}, lambda: [v for one in optimizers for v in one.variables]


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
    return model, {"x": X, "y": Y, "batch_size": BATCH}, ends


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
        return model, {"x": X, "y": Y, "batch_size": BATCH}, ends

    assert_ends_alike(make, tmp_path)


def compiled(data, *, optimizer=None, callbacks=(), rate=0.0, ends=list):
    model = network(rate=rate)
    model.compile(optimizer or keras.optimizers.Adam(0.05), "mse")
    return model, {**data, "callbacks": list(callbacks)}, lambda: [*model.optimizer.variables, *ends()]


ARRAYS = {"x": X, "y": Y, "batch_size": BATCH}


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


loads_ahead = pytest.mark.skipif(BACKEND == "tensorflow", reason="loads ahead: draws must follow from the batch")
DATASETS = [
    InStateAtTheBeginning,
    AtTheEnd,
    WithAListAndAGeneratorOfItsOwn,
    FromTheStateOfTheScript,
    pytest.param(Augmented, marks=loads_ahead),
]


@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("in_state", [False, True])
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
