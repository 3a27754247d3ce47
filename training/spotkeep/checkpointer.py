"""What a training script uses: one object that restores, counts steps, saves on time, and leaves on a notice.

Only one process of a run may write its checkpoints; with several workers, give the first one the Checkpointer.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from . import events
from .checkpoint_directory import CheckpointDirectory
from .errors import CheckpointError, DamagedCheckpointError, UsageError
from .notice import NoticeWatch
from .state_encoding import encode_state
from .state_restoring import check_state, restore_state

EXIT_INTERRUPTED = 75
"""The exit code of a script that left because of a notice (EX_TEMPFAIL: try again)."""

_DEFAULT_EVERY_SECONDS = 300.0
_PLATFORM_DIRECTORY = Path("/opt/ml/checkpoints")

_logger = logging.getLogger("spotkeep")


class Checkpointer:
    """Keeps a training's state through interruptions.

    ```python
    with Checkpointer({"model": model, "optimizer": optimizer, "rng": rng}, every_steps=100) as checkpointer:
        for step in checkpointer.steps(total_steps):
            loss = train_one_batch(step)
            checkpointer.log(loss=loss)
    ```

    Entering restores the newest good checkpoint into the objects of `state`; the loop goes on with the step after it.
    After each step the state is saved when it is due. When a notice has come, the state is saved after the current
    step and the script exits with code 75, so that the next attempt takes up the work there.

    A save that fails (a full disk) does not end the training: it is told, older checkpoints stay, and the next
    interval tries again. A state that cannot be saved at all is refused on entering.

    Args:
        state: Names and objects: NumPy arrays, torch modules, optimizers and tensors, anything with `state_dict` and
            `load_state_dict`, random generators, and dictionaries or lists of plain values. They are changed in place.
        directory: Where checkpoints are. Default: SPOTKEEP_CHECKPOINT_DIR, else `/opt/ml/checkpoints` where it exists,
            else `checkpoints` in the working directory.
        every_steps: Save after so many steps.
        every_seconds: Save when so many seconds have passed since the last save. When neither is given: 300.
        keep_last: How many good checkpoints stay; at least two always do.

    Raises:
        UsageError: If an argument makes no sense.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep_last: int = 3,
    ) -> None:
        for name, value in (("every_steps", every_steps), ("every_seconds", every_seconds), ("keep_last", keep_last)):
            if value is not None and not value > 0:
                raise UsageError(f"{name} is {value!r}; pass a number above zero")
        if every_steps is None and every_seconds is None:
            every_seconds = _DEFAULT_EVERY_SECONDS
        self._state = state
        self._every_steps = every_steps
        self._every_seconds = every_seconds
        self._keep_last = keep_last
        self._directory = CheckpointDirectory(_directory(directory))
        self._notice_watch = NoticeWatch()
        self._notice_told = False
        self._entered = False
        self._restored = False
        self._step = 0
        self._epochs_completed: int | None = None
        self._saved_step: int | None = None
        self._tried_step = 0
        self._tried_at = time.monotonic()
        self._metrics: dict[str, Any] = {}

    @property
    def step(self) -> int:
        """Completed steps."""
        return self._step

    @property
    def directory(self) -> Path:
        """Where the checkpoints are."""
        return self._directory.path

    @property
    def interrupted(self) -> bool:
        """Whether a notice has come. `steps` looks at this by itself; a loop of your own should after each step."""
        notice = self._notice_watch.notice()
        if notice is not None and not self._notice_told:
            self._notice_told = True
            events.emit("notice", source=notice.source, seconds_left=round(notice.seconds_left, 1))
        return notice is not None

    def __enter__(self) -> Checkpointer:
        self._notice_watch.start()
        self._entered = True
        try:
            self.restore()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._notice_watch.stop()
        self._entered = False

    def steps(self, total_steps: int) -> Iterator[int]:
        """Go through the steps that are left: from the restored one up to, not including, `total_steps`.

        Saves when due, at the end, and on a notice. Leaving the loop early (`break`, an exception) saves nothing: the
        step was not finished. A notice in the last step does not end the script, which is as good as done.

        Args:
            total_steps: Steps of the whole training.

        Raises:
            UsageError: Outside a `with` block.
            SystemExit: With code 75, after a notice.
        """
        self._require_entered()
        self._leave_if_interrupted()
        while self._step < total_steps:
            yield self._step
            self._complete_step(total_steps)
            self._save_and_leave_when_due(last=self._step >= total_steps)
        events.emit("finish", step=self._step)

    def epochs(self, total_epochs: int, *, steps_per_epoch: int) -> Iterator[Epoch]:
        """Go through the epochs that are left, the current one from its current step.

        What follows the inner loop (validation, a learning rate schedule) belongs to the epoch: it runs once more when
        an interruption came between the last step and its end, with the state as it was after the last step.

        ```python
        for epoch in checkpointer.epochs(10, steps_per_epoch=len(batches)):
            for index in epoch:
                train_one_batch(batches[index])
            validate()
        ```

        Args:
            total_epochs: Epochs of the whole training.
            steps_per_epoch: Steps of one epoch.

        Raises:
            UsageError: Outside a `with` block, when the checkpoint was made with other steps an epoch, or when an inner
                loop was left early.
            SystemExit: With code 75, after a notice.
        """
        self._require_entered()
        self._leave_if_interrupted()
        if self._epochs_completed is None:
            self._epochs_completed = self._step // steps_per_epoch
        for index in range(self._epochs_completed, total_epochs):
            first, end = index * steps_per_epoch, (index + 1) * steps_per_epoch
            if not first <= self._step <= end:
                raise UsageError(
                    f"the checkpoint has {index} epochs and {self._step} steps, which does not fit {steps_per_epoch} "
                    "steps an epoch; keep the batch size of the run"
                )
            yield Epoch(index=index, steps=self._epoch_steps(first, end, total_epochs * steps_per_epoch))
            if self._step != end:
                raise UsageError(
                    f"epoch {index} was left after {self._step - first} of {steps_per_epoch} steps; "
                    "go through all of them, or leave the outer loop too"
                )
            last = index + 1 == total_epochs
            self._epochs_completed = index + 1
            self._save_and_leave_when_due(last=last)
        events.emit("finish", step=self._step)

    def log(self, **metrics: float) -> None:
        """Note metrics of the current step; they go out with the next progress event."""
        self._metrics.update(metrics)

    def restore(self) -> int:
        """Restore the newest good checkpoint into the state. Gives the completed steps; 0 when there is none.

        A damaged checkpoint is passed over for the next older one, with a `fallback` event that names the file.
        Entering a `with` block does this by itself; a second call does nothing.

        Raises:
            StateError: If the state could not be saved later on.
            StateMismatchError: If a good checkpoint does not fit the state.
            NewerFormatError: If a newer library wrote the newest checkpoint.
        """
        if self._restored:
            return self._step
        check_state(self._state)
        found = None
        for step in self._directory.steps():
            try:
                found = self._directory.read(step)
                break
            except DamagedCheckpointError as error:
                _logger.warning("passing over a damaged checkpoint: %s", error)
                events.emit("fallback", step=step, problem=error.problem, file=error.file)
        if found is not None:
            restore_state(self._state, found.state, step=found.step)
            self._step, self._epochs_completed = found.step, found.epochs_completed
            self._saved_step = self._tried_step = found.step
        self._restored = True
        self._tried_at = time.monotonic()
        name = None if found is None else self._directory.name(found.step)
        events.emit("resume", step=self._step, checkpoint=name)
        return self._step

    def save(self, step: int, *, reason: str = "script") -> None:
        """Save the state now, for loops that count their own steps. Saving the same step again does nothing.

        Args:
            step: Completed steps.
            reason: Why, for the `saved` event.

        Raises:
            StateError: If the state cannot be saved.
            SaveError: If the disk refuses. Older checkpoints are as they were.
        """
        self._step = step
        if self._saved_step == step:
            return
        started = time.monotonic()
        try:
            size = self._directory.write(
                encode_state(dict(self._state)), step=step, epochs_completed=self._epochs_completed
            )
        finally:
            self._tried_step, self._tried_at = step, time.monotonic()
        self._saved_step = step
        events.emit("saved", step=step, seconds=round(self._tried_at - started, 4), bytes=size, reason=reason)
        self._prune(self._keep_last)

    def _epoch_steps(self, first: int, end: int, total_steps: int) -> Iterator[int]:
        while self._step < end:
            yield self._step - first
            self._complete_step(total_steps)
            if self.interrupted:
                self._try_to_save(reason="interval")
                self._leave_if_interrupted()
            # The last step's save waits for what follows the loop: it belongs to the epoch.
            elif self._step < end and self._due():
                self._try_to_save(reason="interval")

    def _save_and_leave_when_due(self, *, last: bool) -> None:
        # Asked once: a notice that came between the save and the leaving would leave without a save.
        interrupted = self.interrupted
        if interrupted or last or self._due():
            self._try_to_save(reason="end" if last else "interval")
        if interrupted and not last:
            raise SystemExit(EXIT_INTERRUPTED)

    def _complete_step(self, total_steps: int) -> None:
        self._step += 1
        events.report_progress(step=self._step, total_steps=total_steps, **self._metrics)
        self._metrics = {}

    def _due(self) -> bool:
        if self._every_steps is not None and self._step - self._tried_step >= self._every_steps:
            return True
        return self._every_seconds is not None and time.monotonic() - self._tried_at >= self._every_seconds

    def _try_to_save(self, *, reason: str) -> None:
        try:
            self.save(self._step, reason="notice" if self.interrupted else reason)
        except CheckpointError as error:
            _logger.error("no checkpoint of step %d: %s", self._step, error)  # noqa: TRY400 - the message says it all
            events.emit("save-failed", step=self._step, problem=str(error))
            # A full disk is the usual reason: make room for the next attempt.
            self._prune(keep_last=2)

    def _prune(self, keep_last: int) -> None:
        try:
            self._directory.prune(keep_last=keep_last)
        except OSError as error:
            _logger.warning("could not remove old checkpoints: %s", error)

    def _leave_if_interrupted(self) -> None:
        if self.interrupted:
            raise SystemExit(EXIT_INTERRUPTED)

    def _require_entered(self) -> None:
        if not self._entered:
            raise UsageError("steps and epochs work only inside `with checkpointer:`, where notices are watched for")


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Attributes:
        index: Its number, from 0.
        steps: The indices, within the epoch, of the steps that are left. Iterating over the epoch gives the same.
    """

    index: int
    steps: Iterator[int]

    def __iter__(self) -> Iterator[int]:
        return self.steps


def _directory(given: str | os.PathLike[str] | None) -> Path:
    if given is not None:
        return Path(given)
    variable = os.environ.get("SPOTKEEP_CHECKPOINT_DIR")
    if variable:
        return Path(variable)
    return _PLATFORM_DIRECTORY if _PLATFORM_DIRECTORY.is_dir() else Path("checkpoints")
