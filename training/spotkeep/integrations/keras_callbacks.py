"""The state of Keras' callbacks between batches and epochs, and the file of the best model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras import callbacks as known

from spotkeep.errors import UsageError
from spotkeep.training_folder import kept_folder

from .callback_states import has_state, warn_of_what_is_not_saved
from .kept_models import comes_back

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
