"""Keras 3 on torch, TensorFlow or JAX: `fit` goes on in the middle of an epoch, with everything it had.

`fit` has no way to begin at a batch. So the epoch begins again with the random numbers it had begun with, its batches
are loaded as before, and those that were trained on are passed over; then all goes on as it was when it was saved.

TensorFlow shuffles arrays with random numbers that cannot be saved. There the order of each epoch is drawn by NumPy.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import logging
import math
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import StateError, UsageError
from spotkeep.loaded import loaded
from spotkeep.state.encoding import copied_state, encode_state, stateful_kind
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states
from spotkeep.state.reached import ChangedAttributes, Reached, is_own, names_in_code, reached
from spotkeep.state.restoring import restore_state

try:
    import keras
    import numpy as np
    from keras import callbacks as known
except ImportError as error:
    raise ImportError(
        f"spotkeep.integrations.keras needs Keras 3: install 'keras>=3', and torch, TensorFlow or JAX ({error})"
    ) from error

_logger = logging.getLogger("spotkeep")

_BACKENDS = ("torch", "tensorflow", "jax")
_PLATFORM_DIRECTORY = Path("/opt/ml/checkpoints")
_DEFAULT_BATCH_SIZE = 32
"""The batch size that `fit` takes where none is given."""

# What these callbacks keep from one epoch to the next. They have no way of their own to give it.
_ATTRIBUTES = (
    (known.EarlyStopping, ("wait", "stopped_epoch", "best", "best_weights", "best_epoch")),
    (known.ReduceLROnPlateau, ("wait", "best", "cooldown_counter")),
    (
        known.ModelCheckpoint,
        ("best", "_batches_seen_since_last_saving", "_last_batch_seen", "_current_epoch"),
    ),
    (known.History, ("epoch", "history")),
)
_STATELESS = (
    *(known.CSVLogger, known.LambdaCallback, known.LearningRateScheduler, known.ProgbarLogger, known.RemoteMonitor),
    *(known.TensorBoard, known.TerminateOnNaN),
)


def fit_resumably(
    model: Any, *data: Any, callbacks: Sequence[Any] = (), state: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Call this instead of `model.fit(...)`: it goes on where an earlier attempt was interrupted.

    ```python
    fit_resumably(model, x, y, epochs=10, callbacks=[EarlyStopping(patience=3)], every_seconds="auto")
    ```

    On a notice the state is saved after the current batch and the script exits with code 75. Saved are the model's
    variables (seeds included), the optimizer's, the running metrics, the epoch and the batch in it, the random states
    of Python, NumPy and torch, and what the callbacks keep: EarlyStopping, ReduceLROnPlateau, ModelCheckpoint and
    History, and any other that has `state_dict` and `load_state_dict`.

    Args:
        model: A compiled Keras model.
        *data: As for `model.fit`.
        callbacks: As for `model.fit`.
        state: More to save, as for `Checkpointer`.
        **options: As for `model.fit` and for `Checkpointer`: `epochs`, `validation_data`, ..., and `directory`,
            `every_steps`, `every_seconds`, ...

    Returns:
        The history, as `model.fit` does.

    Raises:
        UsageError: If Keras runs on a backend that cannot train so, or a callback does the same work.
        SystemExit: With code 75, after a notice; with 0, after the step to pause at.
    """
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise UsageError(f"Keras runs on {backend}; set KERAS_BACKEND to one of {', '.join(_BACKENDS)}")
    others = list(callbacks)
    for callback in others:
        if isinstance(callback, known.BackupAndRestore):
            raise UsageError("BackupAndRestore would begin at another epoch than the checkpoint; leave it out")
        if isinstance(callback, known.CSVLogger) and not callback.append:
            _logger.warning(
                "CSVLogger writes %s anew after each interruption, and what it held is lost; pass append=True, and a "
                "file that is kept",
                callback.filename,
            )
        if not (_has_state(callback) or _attributes(callback) or isinstance(callback, _STATELESS)):
            _logger.warning(
                "what the callback %s keeps is not saved; if it keeps anything from one batch or epoch to the next, "
                "give it state_dict and load_state_dict",
                type(callback).__name__,
            )
    ours = inspect.signature(Checkpointer).parameters
    checkpoints = {name: value for name, value in options.items() if name in ours}
    fitting = {name: value for name, value in options.items() if name not in ours}
    given = {**dict(zip(("x", "y"), data)), **fitting}
    # Before `fit` begins, which draws from the data already.
    drawn_from = _Beyond(
        {name: given[name] for name in ("x", "y", "sample_weight", "validation_data") if name in given},
        followed=dict(state or {}),
        of_data=True,
    )
    stream = _stream(given)
    if stream is not None:
        data, fitting = (), {**given, "x": stream, "shuffle": False}
    # The last one: when it saves, the others have taken note of the batch.
    last = _CheckpointCallback(
        *(others, dict(state or {}), drawn_from, checkpoints),
        stream=stream,
        concurrent=_loads_concurrently(given.get("x")),
    )
    if backend == "tensorflow":
        fitting = _in_an_order_of_numpy(inspect.signature(model.fit).bind(*data, **fitting).arguments)
        data = ()
        _build(model, fitting.get("x"))
    with ExitStack() as stack:
        stack.push(last.close)
        return model.fit(*data, callbacks=[*others, last], **fitting)


