"""A training with JAX, interrupted again and again after any steps, ends with the bits of an undisturbed run."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import re
import signal
import sys
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
flax = pytest.importorskip("flax")

import jax.numpy as jnp  # noqa: E402
from flax import linen, nnx, struct  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

from spotkeep import Checkpointer, StateMismatchError  # noqa: E402
from spotkeep.integrations.jax import PytreeState  # noqa: E402

pytestmark = [pytest.mark.jax, pytest.mark.long]

STEPS = 6
PIXELS = np.random.default_rng(0).normal(size=(16, 8)).astype("f4")
LABELS = np.arange(16) % 3
OPTIMIZER = optax.adamw(optax.cosine_decay_schedule(0.01, STEPS))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Training:
    """Of a script of its own: what optax gives is named tuples, and the moving average is weakly typed."""

    layers: dict
    optimizer: tuple
    key: jax.Array
    old_key: jax.Array
    average: jax.Array
    count: int


def own_training():
    key = jax.random.key(3)
    layers = {
        "hidden": [jax.random.normal(key, (8, 5)), jnp.zeros(5)],
        "last": (jax.random.normal(key, (5, 3), jnp.bfloat16),),
    }
    return Training(layers, OPTIMIZER.init(layers), key, jax.random.PRNGKey(4), jnp.asarray(0.0), 0)


def own_step(training):
    key, noise = jax.random.split(training.key)
    old_key, old_noise = jax.random.split(training.old_key)

    def loss(layers):
        (weights, bias), (last,) = layers["hidden"], layers["last"]
        shaken = PIXELS + 0.1 * jax.random.normal(noise, PIXELS.shape) + 0.1 * jax.random.normal(old_noise, (8,))
        return optax.softmax_cross_entropy_with_integer_labels(jnp.tanh(shaken @ weights + bias) @ last, LABELS).mean()

    value, gradients = jax.value_and_grad(loss)(training.layers)
    updates, optimizer = OPTIMIZER.update(gradients, training.optimizer, training.layers)
    layers = optax.apply_updates(training.layers, updates)
    average = training.average * 0.5 + jax.device_get(value).item()
    return Training(layers, optimizer, key, old_key, average, training.count + 1)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, pixels):
        hidden = linen.Dropout(0.3, deterministic=False)(linen.relu(linen.Dense(5)(pixels)))
        return linen.Dense(3)(hidden)


# One for all runs: JAX compiles a step anew for each function that it finds in the state.
LINEN = Linen()


def linen_training():
    key = jax.random.key(1)
    params = LINEN.init({"params": key, "dropout": key}, PIXELS)["params"]
    return TrainState.create(apply_fn=LINEN.apply, params=params, tx=OPTIMIZER), key


@jax.jit
def linen_step(training):
    state, key = training
    key, dropout = jax.random.split(key)

    def loss(params):
        logits = state.apply_fn({"params": params}, PIXELS, rngs={"dropout": dropout})
        return optax.softmax_cross_entropy_with_integer_labels(logits, LABELS).mean()

    return state.apply_gradients(grads=jax.grad(loss)(state.params)), key


class Net(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.norm = nnx.Linear(8, 5, rngs=rngs), nnx.BatchNorm(5, rngs=rngs)
        self.dropout, self.last = nnx.Dropout(0.3, rngs=rngs), nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, pixels):
        return self.last(self.dropout(nnx.relu(self.norm(self.hidden(pixels)))))


def nnx_training():
    model = Net(nnx.Rngs(2))
    return model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)


@nnx.jit
def nnx_update(model, optimizer):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(PIXELS), LABELS).mean()

    optimizer.update(model, nnx.grad(loss)(model))


def nnx_step(training):
    nnx_update(*training)
    return training


KINDS = {
    "a script of its own": (own_training, own_step),
    "Flax linen": (linen_training, linen_step),
    "Flax nnx": (nnx_training, nnx_step),
}


def run(directory, kind, *, stop_at=None, signum=None):
    make, step_once = KINDS[kind]
    training = PytreeState(make())
    with Checkpointer({"training": training}, directory, every_steps=1) as checkpointer:
        for step in checkpointer.steps(STEPS):
            training.value = step_once(training.value)
            if step + 1 == stop_at:
                if signum is None:
                    raise KeyboardInterrupt
                os.kill(os.getpid(), signum)
    return bits(training.value)


def bits(tree):
    return [
        (jax.tree_util.keystr(path), str(getattr(leaf, "dtype", type(leaf))), raw(leaf), weak(leaf))
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def raw(leaf):
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()


def weak(leaf):
    return isinstance(leaf, jax.Array) and leaf.aval.weak_type


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Gives the end of a training that nothing happens to; each kind is trained once."""
    return functools.cache(lambda kind: run(tmp_path_factory.mktemp("undisturbed"), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_again_and_again_it_ends_with_the_same_bits(tmp_path, undisturbed, a_few_of, kind):
    expected = undisturbed(kind)
    assert expected != bits(KINDS[kind][0]())
    # In its last step a training has nothing left to be interrupted in.
    for stop_at in a_few_of(range(1, STEPS), 2):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, kind, stop_at=stop_at)
        with pytest.raises(SystemExit) as ending:
            run(tmp_path, kind, stop_at=stop_at, signum=signal.SIGTERM)
        assert ending.value.code == 75
        assert (tmp_path / f"step-{stop_at}").is_dir(), "no step is lost"
    assert run(tmp_path, kind) == expected


def test_arrays_of_any_type_come_back(tmp_path):
    types = ["bfloat16", "float8_e4m3fn", "int4", "float16", "complex64", "bool", "uint32"]
    values = [jnp.asarray([0, 1, 1, 0]).astype(dtype) for dtype in types]
    tree = [(value, value[:0], value[1]) for value in values]
    with Checkpointer({"tree": PytreeState(tree)}, tmp_path) as checkpointer:
        checkpointer.save(1)
    other = PytreeState([(jnp.zeros_like(value), value[:0], jnp.zeros_like(value[0])) for value in values])
    Checkpointer({"tree": other}, tmp_path).restore()
    assert bits(other.value) == bits(tree)


def test_an_array_comes_back_to_the_device_of_the_scripts_own(tmp_path):
    placed = jax.device_put(jnp.ones(2), jax.devices()[0])
    assert placed.committed
    with Checkpointer({"tree": PytreeState((placed, jnp.ones(2)))}, tmp_path) as checkpointer:
        checkpointer.save(1)
    other = PytreeState((placed * 0, jnp.zeros(2)))
    Checkpointer({"tree": other}, tmp_path).restore()
    assert [leaf.committed for leaf in other.value] == [True, False]


def test_another_tree_does_not_fit_and_nothing_is_changed(tmp_path):
    with Checkpointer({"tree": PytreeState({"a": jnp.ones(2), "b": jax.random.key(0)})}, tmp_path) as checkpointer:
        checkpointer.save(1)
    for tree, problem in (
        ({"a": jnp.ones(2)}, r"other leaves than the one that was saved: \['b'\]"),
        ({"a": jnp.ones(3), "b": jax.random.key(0)}, r"\['a'\] was float32 of shape \(2,\) and is float32"),
        ({"a": jnp.ones(2), "b": jax.random.key(0, impl="rbg")}, r"\['b'\] was keys of threefry2x32 of shape"),
        ({"a": jnp.ones(2, "i4"), "b": jax.random.key(0)}, r"\['a'\] was float32 .* and is int32"),
    ):
        other = PytreeState(tree)
        with pytest.raises(StateMismatchError, match=problem):
            Checkpointer({"tree": other}, tmp_path).restore()
        assert other.value is tree


@struct.dataclass
class Staged:
    """What decides what is compiled lies outside the leaves."""

    weights: Any
    inner: Any
    stage: int = struct.field(pytree_node=False, default=0)
    apply: Any = struct.field(pytree_node=False, default=None)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["array"], meta_fields=["settings", "rule"])
