"""Keras 3 with its torch backend: `fit` goes on in the middle of an epoch, with everything it had.

`fit` has no way to begin at a batch. So the epoch begins again with the random numbers it had begun with, its batches
are loaded as before, and those that were trained on are passed over; then all goes on as it was when it was saved.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.notices.notice import EXIT_INTERRUPTED
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states

try:
    import keras
    from keras import callbacks as known
except ImportError as error:
    raise ImportError(
        f"spotkeep.integrations.keras needs Keras 3 with its torch backend: install 'keras>=3' and torch ({error})"
    ) from error

_logger = logging.getLogger("spotkeep")

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
        UsageError: If Keras runs on another backend than torch, or a callback does the same work.
        SystemExit: With code 75, after a notice.
    """
    if keras.backend.backend() != "torch":
        raise UsageError(f"Keras runs on {keras.backend.backend()} and this works with torch; set KERAS_BACKEND=torch")
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
    with ExitStack() as stack:
        stack.push(last.close)
        return model.fit(*data, callbacks=[*others, last], **fitting)


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
            "model": _Variables(model.variables),
            "optimizer": _Variables(model.optimizer.variables),
            "metrics": _Variables(model.metrics_variables),
            "callbacks": self._callbacks,
            "random states": RandomStates(),
            "fit": self._position,
        }
        self._checkpointer = Checkpointer(state, **self._options).__enter__()
        self._entered = True
        if self._checkpointer.interrupted:
            self._leave()
        if self._checkpointer.step:
            self._resumed = {
                "metrics": [variable.value.detach().clone() for variable in model.metrics_variables],
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
            self._train_function = self.model.train_function
            self.model.train_function = lambda _batch: dict(metrics)
            return
        self._go_on()
        position.epoch, position.batches, position.epoch_random = epoch, 0, capture_random_states()
        if self._checkpointer.save_if_due():
            self._leave()

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
        if (position.batches != steps or checkpointer.interrupted) and checkpointer.save_if_due():
            self._leave()

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

    def _leave(self) -> None:
        raise SystemExit(EXIT_INTERRUPTED)


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

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = list(variables)

    def state_dict(self) -> list[Any]:
        return [variable.value.detach() for variable in self._variables]

    def load_state_dict(self, values: list[Any]) -> None:
        if len(values) != len(self._variables):
            raise ValueError(f"{len(values)} variables were saved, and there are {len(self._variables)} here")
        for variable, value in zip(self._variables, values):
            variable.assign(value)


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