def _in_an_order_of_numpy(fitting: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments of `fit` with a dataset in the place of arrays: one that is shuffled before each epoch.

    Anything but arrays stays as it is, and so do arrays that are one long stream (`steps_per_epoch`).
    """
    taken = ("x", "y", "sample_weight", "batch_size", "shuffle", "validation_split")
    arrays = tuple(fitting.get(name) for name in ("x", "y", "sample_weight"))
    leaves = [leaf for leaf in keras.tree.flatten(arrays) if leaf is not None]
    if fitting.get("steps_per_epoch") or not leaves or not all(hasattr(leaf, "__array__") for leaf in leaves):
        return dict(fitting)
    rest = {name: value for name, value in fitting.items() if name not in taken}
    arrays = keras.tree.map_structure(lambda leaf: None if leaf is None else np.asarray(leaf), arrays)
    split = fitting.get("validation_split")
    if split and fitting.get("validation_data") is None:
        kept = int(len(leaves[0]) * (1.0 - split))
        rest["validation_data"] = _part(arrays, slice(kept, None))
        arrays = _part(arrays, slice(kept))
    batch_size = fitting.get("batch_size") or _DEFAULT_BATCH_SIZE
    rest.setdefault("validation_batch_size", batch_size)
    batches = _Batches(arrays, batch_size=batch_size, shuffle=bool(fitting.get("shuffle", True)))
    return {**rest, "x": batches, "shuffle": False}


def _loads_concurrently(x: Any) -> bool:
    """Say whether threads or processes of Keras load batches at the same time, in no order of their own."""
    return isinstance(x, keras.utils.PyDataset) and (x.workers > 1 or x.use_multiprocessing)


def _part(arrays: Any, indices: Any) -> Any:
    return keras.tree.map_structure(lambda array: None if array is None else array[indices], arrays)


def _build(model: Any, x: Any) -> None:
    """Make all variables before `fit`, as it does on the other backends: what is restored goes into them."""
    if isinstance(x, keras.utils.PyDataset):
        batch = x[0]
    elif hasattr(x, "element_spec"):
        batch = next(iter(x))
    else:
        return
    model._symbolic_build(data_batch=batch)


class _Batches(keras.utils.PyDataset):
    """Arrays in batches, shuffled before each epoch with NumPy's random numbers, which are restored."""

    def __init__(self, arrays: Any, *, batch_size: int, shuffle: bool) -> None:
        super().__init__()
        self._arrays = arrays
        self._batch_size = batch_size
        self._shuffle = shuffle
        first = next(leaf for leaf in keras.tree.flatten(arrays) if leaf is not None)
        self._order = np.arange(len(first))

    def __len__(self) -> int:
        return -(-len(self._order) // self._batch_size)

    def __getitem__(self, index: int) -> Any:
        chosen = self._order[index * self._batch_size : (index + 1) * self._batch_size]
        x, y, weights = _part(self._arrays, chosen)
        return (x,) if y is None else (x, y) if weights is None else (x, y, weights)

    def on_epoch_begin(self) -> None:
        if self._shuffle:
            self._order = np.random.permutation(len(self._order))


def _stream(given: Mapping[str, Any]) -> _Stream | None:
    """Give a stream in the place of a generator. Warn of data whose epochs end in the middle of it."""
    x, steps = given.get("x"), given.get("steps_per_epoch")
    if isinstance(x, types.GeneratorType) and steps:
        return _Stream(x, steps_per_epoch=steps)
    batches = _batches_of(x, batch_size=given.get("batch_size"), steps=steps)
    if (steps and batches != steps) or (isinstance(x, types.GeneratorType) and given.get("epochs", 1) > 1):
        _logger.warning(
            "an epoch ends in the middle of the data (steps_per_epoch is %s, and the data has %s batches). Where the "
            "next one goes on is not saved: after an interruption in a later epoch the data begins anew. Give a "
            "generator and steps_per_epoch, or a keras.utils.PyDataset whose length is that of an epoch",
            steps,
            "an unknown number of" if batches is None else batches,
        )
    return None


def _batches_of(x: Any, *, batch_size: int | None, steps: int | None) -> int | None:
    """Count the batches of data that has a length of its own; None if that is not known."""
    if isinstance(x, keras.utils.PyDataset):
        return None if x.num_batches is None else int(x.num_batches)
    torch_data = loaded("torch.utils.data")
    if torch_data is not None and isinstance(x, torch_data.DataLoader):
        return len(x) if hasattr(x.dataset, "__len__") else None
    leaves = [leaf for leaf in keras.tree.flatten(x) if hasattr(leaf, "__array__") and getattr(leaf, "shape", None)]
    if not leaves:
        return None
    # Without a size of batches Keras divides arrays into as many as there are steps.
    return -(-int(leaves[0].shape[0]) // batch_size) if batch_size else steps


class _Stream(keras.utils.PyDataset):
    """The batches of a generator, one after the other over all epochs. It can be begun at any of them.

    Args:
        generator: Gives batches, the same ones in each process.
        steps_per_epoch: Batches of an epoch.
    """

    def __init__(self, generator: Iterator[Any], *, steps_per_epoch: int) -> None:
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self._generator = generator
        self._start = 0
        self._made = 0
        self._first: list[Any] = []

    @property
    def num_batches(self) -> None:
        return None

    def __getitem__(self, index: int) -> Any:
        position = self._start + index
        if position < len(self._first):
            return self._first[position]
        if position < self._made:
            raise UsageError(f"batch {position} of the generator was asked for twice; pass a keras.utils.PyDataset")
        return self._make(position)

    def begin_at(self, batch: int) -> None:
        """Begin at a batch: make those before it, and throw them away."""
        self._start = batch
        if self._made < batch:
            self._make(batch - 1)

    def _make(self, position: int) -> Any:
        batch = None
        while self._made <= position:
            try:
                batch = next(self._generator)
            except StopIteration:
                raise UsageError(
                    f"the generator ended after {self._made} batches, and more of them belong to these epochs"
                ) from None
            self._made += 1
            if self._made <= _LOOKED_AT_FIRST:
                self._first.append(batch)
        return batch


_LOOKED_AT_FIRST = 2
"""Batches that Keras looks at before the training begins, and asks for again."""


class _CheckpointCallback(keras.callbacks.Callback):
    """Saves after a batch, or before the next epoch when all that belongs to the last one is done."""

    def __init__(
        self,
        others: list[Any],
        state: dict[str, Any],
        drawn_from: _Beyond,
        options: dict[str, Any],
        *,
        stream: _Stream | None,
        concurrent: bool,
    ) -> None:
        super().__init__()
        self._others = others
        self._given_state = state
        self._drawn_from = drawn_from
        self._options = options
        self._stream = stream
        self._stream_start: dict[str, Any] = {}
        self._loads_concurrently = concurrent
        self._checkpointer = Checkpointer({}, **options)
        self._position = _Position()
        self._state: dict[str, Any] = {}
        self._beyond: _Beyond | None = None
        self._data_state = drawn_from.state()
        self._resumed: dict[str, Any] | None = None
        self._train_function: Any = None
        self._passing_over = False
        self._optimizer: Any = None
        self._best_files: list[_BestFile] = []
        self._entered = False

    def close(self, *ending: Any) -> None:
        """Wait for a save that is running, and give the model back as it was.

        Args:
            *ending: Of `fit`, as `__exit__` gets it: the Checkpointer notes when the script leaves on a notice.
        """
        if self.model is not None:
            self.model._initial_epoch = None
            if self._train_function is not None:
                self.model.train_function, self._train_function = self._train_function, None
        if self._entered:
            self._entered = False
            self._checkpointer.__exit__(*ending)

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        self._position = _Position()
        self._optimizer = model.optimizer
        updated = [] if model.optimizer is None else model.optimizer.variables
        data = self._drawn_from
        self._best_files = [
            _BestFile(callback, kept_in=self._checkpointer.directory)
            for callback in self._others
            if isinstance(callback, known.ModelCheckpoint) and callback.save_best_only
        ]
        self._beyond = _Beyond(
            {"model": model},
            followed={"callbacks": self._others},
            variables_elsewhere=[*model.variables, *updated, *model.metrics_variables, *data.variables.values()],
            objects_elsewhere=[*_inside(self._given_state), *data.objects.values(), *self._others],
            updated=[*model.variables, *data.variables.values()],
            attributes=_sees_attributes(model),
        )
        self._state = {
            **self._given_state,
            "model": _Variables(model, model.variables),
            "optimizer": _Variables(model, updated),
            "metrics": _Variables(model, model.metrics_variables),
            "beyond": self._beyond.state(),
            "data": self._data_state,
            "callbacks": _CallbackStates([*self._others, model.history]),
            "best models": self._best_files,
            "random states": RandomStates(),
            "seed": _GlobalSeed(),
            "fit": self._position,
        }
        if self._stream is not None:
            self._stream_start = copied_state(self._draws())
        self._checkpointer = Checkpointer(self._state, **self._options).__enter__()
        self._entered = True
        self._train_function = model.train_function
        model.train_function = _seeing(self._train_function, self._position)
        if self._checkpointer.noticed:
            self._checkpointer.leave()
        if self._checkpointer.step:
            # Callbacks are told of the epoch and of batches again, and the data is loaded again. Both change things.
            self._resumed = copied_state(self._state)
            # An epoch behind the last one: the training was stopped early, and stays so.
            model._initial_epoch = self.params["epochs"] if self._position.stopped else self._position.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        position = self._position
        if self._resumed is not None and self._stream is not None:
            # The batches before it are made again, with the random numbers that the stream began with.
            restore_state(self._draws(), self._stream_start, step=self._checkpointer.step)
            self._stream.begin_at(epoch * self._stream.steps_per_epoch)
            self._stream_start = copied_state(self._draws())
        if self._resumed is not None and position.batches:
            restore_state(self._state, self._resumed, step=self._checkpointer.step)
            metrics = self.model.get_metrics_result()
            # It may have been saved after the last batch: then there is an evaluation to do first.
            if position.batches != self.params.get("steps") and self._checkpointer.interrupted:
                self._checkpointer.leave()
            if self._stream is None:
                restore_random_states(position.epoch_random)
                restore_state(self._data_state, position.epoch_data, step=self._checkpointer.step)
            else:
                restore_state(self._draws(), self._stream_start, step=self._checkpointer.step)
            position.digest = _Digest()
            self._passing_over = True
            passing = _passing_over(metrics, steps=self.model.steps_per_execution)
            self.model.train_function = _seeing(passing, position)
            return
        if self._resumed is not None:
            self._go_on()
            self.model.reset_metrics()  # those that were saved may be of the epoch before
        position.begin(epoch, self._data_state)
        if self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        position, checkpointer = self._position, self._checkpointer
        if self._passing_over:
            if batch + 1 >= position.batches:
                self._passing_over = False
                self.model.train_function = _seeing(self._train_function, position)
                position.require_same_batches(certain=not self._loads_concurrently)
                self._go_on()
            return
        position.batches = batch + 1
        for best in self._best_files:
            best.note(epoch=position.epoch, batch=batch, logs=logs)
        self._require_what_is_saved()
        checkpointer.log(**{name: value for name, value in (logs or {}).items() if isinstance(value, float)})
        steps = self.params.get("steps")
        checkpointer.complete_step(total_steps=None if steps is None else steps * self.params["epochs"])
        # What follows the last batch belongs to the epoch, so that is waited for, unless there is no time.
        if (position.batches != steps or checkpointer.noticed) and checkpointer.save_if_due():
            checkpointer.leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._passing_over:
            raise UsageError(
                f"the checkpoint was made after {self._position.batches} batches of epoch {epoch}, which has fewer "
                "now; keep the data and the batch size of the run"
            )
        for best in self._best_files:
            best.note(epoch=epoch, batch=None, logs=logs)
        self._position.epoch, self._position.batches = epoch + 1, 0

    def on_train_end(self, logs: Any = None) -> None:
        self._position.stopped = self._position.stopped or self.model.stop_training
        self._checkpointer.save_if_due(last=True)

    def _draws(self) -> dict[str, Any]:
        return {"random": RandomStates(), "data": self._data_state}

    def _go_on(self) -> None:
        """Go on from the very state that was saved, now that the data is where it was."""
        resumed, self._resumed = self._resumed, None
        restore_state(self._state, resumed or {}, step=self._checkpointer.step)

    def _require_what_is_saved(self) -> None:
        """Refuse to train on with what is not in the state: an optimizer or weights that came after the beginning.

        Raises:
            UsageError: Naming what is missing.
        """
        if self.model.optimizer is not self._optimizer:
            raise UsageError(
                "the model was compiled anew during `fit`, and its new optimizer is not in the checkpoint; compile it "
                "before `fit_resumably`, and call that once for each phase"
            )
        beyond, self._beyond = self._beyond, None
        if beyond is not None:
            beyond.require_all(self.model)


def _passing_over(metrics: Mapping[str, Any], *, steps: int) -> Callable[..., Any]:
    """Give a train function that loads what it is given, and leaves the model as it is."""

    def load(batches: Any) -> dict[str, Any]:
        next(batches)
        for _ in range(steps - 1):
            next(batches, None)
        return dict(metrics)

    if keras.backend.backend() == "tensorflow":
        return load
    if keras.backend.backend() == "jax":
        return lambda state, batches: (load(batches), state)
    return lambda _batches: dict(metrics)


class _Position:
    """Where `fit` is, as a part of the state.

    Attributes:
        epoch: The epoch, from 0.
        batches: Its batches that are done.
        epoch_random: The random states it began with.
        epoch_data: What its data was drawn from, as it was then.
        stopped: Whether a callback has ended the training.
        digest: Of the batches that were seen.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.batches = 0
        self.epoch_random: dict[str, Any] = {}
        self.epoch_data: dict[str, Any] = {}
        self.stopped = False
        self.digest = _Digest()
        self._trained_on: str | None = None

    def begin(self, epoch: int, data: dict[str, Any]) -> None:
        """Begin an epoch, before its data does."""
        self.epoch, self.batches, self.digest = epoch, 0, _Digest()
        self.epoch_random, self.epoch_data = capture_random_states(), copied_state(data)

    def require_same_batches(self, *, certain: bool) -> None:
        """Compare the batches that were passed over with those that were trained on.

        Args:
            certain: Whether the data gives the same again in every run.

        Raises:
            UsageError: If they are others.
        """
        if self._trained_on is None or self.digest.batches != self.batches or self.digest.text() == self._trained_on:
            return
        problem = (
            f"the first {self.batches} batches of epoch {self.epoch} are others than those that were trained on: the "
            "data has changed, or its order or its random numbers come from something that is not saved"
        )
        if certain:
            raise UsageError(
                f"{problem}. Pass that in state=, with state_dict and load_state_dict. A checkpoint that was made "
                "between two epochs can be continued all the same"
            )
        _logger.warning("%s, or they are drawn by several workers at once", problem)

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "epoch_random": self.epoch_random,
            "epoch_data": self.epoch_data,
            "stopped": self.stopped,
            # A script that makes a train function of its own meanwhile is not watched.
            "digest": self.digest.text() if self.digest.batches == self.batches else self._trained_on,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.batches, self.stopped = state["epoch"], state["batches"], state["stopped"]
        self.epoch_random, self.epoch_data = state["epoch_random"], state["epoch_data"]
        self._trained_on = state["digest"]


def _seeing(function: Callable[..., Any], position: _Position) -> Callable[..., Any]:
    """Give a train function that notes its batches. TensorFlow's takes them where Python does not see them."""

    def seen(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            position.digest.add(batch)
            yield batch

    def see_all(batches: list[Any]) -> Any:
        for batch in batches:
            position.digest.add(batch)
        return function(batches)

    if keras.backend.backend() == "tensorflow":
        return function
    if keras.backend.backend() == "jax":
        return lambda state, batches: function(state, seen(batches))
    return see_all


class _Variables:
    """Keras variables in their order. Their names are not compared: they count on from model to model in a process."""

    def __init__(self, model: Any, variables: Sequence[Any]) -> None:
        self._model = model
        self._variables = list(variables)

    def state_dict(self) -> list[Any]:
        if keras.backend.backend() == "jax":
            self._model.jax_state_sync()  # between two batches `fit` has the values, and the variables have none
        return [_content(variable) for variable in self._variables]

    def load_state_dict(self, values: list[Any]) -> None:
        if len(values) != len(self._variables):
            raise ValueError(f"{len(values)} variables were saved, and there are {len(self._variables)} here")
        if keras.backend.backend() == "jax":
            self._model.jax_state_sync()  # the next batch takes its values from the variables then
        for variable, value in zip(self._variables, values):
            variable.assign(value)


def _inside(value: Any) -> Iterator[Any]:
    """Give the objects that dictionaries and lists hold."""
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item)
    else:
        yield value


def _content(variable: Any) -> Any:
    return variable.value.detach() if keras.backend.backend() == "torch" else np.asarray(variable.value)


_KERAS_OBJECTS = (
    *(keras.Layer, keras.Loss, keras.Metric, keras.Optimizer, keras.random.SeedGenerator, keras.utils.PyDataset),
    *(keras.callbacks.Callback, keras.optimizers.schedules.LearningRateSchedule),
)
_KERAS_NOTES = frozenset(
    (
        *("stop_training", "stop_evaluating", "stop_predicting", "built", "compiled", "training", "run_eagerly"),
        *("steps_per_execution", "jit_compile", "stateful_context"),
    )
)
"""Attributes in which Keras notes what it is doing."""


class _Beyond:
    """What a training uses beyond what Keras gathers, found by going through the script's objects.

    Further optimizers, variables of losses and metrics, seeds, random generators, objects with `state_dict` and
    `load_state_dict`, torch's own modules and optimizers, and the attributes that the training changes.

    Args:
        roots: Names and objects to begin with.
        followed: More of them. What they lead to is taken, and their attributes are not.
        variables_elsewhere: Variables that are saved elsewhere.
        objects_elsewhere: Objects that are.
        updated: Variables that an optimizer may update beside those that are found.
        of_data: Whether it is the data, which the model's own parts are not taken for, nor large arrays.
        attributes: Whether the attributes that change are saved. A compiled step has seen their first values only.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        *,
        followed: Mapping[str, Any],
        variables_elsewhere: Sequence[Any] = (),
        objects_elsewhere: Sequence[Any] = (),
        updated: Sequence[Any] = (),
        of_data: bool = False,
        attributes: bool = True,
    ) -> None:
        self._roots = {**roots, **followed}
        found = reached(roots, through=_through())
        further = reached(followed, through=_through())
        known = {*map(id, variables_elsewhere)}
        self._optimizers = {
            one.path: _Optimizer(one.value, self)
            for one in _apart(found if of_data else [*found, *further])
            if isinstance(one.value, keras.Optimizer) and not {*map(id, one.value.variables)} & known
        }
        known.update(id(variable) for one in self._optimizers.values() for variable in one.variables)
        self.variables = {
            one.path: one.value
            for one in _apart(found if of_data else [*found, *further])
            if isinstance(one.value, keras.Variable) and id(one.value) not in known
        }
        self.updated = [*updated, *self.variables.values()]
        self._saved = [*variables_elsewhere, *self.updated]
        self.objects = self._stateful(
            [*found, *(one for one in further if not _is_model(one.value, of_data=of_data))], objects_elsewhere
        )
        elsewhere = {*map(id, objects_elsewhere)}
        owners = [one for one in found if _keeps_attributes(one.value) and id(one.value) not in elsewhere]
        self.attributes, self._watched_attributes = (
            ChangedAttributes(
                {one.path: one.value for one in owners if (attributes and not one.by_name) is is_saved},
                wanted=_counts,
                large=not of_data,
                remedy=_REMEDY_OF_DATA if of_data else _REMEDY,
            )
            for is_saved in (True, False)
        )

    def state(self) -> dict[str, Any]:
        """Give all of it, as a part of the state of a `Checkpointer`."""
        return {
            "variables": _Named(self.variables),
            "optimizers": dict(self._optimizers),
            "objects": dict(self.objects),
            "attributes": self.attributes,
        }

    def require_all(self, model: Any) -> None:
        """Look once more after the first batch, which may make what was not there before.

        Raises:
            UsageError: Naming all that the state does not hold.
        """
        optimizers = [model.optimizer, *(one.optimizer for one in self._optimizers.values())]
        optimizers = [optimizer for optimizer in optimizers if optimizer is not None]
        saved = {*map(id, self._saved)}
        made = {id(variable) for optimizer in optimizers for variable in optimizer.variables}
        late = {
            id(one.value): f"{one.path} ({one.value.path})"
            for one in reached(self._roots, through=_through())
            if isinstance(one.value, keras.Variable) and id(one.value) not in saved | made
        }
        problems = [
            f"{variable.path}, which the optimizer {optimizer.name} updates"
            for optimizer in optimizers
            for variable in getattr(optimizer, "_trainable_variables", ())
            if id(variable) not in saved | late.keys()
        ]
        problems += late.values()
        if problems:
            raise UsageError(
                "the first batch made or used variables that the checkpoint does not hold: "
                f"{', '.join(sorted(problems))}. Make them before fit_resumably (call `build`, or the model once), as "
                "attributes of the model"
            )
        self._watched_attributes.warn_of_changes()

    def _stateful(self, candidates: Sequence[Reached], elsewhere: Sequence[Any]) -> dict[str, Any]:
        """Give what saves each object that keeps something and is not Keras' own."""
        taken = {*map(id, elsewhere), *(id(part) for value in elsewhere for part in _modules(value))}
        values = {id(_tensor(variable)) for variable in self._saved}
        stateful = {}
        for one in _apart(candidates):
            value = one.value
            if id(value) in taken or stateful_kind(value) is None or not _is_taken(value):
                continue
            taken.update(id(part) for part in _modules(value))
            saves = value
            if _modules(value):
                saves = _TorchModule(value, values)
                if not saves.state_dict():
                    continue
            try:
                encode_state({one.path: saves})
            except StateError as error:
                _logger.warning("what %s keeps is not saved: %s", one.path, error)
            else:
                stateful[one.path] = saves
        return stateful


_REMEDY = "keep it in a keras.Variable, or pass an object with state_dict and load_state_dict in state="
_REMEDY_OF_DATA = "shuffle an array of indices, or give the object state_dict and load_state_dict"


def _apart(found: Iterable[Reached]) -> list[Reached]:
    """Give each object once, each with a path of its own."""
    objects: dict[int, Reached] = {}
    paths: set[str] = set()
    for one in found:
        if id(one.value) not in objects:
            path = next(path for path in _numbered(one.path) if path not in paths)
            paths.add(path)
            objects[id(one.value)] = Reached(path, one.value, one.by_name)
    return list(objects.values())


def _numbered(path: str) -> Iterator[str]:
    yield path
    yield from (f"{path} ({number})" for number in itertools.count(2))


def _modules(value: Any) -> list[Any]:
    """Give a module of torch that is no layer of Keras, and all that is in it."""
    torch = loaded("torch")
    if torch is None or not isinstance(value, torch.nn.Module) or isinstance(value, keras.Layer):
        return []
    return list(value.modules())


def _is_model(value: Any, *, of_data: bool) -> bool:
    """Say whether an object that the data leads to belongs to the training of a model, and not to the data."""
    torch = loaded("torch")
    return of_data and torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer))


def _is_taken(value: Any) -> bool:
    """Say whether an object's own state is to be saved: Keras' variables are, and a loader begins each pass anew."""
    if isinstance(value, keras.utils.PyDataset):
        return True
    return not isinstance(value, (*_KERAS_OBJECTS, *_torch_data_classes()[:1], Checkpointer))


def _keeps_attributes(value: Any) -> bool:
    if not hasattr(value, "__dict__") or isinstance(value, keras.callbacks.Callback):
        return False
    if isinstance(value, _KERAS_OBJECTS) and not isinstance(value, keras.utils.PyDataset):
        return True
    return is_own(type(value)) and stateful_kind(value) is None


def _sees_attributes(model: Any) -> bool:
    """Say whether each step of a training runs the model's Python code."""
    backend = keras.backend.backend()
    return bool(model.run_eagerly or backend == "torch" or (backend == "jax" and not model.jit_compile))


def _counts(owner: Any, name: str) -> bool:
    """Say whether an attribute is the script's: Keras has names of its own, with an underscore."""
    if not isinstance(owner, _KERAS_OBJECTS):
        return True
    kind: Any = type(owner)
    return name not in _KERAS_NOTES and (not name.startswith("_") or name in names_in_code(kind))


def _through() -> tuple[type, ...]:
    return (*_KERAS_OBJECTS, *_torch_data_classes())


def _torch_data_classes() -> tuple[type, ...]:
    data = loaded("torch.utils.data")
    return () if data is None else (data.DataLoader, data.Sampler, data.Dataset)


def _tensor(variable: Any) -> Any:
    return variable.value if keras.backend.backend() == "torch" else variable


class _Named:
    """Variables with the paths at which they were found."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def state_dict(self) -> dict[str, Any]:
        return {path: _content(variable) for path, variable in self._variables.items()}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        other = sorted(self._variables.keys() ^ values.keys())
        if other:
            raise ValueError(f"of these variables only the checkpoint, or only the script, knows: {', '.join(other)}")
        for path, value in values.items():
            self._variables[path].assign(value)


class _Optimizer:
    """An optimizer that `fit` does not know. It may make its variables in the first step only."""

    def __init__(self, optimizer: Any, beyond: _Beyond) -> None:
        self.optimizer = optimizer
        self._beyond = beyond

    @property
    def variables(self) -> list[Any]:
        return list(self.optimizer.variables)

    def state_dict(self) -> dict[str, Any]:
        places = {id(variable): index for index, variable in enumerate(self._beyond.updated)}
        updated = getattr(self.optimizer, "_trainable_variables", ()) if self.optimizer.built else ()
        return {
            "built": bool(self.optimizer.built),
            "updated": [places.get(id(variable)) for variable in updated],
            "variables": [_content(variable) for variable in self.variables],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["built"] and not self.optimizer.built:
            known = self._beyond.updated
            if not all(place is not None and place < len(known) for place in state["updated"]):
                raise ValueError(f"the optimizer {self.optimizer.name} updated variables that are not here")
            self.optimizer.build([known[place] for place in state["updated"]])
        if len(state["variables"]) != len(self.variables):
            raise ValueError(
                f"the optimizer {self.optimizer.name} had {len(state['variables'])} variables, and here it has "
                f"{len(self.variables)}"
            )
        for variable, value in zip(self.variables, state["variables"]):
            variable.assign(value)


class _TorchModule:
    """What a module of torch holds beyond the variables of Keras: a layer that wraps one takes its parameters alone."""

    def __init__(self, module: Any, elsewhere: set[int]) -> None:
        self._module = module
        self._elsewhere = elsewhere

    def _tensors(self) -> dict[str, Any]:
        tensors = self._module.state_dict(keep_vars=True)
        return {name: tensor for name, tensor in tensors.items() if id(tensor) not in self._elsewhere}

    def state_dict(self) -> dict[str, Any]:
        return {name: tensor.detach() for name, tensor in self._tensors().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        tensors = self._tensors()
        if tensors.keys() != state.keys():
            raise ValueError(f"the module has other tensors: {', '.join(sorted(tensors.keys() ^ state.keys()))}")
        for name, tensor in tensors.items():
            tensor.detach().copy_(state[name])


class _GlobalSeed:
    """The seed of Keras' random numbers without a `SeedGenerator`. Keras makes it when it is first used."""

    def state_dict(self) -> dict[str, Any]:
        seeds = sys.modules[keras.random.SeedGenerator.__module__]
        generator = seeds.global_state.get_global_attribute("global_seed_generator")
        return {"seed": None if generator is None else _content(generator.state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["seed"] is not None:
            sys.modules[keras.random.SeedGenerator.__module__].global_seed_generator().state.assign(state["seed"])


class _Digest:
    """A running digest of the batches of an epoch, of a few numbers of each: to know them again."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._samples: list[Any] = []
        self.batches = 0

    def add(self, batch: Any) -> None:
        """Take note of a batch. A GPU is not waited for."""
        self._samples += [_sample(leaf) for leaf in _inside(batch) if hasattr(leaf, "shape")]
        self.batches += 1
        if len(self._samples) > _MOST_SAMPLES:
            self._take_in()

    def text(self) -> str:
        """Give the digest of all batches up to now."""
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        for sample in self._samples:
            content = np.asarray(sample.float().cpu() if hasattr(sample, "cpu") else sample)
            self._hash.update(b"%s %d" % (content.dtype.str.encode(), content.size))
            self._hash.update(content.tobytes())
        self._samples.clear()


_MOST_SAMPLES = 1000
_SAMPLE = 64
"""Numbers of an array that are looked at, spread over all of it."""


def _sample(leaf: Any) -> Any:
    size = math.prod(leaf.shape)
    every = max(1, size // _SAMPLE)
    if hasattr(leaf, "detach"):
        return leaf.detach().reshape(-1)[::every].clone()
    return np.asarray(leaf).flat[::every]


class _CallbackStates:
    """What callbacks keep from one batch or epoch to the next."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks = [callback for callback in callbacks if _has_state(callback) or _attributes(callback)]

    def state_dict(self) -> list[Any]:
        return [
            [
                type(callback).__name__,
                callback.state_dict()
                if _has_state(callback)
                else {name: getattr(callback, name) for name in _attributes(callback) if hasattr(callback, name)},
            ]
            for callback in self._callbacks
        ]

    def load_state_dict(self, states: list[Any]) -> None:
        saved, here = [name for name, _ in states], [type(callback).__name__ for callback in self._callbacks]
        if saved != here:
            raise ValueError(f"the callbacks {saved} were saved, and here are {here}")
        for callback, (_, state) in zip(self._callbacks, states):
            if _has_state(callback):
                callback.load_state_dict(state)
            else:
                vars(callback).update(state)


class _BestFile:
    """The file that `ModelCheckpoint(save_best_only=True)` wrote last.

    Where only the checkpoint directory is kept, and the file lies elsewhere, the checkpoint carries what it holds.

    Args:
        callback: The `ModelCheckpoint`.
        kept_in: The checkpoint directory.
    """

    def __init__(self, callback: Any, *, kept_in: Path) -> None:
        self._callback = callback
        self._best = callback.best
        self._path: str | None = None
        self._content: bytes | None = None
        self._read_at: tuple[int, int] | None = None
        outside = kept_in.resolve() not in Path(callback.filepath).resolve().parents
        self._carried = outside and (bool(os.environ.get("SPOTKEEP_CHECKPOINT_DIR")) or kept_in == _PLATFORM_DIRECTORY)
        if self._carried:
            _logger.warning(
                "the filepath of ModelCheckpoint, %s, lies outside %s, which alone is kept when the machine is lost: "
                "each checkpoint carries a copy of the best model. Write it to a folder of "
                'os.environ["SPOTKEEP_CHECKPOINT_DIR"] to save that time',
                callback.filepath,
                kept_in,
            )

    def note(self, *, epoch: int, batch: int | None, logs: Mapping[str, Any] | None) -> None:
        """Take note of the file, when the callback has found a better model."""
        if self._callback.best == self._best:
            return
        self._best = self._callback.best
        numbers = {"epoch": epoch + 1, **({} if batch is None else {"batch": batch + 1}), **(logs or {})}
        self._path = self._callback.filepath.format(**numbers)

    def state_dict(self) -> dict[str, Any]:
        if self._path is not None and self._carried:
            status = Path(self._path).stat()
            if self._read_at != (status.st_mtime_ns, status.st_size):
                self._content = Path(self._path).read_bytes()
                self._read_at = (status.st_mtime_ns, status.st_size)
        return {"best": self._best, "path": self._path, "content": self._content}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._best, self._path, self._content = state["best"], state["path"], state["content"]
        if self._path is None:
            return
        file = Path(self._path)
        if self._content is None:
            if not file.exists():
                _logger.warning(
                    "%s, in which ModelCheckpoint wrote the best model, is not there any more, and a worse one will "
                    'not be written; let it write to a folder of os.environ["SPOTKEEP_CHECKPOINT_DIR"], which is kept',
                    self._path,
                )
            return
        if not file.exists() or file.read_bytes() != self._content:
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_name(f".{file.name}.unfinished")
            unfinished.write_bytes(self._content)
            unfinished.replace(file)
        self._read_at = (file.stat().st_mtime_ns, len(self._content))


def _has_state(callback: Any) -> bool:
    return callable(getattr(callback, "state_dict", None)) and callable(getattr(callback, "load_state_dict", None))


def _attributes(callback: Any) -> tuple[str, ...]:
    return next((names for kind, names in _ATTRIBUTES if isinstance(callback, kind)), ())
