"""Keras 3 on torch, TensorFlow or JAX. An interrupted `fit` goes on in the middle of an epoch with all of its state.

`fit` cannot begin at a batch. So a resumed epoch starts again with its first random numbers. It loads the same batches,
passes over the trained ones, and then takes the saved state.

TensorFlow shuffles arrays with random numbers that cannot be saved. There NumPy draws the order of each epoch.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.decoding import copied_state
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states
from spotkeep.state.restoring import restore_state, warn_of_taken_names
from spotkeep.training_description import array_text
from spotkeep.training_folder import kept_folder

from .kept_models import comes_back

try:
    import keras
    from keras import callbacks as known
except ImportError as error:
    raise ImportError(
        f"spotkeep.integrations.keras needs Keras 3: install 'keras>=3', and torch, TensorFlow or JAX ({error})"
    ) from error

from .callback_states import has_state, warn_of_what_is_not_saved
from .keras_data import Digest, Stream, build_by, in_an_order_of_numpy, loads_concurrently, stream_in_place_of
from .keras_objects import FoundObjects, GlobalSeed, Variables, objects_inside, sees_attributes

_logger = logging.getLogger("spotkeep")

_BACKENDS = ("torch", "tensorflow", "jax")

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


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Name in the log the state of callbacks that an interruption would lose.

    Raises:
        UsageError: A callback saves checkpoints, as Spotkeep does.
    """
    for callback in callbacks:
        if isinstance(callback, known.BackupAndRestore):
            raise UsageError("BackupAndRestore would begin at another epoch than the checkpoint; leave it out")
        if isinstance(callback, known.CSVLogger) and not callback.append:
            _logger.warning(
                "CSVLogger writes %s anew after each interruption, and what it held is lost; pass append=True, and a "
                "file that is kept",
                callback.filename,
            )
    warn_of_what_is_not_saved(callbacks, known=(*(kind for kind, _ in _ATTRIBUTES), *_STATELESS))


def best_files(callbacks: Sequence[Any], *, kept_in: Path) -> list[BestFile]:
    """Give the files of the best models that callbacks write.

    Args:
        callbacks: All callbacks.
        kept_in: The checkpoint directory.
    """
    best = (one for one in callbacks if isinstance(one, known.ModelCheckpoint) and one.save_best_only)
    return [BestFile(callback, kept_in=kept_in) for callback in best]


class CallbackStates:
    """The state of callbacks between batches and epochs."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks = [callback for callback in callbacks if has_state(callback) or _attributes(callback)]

    def state_dict(self) -> list[Any]:
        """Give the name of each callback's class, and its state."""
        return [
            [
                type(callback).__name__,
                callback.state_dict()
                if has_state(callback)
                else {name: getattr(callback, name) for name in _attributes(callback) if hasattr(callback, name)},
            ]
            for callback in self._callbacks
        ]

    def load_state_dict(self, states: list[Any]) -> None:
        """Give the callbacks the state that `state_dict` gave.

        Raises:
            ValueError: Other callbacks were saved.
        """
        saved, here = [name for name, _ in states], [type(callback).__name__ for callback in self._callbacks]
        if saved != here:
            raise ValueError(f"the callbacks {saved} were saved, and here are {here}")
        for callback, (_, state) in zip(self._callbacks, states):
            if has_state(callback):
                callback.load_state_dict(state)
            else:
                vars(callback).update(state)