@dataclasses.dataclass
class Configured:
    array: Any
    settings: Any
    rule: Any = None


def changed_in_place(tree):
    tree.settings["rate"] = 0.5
    tree.settings["more"].append("x")
    return tree


def changed_in_a_module():
    def make():
        return {"model": Net(nnx.Rngs(2)), "rngs": nnx.Rngs(5)}

    def change(tree):
        tree["model"].norm.use_running_average = True
        tree["model"].dropout.deterministic = True
        tree["model"].dropout.rate = 0.7
        tree["rngs"].default()
        return tree

    return make, change


def changed_in_containers():
    def make():
        return {
            "average": None,
            "seen": [jnp.zeros(2)],
            "optimizer": OPTIMIZER.init({"w": jnp.zeros(3)}),
            "pair": (1, 2),
        }

    def change(tree):
        more = {"weights": jnp.ones(3), "of": {"count": 4, "none": None}}
        return {**tree, "average": more, "seen": [*tree["seen"], jnp.ones(1), jnp.ones((2, 2))], "new": jnp.arange(3)}

    return make, change


CHANGES = {
    "fields of Flax' dataclasses": (
        lambda: Staged(jnp.ones(2), {"deep": [Staged(jnp.ones(1), None)]}, apply=lambda x: x),
        lambda tree: tree.replace(stage=3, inner={"deep": [tree.inner["deep"][0].replace(stage=True)]}),
    ),
    "fields of dataclasses": (
        lambda: Configured(jnp.ones(2), {"rate": (0.1, "slow")}),
        lambda tree: dataclasses.replace(tree, settings={"rate": (0.5, "fast"), "and": [None]}),
    ),
    "what a field holds": (lambda: Configured(jnp.ones(2), {"rate": 0.1, "more": []}), changed_in_place),
    "attributes of modules": changed_in_a_module(),
    "keys, items and what was None": changed_in_containers(),
    "an array that grows": (lambda: {"queue": jnp.ones(2)}, lambda tree: {"queue": jnp.arange(6.0).reshape(2, 3)}),
}


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES)
def test_what_the_training_changes_outside_the_leaves_comes_back(tmp_path, make, change):
    training = PytreeState(make())
    with Checkpointer({"training": training}, tmp_path) as checkpointer:
        checkpointer.save(1)
        assert "tree" not in training.state_dict(), "what did not change is not described"
        training.value = change(training.value)
        checkpointer.save(2)
    again = PytreeState(make())
    Checkpointer({"training": again}, tmp_path).restore()
    assert bits(again.value) == bits(training.value)
    assert without_addresses(again.value) == without_addresses(training.value)


