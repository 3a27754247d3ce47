"""The object of a training script that restores, counts steps, saves on time, and leaves on a notice.

It leaves too after the step at which the run pauses. A later process goes on from there.

In a distributed training every rank has one. The ranks decide together. So all of them save the same step and restore
the same checkpoint. They leave after the same step when a notice reaches any of them.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, NoReturn

from .disk.checkpoint_directory import CheckpointDirectory
from .disk.retention import MODES, Best, Retention
from .disk.writers import lock_of
from .errors import UsageError
from .leaving import read_pause_at_step
from .notices.notice import NoticeWatch
from .progress import TrainingProgress
from .remote.second_tier import find_remote
from .saved_checkpoints import SavedCheckpoints
from .schedule.save_schedule import InterruptionOutlook, SaveSchedule
from .session import BEST, Session, Setup
from .state.open_gradients import OpenGradients
from .state.training_state import TrainingState
from .training_description import described_value
from .training_folder import find_folder, require_name

_DEFAULT_EVERY_SECONDS = 300.0
_AUTO = "auto"
_MEAN_SECONDS_VARIABLE = "SPOTKEEP_MEAN_SECONDS_BETWEEN_INTERRUPTIONS"
_NOTICE_CHANCE_VARIABLE = "SPOTKEEP_NOTICE_CHANCE"


class Checkpointer:
    """Keeps the state of a training through interruptions.

    ```python
    with Checkpointer({"model": model, "optimizer": optimizer, "rng": rng}, every_steps=100) as checkpointer:
        for step in checkpointer.steps(total_steps):
            loss = train_one_batch(step)
            checkpointer.log(loss=loss)
    ```

    Entering restores the newest good checkpoint into the objects of `state`. The loop goes on with the step after it.
    After each step a save begins when it is due. The state is copied between two steps, and a thread writes the copy
    while the training goes on. The tensors of a torch optimizer may be copied up to its next step, where the system
    shows that nothing else changes them. On a notice the Checkpointer saves after the current step, and the script
    exits with code 75. The next attempt takes up the work there. SPOTKEEP_PAUSE_AT_STEP names a step to pause at. After
    that step, if another one follows, the state is saved too, and the script exits with code 0. Leaving the block waits
    for a save that is still running.

    A save that fails (a full disk) does not end the training. It is reported after the next step, older checkpoints
    stay, and the next interval tries again. A state that cannot be saved at all is refused on entering.

    The memory for one copy of the state is taken at the first save and kept.

    In a distributed training (`torch.distributed` is initialised) every rank enters one and makes the same calls.
    `state` is common to all ranks. They write it together, and every rank gets it back. A rank with a value of its own
    writes that beside it, and gets its own back. The objects that each rank has for itself go into `per_rank`.

    A method that is collective is called by every rank, in the same order on all of them.

    Args:
        state: Names and objects. An object is a NumPy array, a random generator, or torch's module, optimizer or
            tensor. It may also be an object with `state_dict` and `load_state_dict`, or a dictionary or list of plain
            values. All are changed in place. Plain values may stand at the top of a dictionary too, and are put back
            into it.
        directory: Folder of the checkpoints of this training alone. The default is SPOTKEEP_CHECKPOINT_DIR, else
            `/opt/ml/checkpoints` if it exists, else `checkpoints`. A relative path lies in the first or second of these
            if there is one. Otherwise it lies in the directory that the script was started from.
        every_steps: Number of completed steps from one save to the next.
        every_seconds: Seconds from the begin of one save to the begin of the next. `"auto"` chooses the seconds that
            lose the least time, from the measured cost of a checkpoint and from `outlook`. The default is 300 s without
            `every_steps`.
        keep_last: Number of good checkpoints that stay, at least two.
        keep_every: Checkpoints of steps that are multiples of this number stay too.
        keep_best: The best checkpoint by a logged metric stays too, for example by `Best("loss", "min")`.
        outlook: Expected interruptions, for `"auto"`. The default is SPOTKEEP_MEAN_SECONDS_BETWEEN_INTERRUPTIONS (three
            hours) and SPOTKEEP_NOTICE_CHANCE (0.5). The interruptions of the run itself correct it.
        remote: Place of the checkpoints in S3, such as `s3://bucket/prefix`. It is for a machine with checkpoints that
            the platform does not copy. A thread uploads them, and the newest checkpoint of both places is restored. It
            needs boto3. The default is SPOTKEEP_CHECKPOINT_URI.
        per_rank: More names and objects, those that each rank of a distributed training has for itself. Examples are
            random generators and places in the data. `spotkeep help distributed-training` has the rule by which
            another number of ranks takes them.
        name: Name of the training, for a script with several of them. Its checkpoints lie in a folder of this name,
            here and in S3. It has letters, digits, `.`, `_` and `-`.
        on_restore: Function for a training that adds a parameter group or layers, or resizes an embedding, on its way.
            It gives the state its earlier form before a checkpoint is put back. All ranks call it once, with the
            completed steps and the completed epochs of the checkpoint (None for a training that counts none). An
            example is `on_restore=lambda step, epoch: optimizer.add_param_group(...)`.

    Raises:
        UsageError: If an argument makes no sense.
        MissingLibraryError: If boto3 is needed and not installed.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        every_steps: int | None = None,
        every_seconds: float | str | None = None,
        keep_last: int = 3,
        keep_every: int | None = None,
        keep_best: Best | None = None,
        outlook: InterruptionOutlook | None = None,
        remote: str | None = None,
        *,
        per_rank: Mapping[str, Any] | None = None,
        name: str | None = None,
        on_restore: Callable[[int, int | None], object] | None = None,
    ) -> None:
        require_name(name)
        auto = every_seconds == _AUTO
        if isinstance(every_seconds, str) and not auto:
            raise UsageError(f'every_seconds is {every_seconds!r}; pass a number above zero, or "{_AUTO}"')
        seconds = None if auto or every_seconds is None else float(every_seconds)
        for option, value in (
            ("every_steps", every_steps),
            ("every_seconds", seconds),
            ("keep_last", keep_last),
            ("keep_every", keep_every),
        ):
            if value is not None and not value > 0:
                raise UsageError(f"{option} is {value!r}; pass a number above zero")
        if keep_best is not None and keep_best.mode not in MODES:
            raise UsageError(f"the mode of keep_best is {keep_best.mode!r}; pass one of {', '.join(MODES)}")
        if every_steps is None and every_seconds is None:
            seconds = _DEFAULT_EVERY_SECONDS
        own: Mapping[str, Any] = {} if per_rank is None else per_rank
        twice = sorted({str(name) for name in own} & {str(name) for name in state})
        if twice:
            raise UsageError(f"both state and per_rank have {', '.join(map(repr, twice))}; pass each of them in one")
        # ResumableTraining saves them, in its place in the loops.
        gradients_are_saved = any(hasattr(value, "open_gradients") for value in own.values())
        pause_at_step = read_pause_at_step()
        schedule = SaveSchedule(every_steps=every_steps, every_seconds=seconds, auto=auto, outlook=_outlook(outlook))
        folder = find_folder(directory).named(name)
        self._setup = Setup(
            state=TrainingState(state, own),
            folder=folder,
            remote=find_remote(remote, directory=CheckpointDirectory(folder.path), name=name),
            retention=Retention(last=keep_last, every=keep_every, best=keep_best),
            schedule=schedule,
            counts_interruptions=auto,
            open_gradients=None if gradients_are_saved else OpenGradients(state),
            watch=NoticeWatch(on_change=self._on_notice_change),
            pause_at_step=pause_at_step,
            on_restore=on_restore,
            lock=lock_of(os.environ),
        )
        self._progress = TrainingProgress()
        self._facts: dict[str, str] = {} if name is None else {"name": name}
        self._session: Session | None = None
        self._done_before = 0  # the steps of a loop that this object has gone through to its end

    @property
    def step(self) -> int:
        """Completed steps. Not collective. Any thread may ask."""
        return self._progress.step

    @property
    def durable_step(self) -> int | None:
        """Completed steps of the newest checkpoint that is known to be durable, None for none.

        Not collective. For the thread that trains.
        """
        if self._session is None:
            return None
        self._session.saves.settle()
        return self._session.saves.durable_step

    @property
    def directory(self) -> Path:
        """Folder of the checkpoints on this machine. Not collective. Any thread may ask."""
        return self._setup.folder.path

    @property
    def uploads(self) -> bool:
        """True if this process uploads the checkpoints to S3. Other files stay on this machine.

        Not collective. Any thread may ask.
        """
        return (self._setup.remote if self._session is None else self._session.tier.remote) is not None

    @property
    def interrupted(self) -> bool:
        """True if the script has to save and leave, for a notice or because the step to pause at is done.

        Collective. For the thread that trains.

        `steps` asks this by itself. A loop of your own asks after each step, and then calls `save` and `leave`. In a
        distributed training a notice to any rank counts for all, and every rank must ask when one does.
        """
        return self.noticed or (self._session is not None and self._session.pause_is_due())

    @property
    def noticed(self) -> bool:
        """True if a notice has come, which leaves time for a save alone. Every rank must ask when one does.

        Collective. For the thread that trains.
        """
        return self._setup.watch.notice() is not None if self._session is None else self._session.noticed()

    def leave(self) -> NoReturn:
        """Leave the script for the reason of `interrupted`, in the `with` block, once the state of this step is saved.

        Collective. For the thread that trains.

        Raises:
            UsageError: Outside a `with` block.
            SystemExit: With code 75 after a notice, with 0 at the step to pause at.
            SaveError: If the run cannot pause, because the checkpoint of this step is not durable.
        """
        self._require_entered().leave()

    def __enter__(self) -> Checkpointer:
        watch = self._setup.watch
        watch.start()
        watch.note_training(done=False)
        try:
            session = self._join()
            session.enter()
            session.restore()
            session.take_over()
            session.begin_questions()
        except BaseException:
            if self._session is not None:
                self._session.leave_folder(ended=False)
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._session
        try:
            if session is not None:
                session.finish(exception)
        finally:
            if session is not None:
                session.end_questions()
                session.tier.stop()
            self._setup.watch.stop()
            if session is not None:
                session.leave_folder(ended=session.has_ended(exception_type))
                session.ranks.leave(saving=session.saves.saving)

    def steps(self, total_steps: int) -> Iterator[int]:
        """Go through the steps that are left, from the restored one up to, not including, `total_steps`.

        Collective. For the thread that trains.

        The Checkpointer saves when a save is due, at the end, on a notice and at a pause. Leaving the loop early
        (`break`, an exception) saves nothing, since the step was not finished. Neither a notice nor a pause in the last
        step ends the script, which is as good as done.

        Args:
            total_steps: Steps of the whole training.

        Raises:
            UsageError: Outside a `with` block, or when so many steps have been gone through before.
            SystemExit: With code 75 after a notice, with 0 after the step to pause at.
        """
        session = self._require_entered()
        self._require_more(total_steps)
        progress = self._progress
        session.leave_before_first_step(last=progress.step >= total_steps)
        try:
            while progress.step < total_steps:
                session.begin_step()
                yield progress.step
                session.complete_step(total_steps)
                last = progress.step >= total_steps
                if session.save_when_due(last=last) and not last:
                    session.leave()
        finally:
            session.saves.finish_copy()
        self._finish_loop(session, total_steps)

    def epochs(self, total_epochs: int, *, steps_per_epoch: int) -> Iterator[Epoch]:
        """Go through the epochs that are left, the current one from its current step.

        Collective. For the thread that trains.

        The code after the inner loop (validation, a learning rate schedule) belongs to the epoch. It runs once more if
        an interruption came between the last step and the end of the epoch. The state is then as after the last step.

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
            UsageError: Outside a `with` block, for a checkpoint that was made with other steps an epoch, for an inner
                loop that was left early, or when so many epochs have been gone through before.
            SystemExit: With code 75 after a notice, with 0 after the step to pause at.
        """
        session = self._require_entered()
        total_steps = total_epochs * steps_per_epoch
        self._require_more(total_steps)
        progress = self._progress
        session.leave_before_first_step(last=progress.step >= total_steps)
        if progress.epochs_completed is None:
            progress.epochs_completed = progress.step // steps_per_epoch
        for index in range(progress.epochs_completed, total_epochs):
            first, end = index * steps_per_epoch, (index + 1) * steps_per_epoch
            if not first <= progress.step <= end:
                raise UsageError(
                    f"the checkpoint has {index} epochs and {progress.step} steps, which does not fit "
                    f"{steps_per_epoch} steps an epoch; keep the batch size of the run"
                )
            yield Epoch(index=index, steps=self._epoch_steps(session, first, end, total_steps))
            if progress.step != end:
                raise UsageError(
                    f"epoch {index} was left after {progress.step - first} of {steps_per_epoch} steps; "
                    "go through all of them, or leave the outer loop too"
                )
            last = index + 1 == total_epochs
            progress.epochs_completed = index + 1
            if session.save_when_due(last=last) and not last:
                session.leave()
        self._finish_loop(session, total_steps)

    def complete_step(self, *, total_steps: int | None = None) -> None:
        """Count a step that is done, for the loops of a trainer with callbacks.

        Collective. For the thread that trains.

        `save_if_due` comes after it, once the state is that of this step as a whole.

        Args:
            total_steps: Steps of the whole training, for the progress event. None for an unknown number.

        Raises:
            UsageError: Outside a `with` block.
        """
        self._require_entered().complete_step(total_steps)

    def count_epochs(self, completed: int) -> None:
        """Note the completed epochs, for the loops of a trainer with callbacks. The next checkpoint holds the number.

        Not collective. For the thread that trains.

        Args:
            completed: Completed epochs, 0 within the first one.
        """
        self._progress.epochs_completed = completed

    def save_if_due(self, *, last: bool = False) -> bool:
        """Save after a completed step if a save is due, before the script leaves, or at the end of the training.

        Collective. For the thread that trains.

        Args:
            last: True once the training is done.

        Returns:
            True if the script has to call `leave`. A notice has come, and the state is durable or the notice is over.
            Or the run pauses here, and the state is durable.

        Raises:
            UsageError: Outside a `with` block.
        """
        session = self._require_entered()
        leaves = session.save_when_due(last=last)
        if leaves or last:
            session.wait_until_over()
        if last:
            session.report_end("finish")
        else:
            session.begin_step()
        return leaves

    def require_common_steps(self) -> None:
        """Refuse a block of `model.join()`, for the loops of a trainer, before the first step in it.

        Not collective. For the thread that trains.

        A rank without more batches waits there. It takes part in the collectives of the training alone, and in no save.

        Raises:
            UsageError: If this process is in such a block, and there are other ranks.
        """
        if self._session is not None:
            self._session.ranks.require_common_steps()

    def log(self, **metrics: float) -> None:
        """Note metrics of the current step. They go out with the next progress event.

        Not collective. For the thread that trains.

        Args:
            **metrics: Names and numbers, for example `loss=0.3`.
        """
        self._progress.log(metrics)

    def describe(self, **facts: Any) -> None:
        """Describe the training beside its script, arguments and hyperparameters.

        Not collective. For the thread that trains.

        ```python
        checkpointer.describe(data="imagenet-2012", learning_rate=configuration.learning_rate)
        ```

        Each checkpoint holds the facts, and a resume with other facts warns of both. Facts have no effect after the
        checkpoint is restored.

        Args:
            **facts: Texts, numbers, lists and dictionaries of them. A value with the name of a secret (`hf_token`) is
                not written.
        """
        if self._session is None or self._session.restored is None:
            self._facts.update({name: described_value(name, value) for name, value in facts.items()})

    def set_metadata(self, **values: Any) -> None:
        """Keep values beside the state in each checkpoint from now on. `metadata` reads them without the state.

        Not collective, and rank 0's values count. For the thread that trains.

        Args:
            **values: JSON values, for example `vocabulary=["a", "b"]`. A value replaces that of its name. A restore
                brings back the values of the checkpoint, except for names that the script has set before.

        Raises:
            UsageError: If a value is not a JSON value, or all have more than 64 KiB.
        """
        self._progress.set_metadata(values)

    def metadata(self, step: int) -> dict[str, Any]:
        """Read the values that `set_metadata` has kept in a checkpoint.

        Not collective. Any thread may call it.

        Raises:
            MissingCheckpointError: If there is no checkpoint of this step.
            DamagedCheckpointError: If its manifest is altered.
            NewerFormatError: If a newer library wrote it.
            RemoteError: If S3 cannot be read.
        """
        return dict(self._saved.metadata(step))

    def all_steps(self) -> list[int]:
        """List the steps with a checkpoint on this machine or in S3, the oldest first. Nothing is verified.

        Not collective. Any thread may call it.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        return self._saved.steps()

    def latest_step(self) -> int | None:
        """Find the newest step with a checkpoint, as `all_steps` does. None for none.

        Not collective. Any thread may call it.
        """
        return next(reversed(self._saved.steps()), None)

    def best_step(self) -> int | None:
        """Find the step of the best checkpoint by the metric of `keep_best`. None where none has that metric.

        Not collective. Any thread may call it.

        Raises:
            UsageError: Without `keep_best`.
            RemoteError: If S3 cannot be read.
        """
        return self._saved.best(self._require_best())

    def delete(self, step: int) -> None:
        """Remove a checkpoint on this machine and in S3.

        Collective, so every rank must call it. For the thread that trains. Saves and uploads that still run are waited
        for. The newest checkpoint may be removed too, and a resume then takes the one before it.

        Raises:
            MissingCheckpointError: If there is no checkpoint of this step.
            LockLostError: If a later writer of the run has begun, whose checkpoints these are now.
            SaveError: If the disk refuses.
            RemoteError: If S3 refuses.
            UsageError: If `step` is no number of steps.
        """
        step = _completed_steps(step, act="delete")
        with self._joined() as session:
            session.delete(step)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Paths that `restore(strict=False)` left out, of the checkpoint and of the script. Empty for none.

        Not collective. Any thread may ask.
        """
        restored = None if self._session is None else self._session.restored
        return () if restored is None else restored.left_out

    def restore(self, step: int | str | None = None, *, strict: bool = True) -> int:
        """Restore a checkpoint into the state. Collective, so every rank must call it. For the thread that trains.

        Without `step` it is the newest good one. A damaged checkpoint is passed over for the next older one, with
        a `fallback` event that names the file. The newest checkpoint is verified while it is read into the state, since
        an older one would overwrite all of it. The oldest checkpoint, and every one after a damaged one, is verified
        before the state changes. A state without arrays and tensors does not change while it is read, so each
        checkpoint is read once.

        Entering a `with` block does this by itself. A second call without arguments does nothing.

        With `step` no other checkpoint is taken in its place. A training that goes on from an older one refuses to save
        while newer ones are there, because a resume would take those. `delete` removes them.

        Args:
            step: Completed steps of the checkpoint, or `"best"` for the best one by the metric of `keep_best`. None for
                the newest good one.
            strict: False takes the part of a checkpoint that fits, such as the model without its optimizer, or a model
                with another last layer. `left_out` and the log name the rest, which stays as it is.

        Returns:
            Completed steps, 0 without a checkpoint.

        Raises:
            StateError: If the state could not be saved later on, or not be restored then.
            StateMismatchError: If a good checkpoint does not fit the state, or a value differs from the saved one after
                the restore.
            MissingCheckpointError: If there is no checkpoint of `step`.
            DamagedCheckpointError: If the checkpoint of `step` is damaged, here and in S3.
            WorldSizeError: If another number of ranks wrote it, and a part of it is of use to them only.
            OtherRankError: If one of these happened on another rank only.
            NewerFormatError: If a newer library wrote the newest checkpoint.
            MixedStateError: If none is good, and a damaged one has overwritten a part of the state.
            RemoteError: If a remote place is given and cannot be read. The newest checkpoint may be there.
            UsageError: If `step` is neither a step nor `"best"`, or is that without `keep_best`.
            SystemExit: With code 75, for a notice during a download.
        """
        if step == BEST:
            self._require_best()
        elif step is not None:
            step = _completed_steps(step, act="restore", or_else=f', "{BEST}" or nothing')
        with self._joined() as session:
            return session.restore(step, strict=strict)

    def save(self, step: int, *, reason: str = "script", wait: bool = True) -> None:
        """Save the state now, for loops that count their own steps. Saving the same step again does nothing.

        Collective, so every rank must save the same steps. For the thread that trains. A save that is still running is
        waited for first.

        Args:
            step: Completed steps.
            reason: Reason for the save, for the `saved` event.
            wait: True returns when the checkpoint is durable. False returns when the state may change again. Then
                `wait` raises the failure. Without that call the next save, or the end of the `with`
                block, reports it as `steps` does.

        Raises:
            StateError: If the state cannot be saved.
            SaveError: If the disk refuses, or the memory. Older checkpoints are as they were.
            UsageError: If `step` is no number of steps, or if the training went back to an older checkpoint, and newer
                ones are still there.
        """
        step = _completed_steps(step, act="save")
        with self._joined(stay=not wait) as session:
            session.save(step, reason=reason)
            if wait:
                session.saves.wait()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a save that is running is durable. Not collective. For the thread that trains.

        Args:
            seconds: Longest time to wait. None for no limit.

        Returns:
            False if the save is still running then, else true.

        Raises:
            SaveError: If it failed. Older checkpoints are as they were.
        """
        return self._session is None or self._session.saves.wait(seconds)

    @property
    def _saved(self) -> SavedCheckpoints:
        setup = self._setup
        return SavedCheckpoints(CheckpointDirectory(setup.folder.path), remote=setup.remote)

    def _require_best(self) -> Best:
        best = self._setup.retention.best
        if best is None:
            raise UsageError(
                "there is no best checkpoint without a metric: pass keep_best, for example "
                'keep_best=Best("loss", "min"), and log that metric'
            )
        return best

    def _join(self) -> Session:
        """Give the session. The first call meets the other ranks, if there are any, and so does one after a block."""
        if self._session is None:
            self._session = Session(self._setup, progress=self._progress, facts=self._facts)
        self._session.ranks.join()
        return self._session

    @contextlib.contextmanager
    def _joined(self, *, stay: bool = False) -> Iterator[Session]:
        """Give the session for one call. Outside a block the ranks part after it.

        Args:
            stay: True where a thread goes on to talk with the other ranks after the call.
        """
        session = self._join()
        try:
            yield session
        finally:
            if not self._setup.watch.is_watching and not stay:
                session.ranks.leave(saving=session.saves.saving)

    def _require_entered(self) -> Session:
        if self._session is None or not self._setup.watch.is_watching:
            raise UsageError(
                "steps are counted, and the script left, only inside `with checkpointer:`, where notices are seen"
            )
        return self._session

    def _require_more(self, total_steps: int) -> None:
        """Refuse a second loop without a step, because it would train nothing and report nothing.

        A training that went back to an older checkpoint has steps again.
        """
        done = min(self._done_before, self._progress.step)
        if 0 < total_steps <= done:
            raise UsageError(
                f"this Checkpointer has gone through {done} steps already, and a loop over {total_steps} "
                "has none left: the number is that of the whole training. For more steps of it, pass a larger one; for "
                'another training, enter a Checkpointer with a name of its own (name="fold-2")'
            )

    def _epoch_steps(self, session: Session, first: int, end: int, total_steps: int) -> Iterator[int]:
        progress = self._progress
        try:
            while progress.step < end:
                session.begin_step()
                yield progress.step - first
                session.complete_step(total_steps)
                # The last step's save waits for what follows the loop: it belongs to the epoch. A notice does not wait.
                if progress.step < end:
                    if session.save_when_due(last=False):
                        session.leave()
                elif session.noticed():
                    session.try_to_save(reason="notice")
                    session.leave()
        finally:
            session.saves.finish_copy()

    def _finish_loop(self, session: Session, total_steps: int) -> None:
        session.wait_until_over()
        self._done_before = total_steps
        session.report_end("finish")

    def _on_notice_change(self) -> None:
        """Let the session act in the thread that watches for notices."""
        if self._session is not None:
            self._session.act_on_notice()


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Attributes:
        index: Number of the epoch, from 0.
        steps: Indices, within the epoch, of the steps that are left. Iterating over the epoch gives the same.
    """

    index: int
    steps: Iterator[int]

    def __iter__(self) -> Iterator[int]:
        return self.steps


def _completed_steps(step: Any, *, act: str, or_else: str = "") -> int:
    """Give a number of completed steps, also one of NumPy's, as Python's own. A file's name and JSON need that."""
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise UsageError(f"the step to {act} is {step!r}; pass a number of completed steps{or_else}")
    return number


def _outlook(given: InterruptionOutlook | None) -> InterruptionOutlook:
    default = InterruptionOutlook()
    outlook = given or InterruptionOutlook(
        mean_seconds_between=_number(_MEAN_SECONDS_VARIABLE, default.mean_seconds_between),
        notice_chance=_number(_NOTICE_CHANCE_VARIABLE, default.notice_chance),
    )
    if not outlook.mean_seconds_between > 0:
        raise UsageError(f"the mean time between interruptions is {outlook.mean_seconds_between!r} s; pass more than 0")
    if not 0 <= outlook.notice_chance <= 1:
        raise UsageError(f"the chance of a notice is {outlook.notice_chance!r}; pass a number from 0 to 1")
    return outlook


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise UsageError(f"{variable} is {text!r}; set it to a number") from None