class BestFile:
    """The file that `ModelCheckpoint(save_best_only=True)` wrote last.

    A file outside the checkpoint directory may be lost with the machine. Then the checkpoint carries its content.

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
        self._carried = kept_folder() is not None and not comes_back(Path(callback.filepath), directory=kept_in)
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
        """Give the path, and the file's content if the checkpoint carries it."""
        if self._path is not None and self._carried:
            status = Path(self._path).stat()
            if self._read_at != (status.st_mtime_ns, status.st_size):
                self._content = Path(self._path).read_bytes()
                self._read_at = (status.st_mtime_ns, status.st_size)
        return {"best": self._best, "path": self._path, "content": self._content}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Write the file again if it is not the one that was saved. Where that cannot be, the log says so."""
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


def _attributes(callback: Any) -> tuple[str, ...]:
    return next((names for kind, names in _ATTRIBUTES if isinstance(callback, kind)), ())


def fit_resumably(
    model: Any, *data: Any, callbacks: Sequence[Any] = (), state: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Call this instead of `model.fit(...)`. It goes on where an earlier attempt was interrupted.

    ```python
    fit_resumably(model, x, y, epochs=10, callbacks=[EarlyStopping(patience=3)], every_seconds="auto")
    ```

    On a notice the state is saved after the current batch and the script exits with code 75. The state holds the
    variables of the model (seeds included) and of its optimizer, the running metrics, the epoch and the batch. It holds
    the random states of Python, NumPy and torch. It holds the states of EarlyStopping, ReduceLROnPlateau,
    ModelCheckpoint and History, and of each callback with `state_dict` and `load_state_dict`. It also holds objects
    that the model, the data and their code refer to. Among these are further optimizers, variables of losses and
    metrics, random generators, and attributes that change.

    Args:
        model: A compiled Keras model.
        *data: As for `model.fit`.
        callbacks: As for `model.fit`.
        state: More to save, as for `Checkpointer`.
        **options: As for `model.fit` and for `Checkpointer`, such as `epochs`, `validation_data`, `directory`,
            `every_steps` and `every_seconds`.

    Returns:
        The history, as `model.fit` does.

    Raises:
        UsageError: Keras runs on a backend that cannot train so, or a callback does the same work. Or the first batch
            used variables that came too late to be saved. Or the batches of a resumed epoch differ from the trained
            ones.
        SystemExit: With code 75 after a notice, and with 0 after the step to pause at.
    """
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise UsageError(f"Keras runs on {backend}; set KERAS_BACKEND to one of {', '.join(_BACKENDS)}")
    others = list(callbacks)
    check_callbacks(others)
    ours = inspect.signature(Checkpointer).parameters
    checkpoints = {name: value for name, value in options.items() if name in ours}
    fitting = {name: value for name, value in options.items() if name not in ours}
    given = {**dict(zip(("x", "y"), data)), **fitting}
    stream = stream_in_place_of(given)
    names: list[str] = [name for name in ("x", "y", "sample_weight", "validation_data") if name in given]
    parts_of_data = {name: given[name] for name in names}
    if stream is not None and backend == "tensorflow":
        # It is loaded ahead in a thread, at any time. Begun anew it draws the same again.
        del parts_of_data["x"]
    # Before `fit` begins, which draws from the data already.
    drawn_from = FoundObjects(parts_of_data, followed=dict(state or {}), of_data=True)
    described = _described(data, fitting)
    if stream is not None:
        data, fitting = (), {**given, "x": stream, "shuffle": False}
    # The last one: when it saves, the others have taken note of the batch.
    last = _CheckpointCallback(
        _FitArguments(
            others=others,
            state=dict(state or {}),
            drawn_from=drawn_from,
            options=checkpoints,
            described=described,
            stream=stream,
            loads_concurrently=loads_concurrently(given.get("x")),
        )
    )
    if backend == "tensorflow":
        fitting = in_an_order_of_numpy(inspect.signature(model.fit).bind(*data, **fitting).arguments)
        data = ()
        build_by(model, fitting.get("x"))
    with ExitStack() as stack:
        stack.push(last.close)
        return model.fit(*data, callbacks=[*others, last], **fitting)