def without_addresses(tree):
    return re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree_util.tree_structure(tree)))


def test_a_change_that_cannot_be_saved_is_refused_by_the_name_of_its_field():
    training = PytreeState({"a": Staged(jnp.ones(2), Configured(jnp.ones(1), "x"), apply=len)})
    training.state_dict()
    changed = training.value["a"].replace(apply=OPTIMIZER, inner=Configured(jnp.ones(1), "y", rule=object()))
    training.value = {"a": changed, "b": Configured(jnp.ones(1), "x")}
    with pytest.raises(
        ValueError, match=r"(?s)\['a'\]\.apply was .*len.* is Gradient.*; \['a'\]\.inner\.rule.*; \['b'\] is a Con"
    ):
        training.state_dict()


def test_functions_that_are_made_anew_are_the_same():
    def make(factor):
        return Staged(jnp.ones(2), None, apply=functools.partial(lambda x, by: x * by, by=factor))

    training = PytreeState((make(2), TrainState.create(apply_fn=len, params={}, tx=optax.adam(0.1))))
    assert "tree" not in training.state_dict()
    training.value = make(2), TrainState.create(apply_fn=len, params={}, tx=optax.adam(0.1))
    training.state_dict()
    training.value = make(3), TrainState.create(apply_fn=len, params={}, tx=optax.adam(0.2))
    with pytest.raises(ValueError, match=r"\[0\]\.apply was functools.partial.*\[1\]\.tx was Gradient"):
        training.state_dict()


def test_what_cannot_be_saved_is_refused_by_name():
    donated = jnp.ones(2)
    donated.delete()
    with pytest.raises(ValueError, match=r"\['a'\] has no content.*; \['b'\] is a builtins.object"):
        PytreeState({"a": donated, "b": object()}).state_dict()


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "spotkeep.integrations.jax")
    with pytest.raises(ImportError, match=r"install 'jax>=0\.6'"):
        importlib.import_module("spotkeep.integrations.jax")
