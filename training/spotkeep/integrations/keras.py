"""Keras 3 on torch, TensorFlow or JAX: `fit` goes on in the middle of an epoch, with everything it had.

`fit` has no way to begin at a batch. So the epoch begins again with the random numbers it had begun with, its batches
are loaded as before, and those that were trained on are passed over; then all goes on as it was when it was saved.

TensorFlow shuffles arrays with random numbers that cannot be saved. There the order of each epoch is drawn by NumPy.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states

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
        if not (_has_state(callback) or _attributes(callback) or isinstance(callback, _STATELESS)):
            _logger.warning(
                "what the callback %s keeps is not saved; if it keeps anything from one batch or epoch to the next, "
                "give it state_dict and load_state_dict",
                type(callback).__name__,
            )
    ours = inspect.signature(Checkpointer).parameters
    checkpoints = {name: value for name, value in options.items() if name in ours}
    fitting = {name: value for name, value in options.items() if name not in ours}
    # The last one: when it saves, the others have taken note of the batch.
    last = _CheckpointCallback(others, dict(state or {}), checkpoints)
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


class _CheckpointCallback(keras.callbacks.Callback):
    """Saves after a batch, or before the next epoch when all that belongs to the last one is done."""

    def __init__(self, others: list[Any], state: dict[str, Any], options: dict[str, Any]) -> None:
        super().__init__()
        self._others = others
        self._state = state
        self._options = options
        self._checkpointer = Checkpointer({}, **options)
        self._position = _Position()
        self._callbacks = _CallbackStates([])
        self._resumed: dict[str, Any] | None = None
        self._train_function: Any = None
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
        self._callbacks = _CallbackStates([*self._others, model.history])
        state = {
            **self._state,
            "model": _Variables(model, model.variables),
            "optimizer": _Variables(model, model.optimizer.variables),
            "metrics": _Variables(model, model.metrics_variables),
            "callbacks": self._callbacks,
            "random states": RandomStates(),
            "fit": self._position,
        }
        self._checkpointer = Checkpointer(state, **self._options).__enter__()
        self._entered = True
        if self._checkpointer.noticed:
            self._checkpointer.leave()
        if self._checkpointer.step:
            self._resumed = {
                "metrics": [np.array(keras.ops.convert_to_numpy(variable)) for variable in model.metrics_variables],
                "callbacks": self._callbacks.state_dict(),
                "random": capture_random_states(),
            }
            # An epoch behind the last one: the training was stopped early, and stays so.
            model._initial_epoch = self.params["epochs"] if self._position.stopped else self._position.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        position = self._position
        if self._resumed is not None and position.batches:
            restore_random_states(position.epoch_random)
            for variable, value in zip(self.model.metrics_variables, self._resumed["metrics"]):
                variable.assign(value)
            metrics = self.model.get_metrics_result()
            # It may have been saved after the last batch: then there is an evaluation to do first.
            if position.batches != self.params.get("steps") and self._checkpointer.interrupted:
                self._checkpointer.leave()
            self._train_function = self.model.train_function
            self.model.train_function = _passing_over(metrics, steps=self.model.steps_per_execution)
            return
        self._go_on()
        self._checkpointer.count_epochs(epoch)
        position.epoch, position.batches, position.epoch_random = epoch, 0, capture_random_states()
        if self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        position, checkpointer = self._position, self._checkpointer
        if self._train_function is not None:
            if batch + 1 >= position.batches:
                self.model.train_function, self._train_function = self._train_function, None
                self._go_on()
            return
        position.batches = batch + 1
        checkpointer.log(**{name: value for name, value in (logs or {}).items() if isinstance(value, float)})
        steps = self.params.get("steps")
        checkpointer.complete_step(total_steps=None if steps is None else steps * self.params["epochs"])
        # What follows the last batch belongs to the epoch, so that is waited for, unless there is no time.
        if (position.batches != steps or checkpointer.noticed) and checkpointer.save_if_due():
            checkpointer.leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._train_function is not None:
            raise UsageError(
                f"the checkpoint was made after {self._position.batches} batches of epoch {epoch}, which has fewer "
                "now; keep the data and the batch size of the run"
            )
        self._position.epoch, self._position.batches = epoch + 1, 0

    def on_train_end(self, logs: Any = None) -> None:
        self._position.stopped = self._position.stopped or self.model.stop_training
        self._checkpointer.save_if_due(last=True)

    def _go_on(self) -> None:
        """Go on from the very state that was saved, now that the data is where it was."""
        if self._resumed is None:
            return
        resumed, self._resumed = self._resumed, None
        self._callbacks.load_state_dict(resumed["callbacks"])
        restore_random_states(resumed["random"])


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
        stopped: Whether a callback has ended the training.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.batches = 0
        self.epoch_random: dict[str, Any] = {}
        self.stopped = False

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


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
        for variable, value in zip(self._variables, values):
            variable.assign(value)


def _content(variable: Any) -> Any:
    return variable.value.detach() if keras.backend.backend() == "torch" else np.asarray(variable.value)


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


def _has_state(callback: Any) -> bool:
    return callable(getattr(callback, "state_dict", None)) and callable(getattr(callback, "load_state_dict", None))


def _attributes(callback: Any) -> tuple[str, ...]:
    return next((names for kind, names in _ATTRIBUTES if isinstance(callback, kind)), ())