def _described(data: Sequence[Any], fitting: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the arrays and the options of `fit`."""
    arrays = [*data[:2], *(fitting[name] for name in ("x", "y") if name in fitting)]
    plain = {name: value for name, value in fitting.items() if isinstance(value, (bool, int, float, str))}
    leaves = [leaf for leaf in keras.tree.flatten(arrays) if leaf is not None]
    return {"data": [array_text(leaf) for leaf in leaves], **plain}


@dataclass(frozen=True)
class _FitArguments:
    """The arguments of one call of `fit_resumably`, sorted.

    Attributes:
        others: The callbacks of the script.
        state: More to save, by names.
        drawn_from: The objects that the data is drawn from.
        options: The arguments of `Checkpointer`.
        described: The description of the data and of `fit`.
        stream: The data in an order that can be taken up. None where Keras orders it.
        loads_concurrently: True where several workers load the data.
    """

    others: list[Any]
    state: dict[str, Any]
    drawn_from: FoundObjects
    options: dict[str, Any]
    described: dict[str, Any]
    stream: Stream | None
    loads_concurrently: bool


class _CheckpointCallback(keras.callbacks.Callback):
    """Saves after a batch, or before the next epoch when all that belongs to the last one is done."""

    def __init__(self, given: _FitArguments) -> None:
        super().__init__()
        self._given = given
        self._stream_start: dict[str, Any] = {}
        self._checkpointer = Checkpointer({}, **given.options)
        self._block = ExitStack()
        self._position = _Position()
        self._state: dict[str, Any] = {}
        self._beyond: FoundObjects | None = None
        self._data_state = given.drawn_from.state()
        self._resumed: dict[str, Any] | None = None
        self._train_function: Any = None
        self._optimizer: Any = None
        self._best_files: list[BestFile] = []

    def close(self, *ending: Any) -> None:
        """Wait for a save that is running, and give the model back as it was.

        Args:
            *ending: Of `fit`, as `__exit__` gets it: the Checkpointer notes when the script leaves on a notice.
        """
        if self.model is not None:
            self.model._initial_epoch = None
            if self._train_function is not None:
                self.model.train_function, self._train_function = self._train_function, None
        self._block.__exit__(*ending)

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        self._position = _Position()
        self._optimizer = model.optimizer
        updated = [] if model.optimizer is None else model.optimizer.variables
        data = self._given.drawn_from
        self._best_files = best_files(self._given.others, kept_in=self._checkpointer.directory)
        self._beyond = FoundObjects(
            {"model": model},
            followed={"callbacks": self._given.others},
            variables_elsewhere=[*model.variables, *updated, *model.metrics_variables, *data.variables.values()],
            objects_elsewhere=[*objects_inside(self._given.state), *data.objects.values(), *self._given.others],
            updated=[*model.variables, *data.variables.values()],
            attributes=sees_attributes(model),
        )
        ours = {
            "model": Variables(model, model.variables),
            "optimizer": Variables(model, updated),
            "metrics": Variables(model, model.metrics_variables),
            "beyond": self._beyond.state(),
            "data": self._data_state,
            "callbacks": CallbackStates([*self._given.others, model.history]),
            "best models": self._best_files,
            "random states": RandomStates(),
            "seed": GlobalSeed(),
            "fit": self._position,
        }
        warn_of_taken_names(self._given.state, taken=ours)
        self._state = {**self._given.state, **ours}
        if self._given.stream is not None:
            self._stream_start = copied_state(self._draws())
        self._checkpointer = Checkpointer(self._state, **self._given.options)
        optimizer = {} if model.optimizer is None else {"optimizer": model.optimizer.get_config()}
        self._checkpointer.describe(**self._given.described, **optimizer)
        self._block.enter_context(self._checkpointer)
        self._train_function = model.train_function
        model.train_function = _seeing(self._train_function, self._position)
        if self._checkpointer.noticed:
            self._checkpointer.leave()
        if self._checkpointer.step:
            # Callbacks hear of the epoch and of batches again, and the data is loaded again. Both change things.
            self._resumed = copied_state(self._state)
            # An epoch behind the last one: the training was stopped early, and stays so.
            model._initial_epoch = self.params["epochs"] if self._position.stopped else self._position.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        position = self._position
        if self._resumed is not None and self._given.stream is not None:
            # The batches before it are made again, with the random numbers that the stream began with.
            restore_state(self._draws(), self._stream_start, step=self._checkpointer.step)
            self._given.stream.begin_at(epoch * self._given.stream.steps_per_epoch)
            self._stream_start = copied_state(self._draws())
        if self._resumed is not None and position.batches:
            restore_state(self._state, self._resumed, step=self._checkpointer.step)
            metrics = self.model.get_metrics_result()
            # It may have been saved after the last batch: then there is an evaluation to do first.
            if position.batches != self.params.get("steps") and self._checkpointer.interrupted:
                self._checkpointer.leave()
            if self._given.stream is None:
                restore_random_states(position.epoch_random)
                restore_state(self._data_state, position.epoch_data, step=self._checkpointer.step)
            else:
                restore_state(self._draws(), self._stream_start, step=self._checkpointer.step)
            position.digest = Digest()
            position.passes_over = True
            passing = _passing_over(metrics, steps=self.model.steps_per_execution)
            self.model.train_function = _seeing(passing, position)
            return
        if self._resumed is not None:
            self._go_on()
            self.model.reset_metrics()  # those that were saved may be of the epoch before
        self._checkpointer.count_epochs(epoch)
        position.begin(epoch, self._data_state)
        if self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        position, checkpointer = self._position, self._checkpointer
        if position.passes_over:
            if batch + 1 >= position.batches:
                position.passes_over = False
                self.model.train_function = _seeing(self._train_function, position)
                position.require_same_batches(certain=not self._given.loads_concurrently)
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
        if self._position.passes_over:
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
        """Refuse a training with parts outside the state, such as weights that came after the beginning.

        Raises:
            UsageError: Parts are missing in the state. The message names them.
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
    """Give a train function that loads its batch and leaves the model unchanged."""

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
    """The position of `fit`, as a part of the state.

    Attributes:
        epoch: The epoch, from 0.
        batches: The number of its completed batches.
        epoch_random: The random states at the epoch's beginning.
        epoch_data: The state of the data's source at the epoch's beginning.
        stopped: A callback has ended the training.
        digest: The digest of the batches so far.
        passes_over: True while batches that were trained on are loaded again and passed over.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.batches = 0
        self.epoch_random: dict[str, Any] = {}
        self.epoch_data: dict[str, Any] = {}
        self.stopped = False
        self.digest = Digest()
        self.passes_over = False
        self._trained_on: str | None = None

    def begin(self, epoch: int, data: dict[str, Any]) -> None:
        """Begin an epoch, before its data does."""
        self.epoch, self.batches, self.digest = epoch, 0, Digest()
        self.epoch_random, self.epoch_data = capture_random_states(), copied_state(data)

    def require_same_batches(self, *, certain: bool) -> None:
        """Compare the batches that were passed over with those that were trained on.

        Args:
            certain: True if the data gives the same again in every run.

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
