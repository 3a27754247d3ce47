"""What a training script uses: one object that restores, counts steps, saves on time, and leaves on a notice.

It leaves too when the step is done at which the run shall pause; a later process goes on from there.

In a distributed training every rank has one. They decide together, so that all of them save the same step, restore the
same checkpoint, and leave after the same step when a notice reaches any of them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, NoReturn

from . import events
from .disk.background_save import BackgroundSaver, SaveOutcome
from .disk.checkpoint_directory import CheckpointDirectory, OpenCheckpoint
from .disk.chunk_checksums import chunk_checksums
from .disk.manifest import CHUNK_BYTES, Manifest, Progress, RankView, state_pairs
from .disk.retention import MODES, Best, Retention
from .errors import (
    CheckpointError,
    DamagedCheckpointError,
    MixedStateError,
    OtherRankError,
    RankLostError,
    SaveError,
    StateError,
    UsageError,
)
from .notices.notice import EXIT_INTERRUPTED, Notice, NoticeWatch
from .ranks.comparison import RankComparison
from .ranks.distributed import OneRank, Ranks, join_ranks, together
from .ranks.joinables import Joinables
from .ranks.rank_shares import ShareDocument, differing_paths, trained_names, view_for
from .ranks.shared_directory import SharedDirectory
from .remote.second_tier import SecondTier
from .remote.transfer import TransferCancelledError
from .schedule.interruption_history import LEFT, NOTICED, InterruptionHistory, expect
from .schedule.save_schedule import InterruptionOutlook, Interval, SaveSchedule, rounded
from .state.changes import Beginning
from .state.encoding import EncodedState, encode_state
from .state.open_gradients import OpenGradients
from .state.restoring import (
    altered,
    check_state,
    compare_restored,
    put_back,
    require_fit,
    require_no_difference,
    require_taken_back,
)
from .state.shared_memory import SharedMemory
from .state.updated_tensors import UpdatedTensors
from .training_description import (
    changes,
    describe_process,
    describe_settings,
    described_value,
    is_of_the_same_start,
)
from .training_folder import TRAININGS_HERE, find_folder, require_name

_DEFAULT_EVERY_SECONDS = 300.0
_WATCH_SECONDS = 0.2
_MOST_CHANGES = 5
_LONGEST_NOTICE_MS = 2**40
_MOST_FOLDERS_BESIDE = 100
_AFTER_A_STEP, _LAST = 1, 2
_PLACES = ("asks after step {}", "has done step {}", "has done its last step, {}")
_REASONS = (None, "interval", "rebalance")
_AUTO = "auto"
_MEAN_SECONDS_VARIABLE = "SPOTKEEP_MEAN_SECONDS_BETWEEN_INTERRUPTIONS"
_NOTICE_CHANCE_VARIABLE = "SPOTKEEP_NOTICE_CHANCE"
_PAUSE_VARIABLE = "SPOTKEEP_PAUSE_AT_STEP"
_PATHS_SHOWN = 5

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
    After each step the state is saved when it is due: it is copied between two steps, and the copy is written while the
    training goes on. When a notice has come, the state is saved after the current step and the script exits with code
    75, so that the next attempt takes up the work there. After the step that SPOTKEEP_PAUSE_AT_STEP names, if there is
    another one, the state is saved too, and the script exits with code 0: the run is paused. Leaving the block waits
    for a save that is still running.

    A save that fails (a full disk) does not end the training: it is reported after the next step, older checkpoints
    stay, and the next interval tries again. A state that cannot be saved at all is refused on entering.

    Memory: one copy of the state, taken at the first save and kept.

    In a distributed training (`torch.distributed` is initialised) every rank enters one and makes the same calls.
    `state` is what all ranks have in common: rank 0 writes it, and every rank gets it back. A rank that has something
    otherwise writes that beside it, and gets its own back. What each rank has for itself goes into `per_rank`.

    Args:
        state: Names and objects: NumPy arrays, torch modules, optimizers and tensors, anything with `state_dict` and
            `load_state_dict`, random generators, and dictionaries or lists of plain values. They are changed in place.
            Plain values may stand at the top of a dictionary too; they are put back into it.
        directory: Where checkpoints are: a folder of this training's own. Default: SPOTKEEP_CHECKPOINT_DIR, else
            `/opt/ml/checkpoints` where it exists, else `checkpoints`. A relative path is one in the first two where
            there is one of them, else one in the directory that the script was started from.
        every_steps: Save after so many steps.
        every_seconds: Save when so many seconds have passed since the last save began, or `"auto"`: as often as loses
            the least time, from what a checkpoint is measured to cost and what `outlook` expects. When neither is
            given: 300.
        keep_last: How many good checkpoints stay; at least two always do.
        keep_every: Checkpoints of steps that are multiples of this stay too.
        keep_best: And the best one by a metric that the script logs, for example `Best("loss", "min")`.
        outlook: For `"auto"`. Default: SPOTKEEP_MEAN_SECONDS_BETWEEN_INTERRUPTIONS (three hours) and
            SPOTKEEP_NOTICE_CHANCE (0.5). What the run itself has seen of interruptions corrects it.
        remote: `s3://bucket/prefix`, where nothing else copies the checkpoints to a place that outlives this machine:
            they are uploaded there in the background, and the newest of both places is restored. Needs boto3. Default:
            SPOTKEEP_CHECKPOINT_URI.
        per_rank: More names and objects, those that each rank of a distributed training has for itself: random
            generators, places in the data. With them the training goes on with the same number of ranks only.
        name: What this training is called, where a script has several: its checkpoints lie in a folder of this name,
            here and in S3. Letters, digits, `.`, `_` and `-`.
        allow_world_size_change: Let another number of ranks take what all had in common. `per_rank` stays as the script
            made it then, and the run does not end as an uninterrupted one would. It is refused where `per_rank` holds
            floating-point arrays, which are parts of a model or of an optimizer: what was trained would be lost.
        on_restore: For a training that changes the form of its state on its way: adds a parameter group or layers,
            resizes an embedding. Called once before a checkpoint is put back, with its completed steps and its
            completed epochs (None where the training counts none), on all ranks. It makes the form as it was then:
            `on_restore=lambda step, epoch: optimizer.add_param_group(...)`.

    Raises:
        UsageError: If an argument makes no sense.
        MissingLibraryError: If boto3 is needed and not installed.
    """

    # Of the process, whose last word counts: a training that ends inside of another one has said it for both.
    _said_done = False

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
        allow_world_size_change: bool = False,
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
        self._state = state
        self._per_rank: Mapping[str, Any] = {} if per_rank is None else per_rank
        twice = sorted({str(name) for name in self._per_rank} & {str(name) for name in state})
        if twice:
            raise UsageError(f"both state and per_rank have {', '.join(map(repr, twice))}; pass each of them in one")
        self._updated_tensors = UpdatedTensors(self._state, self._per_rank)
        self._allow_world_size_change = allow_world_size_change
        self._on_restore = on_restore
        self._has_on_restore = on_restore is not None
        self._shared_memory: SharedMemory | None = None
        # ResumableTraining saves them, in its place in the loops.
        are_saved = any(hasattr(value, "open_gradients") for value in self._per_rank.values())
        self._open_gradients = None if are_saved else OpenGradients(state)
        self._ranks: Ranks = OneRank()
        self._joinables = Joinables()
        self._looked_for_joinables = False
        self._comparison = RankComparison(self._ranks, self._joinables)
        self._joined = False
        self._leaving_agreed = False
        self._pause_at_step = _pause_at_step()
        self._pausing = False
        self._schedule = SaveSchedule(
            every_steps=every_steps,
            every_seconds=seconds,
            auto=auto,
            outlook=_outlook(outlook),
            announce=self._announce_interval,
        )
        self._retention = Retention(last=keep_last, every=keep_every, best=keep_best)
        self._folder = find_folder(directory).named(name)
        self._label = self._folder.label
        self._directory = CheckpointDirectory(self._folder.path)
        self._saver = BackgroundSaver(self._directory, tidy=self._after_save)
        self._second_tier = SecondTier(
            self._directory, remote=remote, name=name, retention=self._retention, emit=self._emit
        )
        self._history = InterruptionHistory(self._directory.path) if auto else None
        self._notice_watch = NoticeWatch(on_change=self._on_notice_change)
        # The thread that notices first reports both. Entered again by a handler that interrupts a thread which is in
        # it.
        self._telling = threading.RLock()
        self._reported_deadline: float | None = None
        self._too_late_told = False
        self._gave_up = False
        self._fetch_cancelled = threading.Event()
        self._saving_step = 0
        self._written_step: int | None = None
        self._entered = False
        self._restored = False
        self._step = 0
        self._step_began: float | None = None
        self._step_began_saving = False
        self._epochs_completed: int | None = None
        self._beginning: Beginning | None = None
        self._form_said = self._beside_said = False
        self._durable_step: int | None = None
        self._started_step: int | None = None
        self._done_before = 0  # the steps of a loop that this object has gone through to its end
        self._made_by: dict[str, str] = {} if name is None else {"name": name}
        self._metrics: dict[str, Any] = {}
        self._known_metrics: dict[str, float] = {}
        self._measured_at: dict[str, int] = {}
        self._logged_since: set[str] = set()

    @property
    def step(self) -> int:
        """Completed steps."""
        return self._step

    @property
    def durable_step(self) -> int | None:
        """Completed steps of the newest checkpoint that is known to be durable; None when there is none."""
        self._settle()
        return self._durable_step

    @property
    def directory(self) -> Path:
        """Where the checkpoints are."""
        return self._directory.path

    @property
    def uploads(self) -> bool:
        """Whether the library itself brings the checkpoints to S3. Other files stay on this machine."""
        return self._second_tier.remote is not None

    @property
    def interrupted(self) -> bool:
        """Whether to save and leave: a notice has come, or the step to pause at is done.

        `steps` asks this by itself; a loop of your own should after each step, and then `save` and `leave`. In a
        distributed training a notice to any rank counts for all, and every rank must ask when one does.
        """
        return self.noticed or self._pause_is_due

    @property
    def noticed(self) -> bool:
        """Whether a notice has come: there is no time but to save. Every rank must ask when one does."""
        return self._agree(None)[0]

    def leave(self) -> NoReturn:
        """Leave the script as `interrupted` means it, in the `with` block, once the state of this step is saved.

        Raises:
            UsageError: Outside a `with` block.
            SystemExit: With code 75 after a notice, with 0 at the step to pause at.
            SaveError: If the run cannot pause, because the checkpoint of this step is not durable.
        """
        # Only the end of the block says that the run is paused: with code 0 alone it would count as finished.
        self._require_entered()
        self._wait_until_over()
        if not self._pause_is_due or self.noticed:
            raise SystemExit(EXIT_INTERRUPTED)
        if not self._is_durable():
            raise SaveError(f"the run cannot pause: the checkpoint of step {self._step} is not durable")
        self._pausing = True
        raise SystemExit(0)

    def __enter__(self) -> Checkpointer:
        self._notice_watch.start()
        self._entered = True
        self._say_whether_done(done=False)
        try:
            self._join()
            together(self._ranks, self._take_folder)
            self.restore()
        except BaseException:
            TRAININGS_HERE.leave(self, step=self._step, ended=False)
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._wait_until_over()
            ending = self._ending()
            if self._history is not None and self._restored and ending is not None:
                self._history.seen(ending)
            uploaded = False
            if not isinstance(exception, KeyboardInterrupt):
                uploaded = self._second_tier.finish(lambda: self._notice_watch.seconds_left)
                if self._history is not None and self._notice_watch.seconds_left > 0:
                    self._second_tier.send_history()
            if isinstance(exception, SystemExit):
                self._pause(exception, uploaded=uploaded)
            if isinstance(exception, SystemExit) and exception.code == EXIT_INTERRUPTED:
                self._notice_watch.note_leaving()
            if self._leaving_agreed and isinstance(exception, SystemExit):
                # A launcher ends all ranks when the first one leaves, and rank 0 may still have been uploading.
                with contextlib.suppress(RankLostError):
                    self._ranks.exchange(None)
        finally:
            self._second_tier.stop()
            self._notice_watch.stop()
            self._entered = False
            TRAININGS_HERE.leave(self, step=self._step, ended=self._has_ended(exception_type))

    def _has_ended(self, exception_type: type[BaseException] | None) -> bool | None:
        """Say whether the training has come to its end, as it leaves; None where that is not known."""
        if self._step == 0 and self._durable_step is None:
            return False  # there is nothing that another one could take for its own
        if exception_type is None:
            return True
        # A generator is closed by a `break` and by an error in the loop over it alike.
        return None if issubclass(exception_type, GeneratorExit) else False

    def steps(self, total_steps: int) -> Iterator[int]:
        """Go through the steps that are left: from the restored one up to, not including, `total_steps`.

        Saves when due, at the end, on a notice and at a pause. Leaving the loop early (`break`, an exception)
        saves nothing: the step was not finished. Neither a notice nor a pause in the last step ends the script,
        which is as good as done.

        Args:
            total_steps: Steps of the whole training.

        Raises:
            UsageError: Outside a `with` block, or when so many steps have been gone through before.
            SystemExit: With code 75, after a notice; with 0, after the step to pause at.
        """
        self._require_entered()
        self._require_more(total_steps)
        self._leave_before_the_first_step(last=self._step >= total_steps)
        while self._step < total_steps:
            self._begin_step()
            yield self._step
            self._complete_step(total_steps)
            self._save_and_leave_when_due(last=self._step >= total_steps)
        self._wait_until_over()
        self._done_before = total_steps
        self._tell_end("finish")

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
            UsageError: Outside a `with` block, when the checkpoint was made with other steps an epoch, when an inner
                loop was left early, or when so many epochs have been gone through before.
            SystemExit: With code 75, after a notice; with 0, after the step to pause at.
        """
        self._require_entered()
        self._require_more(total_epochs * steps_per_epoch)
        self._leave_before_the_first_step(last=self._step >= total_epochs * steps_per_epoch)
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
        self._wait_until_over()
        self._done_before = total_epochs * steps_per_epoch
        self._tell_end("finish")

    def complete_step(self, *, total_steps: int | None = None) -> None:
        """Count a step that is done, for loops that other code runs: those of a trainer with callbacks.

        `save_if_due` comes after it, once the state is that of this step as a whole.

        Args:
            total_steps: Steps of the whole training, if known, for the progress event.

        Raises:
            UsageError: Outside a `with` block.
        """
        self._require_entered()
        self._complete_step(total_steps)

    def count_epochs(self, completed: int) -> None:
        """Note how many epochs are completed, for loops that other code runs: the next checkpoint says so.

        Args:
            completed: How many; within the first epoch it is 0.
        """
        self._epochs_completed = completed

    def save_if_due(self, *, last: bool = False) -> bool:
        """Save after a completed step when that is due, to leave after it, or as the last one.

        Args:
            last: Whether the training is done.

        Returns:
            Whether to `leave`: a notice has come, and the state is durable, or the notice is over; or the run pauses
            here, and the state is durable.

        Raises:
            UsageError: Outside a `with` block.
        """
        self._require_entered()
        leaves = self._save_when_due(last=last)
        if leaves or last:
            self._wait_until_over()
        if last:
            self._tell_end("finish")
        else:
            self._begin_step()
        return leaves

    def require_common_steps(self) -> None:
        """Refuse a block of `model.join()`, for loops that other code runs, before the first step in it.

        A rank that has no more batches waits there, takes part in the training's collectives alone, and in no save.

        Raises:
            UsageError: If this process is in such a block, and there are other ranks.
        """
        if self._ranks.world_size == 1:
            return
        if not self._looked_for_joinables and self._restored:
            # A framework makes them after the state was restored.
            self._looked_for_joinables = True
            self._joinables.find()
        if self._joinables.joining:
            raise UsageError(
                "this training is in a block of join(), in which ranks may have different numbers of batches: a rank "
                "without any waits in it, and does not take part in a save. Give all ranks as many batches, with a "
                "DistributedSampler (it fills up) or drop_last=True, and leave join() out"
            )

    def log(self, **metrics: float) -> None:
        """Note metrics of the current step; they go out with the next progress event."""
        self._metrics.update(metrics)
        numbers = _numbers(metrics)
        self._known_metrics.update(numbers)
        self._logged_since.update(numbers)

    def describe(self, **facts: Any) -> None:
        """Say what makes this training what it is, beside its script, arguments and hyperparameters.

        ```python
        checkpointer.describe(data="imagenet-2012", learning_rate=configuration.learning_rate)
        ```

        Each checkpoint holds it, and a resume with other facts says in a warning what they were and what they are. Say
        it before the checkpoint is restored: later it has no effect.

        Args:
            **facts: Texts, numbers, lists and dictionaries of them. Values whose name is that of a secret
                (`hf_token`) are not written.
        """
        if not self._restored:
            self._made_by.update({name: described_value(name, value) for name, value in facts.items()})

    def restore(self) -> int:
        """Restore the newest good checkpoint into the state. Gives the completed steps; 0 when there is none.

        A damaged checkpoint is passed over for the next older one, with a `fallback` event that names the file. The
        newest is verified while it is read into the state: an older one stands behind it, which would overwrite all of
        it. One that nothing stands behind, and every one after a damaged one, is verified before anything is changed.
        Where the state holds no array or tensor yet, reading changes nothing, and each is read once.

        Entering a `with` block does this by itself; a second call does nothing.

        Raises:
            StateError: If the state could not be saved later on, or not be restored then.
            StateMismatchError: If a good checkpoint does not fit the state, or something is not what was saved after it
                was restored.
            WorldSizeError: If another number of ranks wrote it, and there is something in it that only they could use.
            OtherRankError: If something of this kind went wrong on another rank only.
            NewerFormatError: If a newer library wrote the newest checkpoint.
            MixedStateError: If none is good, and a damaged one has overwritten a part of the state.
            RemoteError: If a remote place is given and cannot be read: the newest checkpoint may be there.
            SystemExit: With code 75, when a notice comes while a checkpoint is downloaded.
        """
        if self._restored:
            return self._step
        self._join()
        self._made_by = {**describe_process(environment=os.environ), **self._made_by}
        settings = dict(describe_settings(self._state))
        self._made_by.update(settings)
        in_place = any(together(self._ranks, self._check_state))
        found = self._restore_newest(in_place=in_place)
        if found is None:
            together(self._ranks, self._require_taken_back)
        else:
            self._step, self._epochs_completed = found.manifest.step, found.manifest.epochs_completed
            self._durable_step = self._started_step = self._step
            self._known_metrics = dict(found.manifest.metrics)
            self._measured_at = dict(found.manifest.measured_at)
        self._restored = True
        if found is None:
            together(self._ranks, self._tell_what_is_beside)
        else:
            self._tell_changes(found.manifest)
            # These have come back with the state, and are what it goes on with.
            self._made_by.update({name: text for name, text in found.manifest.made_by.items() if name in settings})
        if self._ranks.rank == 0:
            self._beginning = Beginning({**self._state, **self._per_rank})
        self._begin_history()
        self._schedule.tried(self._step, time.monotonic())
        name = None if found is None else self._directory.name(self._step)
        self._emit("resume", step=self._step, checkpoint=name, keep=self._retention.document())
        self._report_what_was_measured()
        return self._step

    def save(self, step: int, *, reason: str = "script", wait: bool = True) -> None:
        """Save the state now, for loops that count their own steps. Saving the same step again does nothing.

        A save that is still running is waited for first. In a distributed training every rank must save the same steps.

        Args:
            step: Completed steps.
            reason: Why, for the `saved` event.
            wait: Return when the checkpoint is durable. Otherwise return when the state may change again; then
                `wait_until_durable` raises what went wrong, and without it the next save or the end of the `with` block
                tells, as `steps` does.

        Raises:
            StateError: If the state cannot be saved.
            SaveError: If the disk refuses, or the memory. Older checkpoints are as they were.
        """
        self._join()
        self._step = step
        if self._ranks.world_size > 1:
            # How a save ended is the same on all ranks; when they hear of it is not.
            self._saver.wait()
            self._settle()
        if self._started_step != step:
            self._saver.wait()
            self._settle()
            self._begin(step, reason=reason)
        if wait:
            self.wait_until_durable()

    def wait_until_durable(self, seconds: float | None = None) -> bool:
        """Wait until a save that is running is durable. Says whether it is; true when none is running.

        Args:
            seconds: At most so long.

        Raises:
            SaveError: If it failed. Older checkpoints are as they were.
        """
        if not self._saver.wait(seconds):
            return False
        outcome = self._collect()
        if outcome is not None and outcome.problem is not None:
            raise outcome.problem
        return True

    def _join(self) -> None:
        """Meet the other ranks, if there are any."""
        if self._joined:
            return
        channels = join_ranks()
        self._joined = True
        if channels.training.world_size == 1:
            return
        self._ranks = channels.training
        self._comparison = RankComparison(self._ranks, self._joinables)
        self._directory = SharedDirectory(self._directory.path, ranks=channels.writing)
        self._saver = BackgroundSaver(self._directory, tidy=self._after_save)
        if self._ranks.rank != 0:
            self._second_tier.leave_to_another_rank()
            self._history = None

    def _take_folder(self) -> None:
        """Refuse a folder, here or in S3, in which another training of this process is, or has ended."""
        remote = self._second_tier.remote
        places = [str(self._directory.path.resolve()), *([] if remote is None else [str(remote.place)])]
        for warning in TRAININGS_HERE.enter(self, places):
            _logger.warning("%s", warning)
        if self._folder.warning is not None and remote is None and self._ranks.rank == 0:
            _logger.warning("%s", self._folder.warning)

    def _check_state(self) -> bool:
        if self._ranks.world_size > 1:
            self._joinables.find()
            self.require_common_steps()
            self._require_what_wrappers_keep()
        holds_arrays = check_state(self._state) | check_state(self._per_rank)
        self._require_what_is_updated()
        return holds_arrays

    def _encode_parts(self) -> tuple[EncodedState, EncodedState]:
        self._require_what_is_updated()
        self._require_what_wrappers_keep()
        return encode_state(dict(self._state)), encode_state(dict(self._per_rank))

    def _require_what_wrappers_keep(self) -> None:
        problems = self._joinables.problems(self._state, self._per_rank)
        if problems:
            raise StateError(problems)

    def _require_what_is_updated(self) -> None:
        """Refuse optimizers of what is not saved. Groups may be added and layers unfrozen while it trains."""
        problems = self._updated_tensors.problems()
        if problems:
            raise StateError(problems)

    def _require_taken_back(self) -> None:
        require_taken_back({**self._state, **self._per_rank}, digest=partial(chunk_checksums, chunk_bytes=CHUNK_BYTES))

    def _steps_there(self) -> tuple[list[int], list[int]]:
        remote = self._second_tier.remote
        return self._directory.steps(), ([] if remote is None else remote.steps())

    def _restore_newest(self, *, in_place: bool) -> OpenCheckpoint | None:
        """Restore the newest good checkpoint, read once if that can be.

        Args:
            in_place: Whether there is anything in the state that reading overwrites.
        """
        # What rank 0 sees counts: it writes the manifests.
        local, remote = together(self._ranks, self._steps_there)[0]
        steps = sorted({*local, *remote}, reverse=True)
        overwritten = False
        # One that is damaged here may be whole in S3.
        for step, fetch in [(step, fetch) for step in steps for fetch in (False, True)]:
            if step not in (remote if fetch else local):
                continue
            if fetch and not together(self._ranks, partial(self._fetch, step))[0]:
                continue
            found = self._read(step, verify_first=overwritten or (in_place and step == steps[-1]))
            if found is not None and self._fill(found):
                together(self._ranks, partial(self._put_back, found))
                if step not in remote:
                    self._second_tier.saved(step)
                return found
            overwritten = overwritten or (in_place and found is not None)
        if overwritten:
            raise MixedStateError(
                f"none of the checkpoints {', '.join(map(self._directory.name, steps))} in {self.directory} is good, "
                "and reading them has overwritten a part of the state; to start from the beginning, move them away"
            )
        if self._shared_memory is not None:
            self._shared_memory.join_where_equal()
        return None

    def _read(self, step: int, *, verify_first: bool) -> OpenCheckpoint | None:
        """Open a checkpoint that fits the state. Nothing is changed; None when it is damaged."""
        found: list[OpenCheckpoint] = []

        def open_it() -> None:
            # What the script does to its state for one checkpoint cannot be undone for another one.
            if verify_first or self._on_restore is not None:
                self._directory.verify(step, view=self._view)
            self._make_as_it_was(step)
            if self._shared_memory is None:
                self._shared_memory = SharedMemory({**self._state, **self._per_rank})
                self._shared_memory.part()
            opened = self._directory.open(step, live={**self._state, **self._per_rank}, view=self._view)
            own = self._per_rank if self._takes_own(opened.manifest) else {}
            require_fit({**self._state, **own}, opened.state, step=step)
            found.append(opened)

        try:
            together(self._ranks, open_it)
        except DamagedCheckpointError as error:
            self._tell_damage(step, error)
            return None
        return found[0]

    def _view(self, manifest: Manifest) -> RankView:
        return view_for(
            manifest,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            per_rank=self._per_rank,
            change_allowed=self._allow_world_size_change,
            trained=() if self._takes_own(manifest) else trained_names(encode_state(dict(self._per_rank)).document),
        )

    def _takes_own(self, manifest: Manifest) -> bool:
        """Say whether what each rank has for itself comes back from a checkpoint."""
        return manifest.world_size == self._ranks.world_size or not self._allow_world_size_change

    def _put_back(self, found: OpenCheckpoint) -> None:
        step = found.manifest.step
        paths = [] if found.manifest.world_size == self._ranks.world_size else differing_paths(found.manifest)
        if paths and self._ranks.rank == 0:
            _logger.warning(
                "the checkpoint of step %d was written by %d ranks, each of which had its own values in %s; with %d "
                "all begin with those of rank 0",
                step,
                found.manifest.world_size,
                ", ".join(paths[:_PATHS_SHOWN]) + (", ..." if len(paths) > _PATHS_SHOWN else ""),
                self._ranks.world_size,
            )
        common = {name: value for name, value in found.state.items() if name not in self._per_rank}
        put_back(self._state, common, step=step)
        live = dict(self._state)
        if self._takes_own(found.manifest):
            own = {name: value for name, value in found.state.items() if name in self._per_rank}
            put_back(self._per_rank, own, step=step)
            live.update(self._per_rank)
        if self._shared_memory is not None:
            self._shared_memory.join_where_equal()
        differences, held = compare_restored(live, found.document)
        differences += [altered(held[index].form) for index in found.altered(held)]
        require_no_difference(live, differences, step=step)

    def _make_as_it_was(self, step: int) -> None:
        """Let the script give its state the form that it had at a step, once."""
        on_restore, self._on_restore = self._on_restore, None
        if on_restore is not None:
            on_restore(step, self._directory.read_manifest(step).epochs_completed)

    def _fill(self, found: OpenCheckpoint) -> bool:
        try:
            together(self._ranks, found.fill)
        except DamagedCheckpointError as error:
            self._tell_damage(found.manifest.step, error)
            return False
        return True

    def _fetch(self, step: int) -> bool:
        """Download a checkpoint, which is rank 0's to do. Says whether it is whole."""
        remote = self._second_tier.remote
        if remote is None:
            return False
        began = time.monotonic()
        _logger.info("downloading the checkpoint of step %d from %s", step, remote.place)
        try:
            size = remote.fetch(step, cancelled=self._fetch_cancelled)
        except DamagedCheckpointError as error:
            self._tell_damage(step, error)
            return False
        except TransferCancelledError:
            # What has been downloaded stays for the next attempt on this machine, if there is one.
            raise SystemExit(EXIT_INTERRUPTED) from None
        self._emit("downloaded", step=step, seconds=round(time.monotonic() - began, 4), bytes=size)
        return True

    def _tell_damage(self, step: int, error: DamagedCheckpointError) -> None:
        self._directory.distrust(step)
        _logger.warning("passing over a damaged checkpoint: %s", error)
        self._emit("fallback", step=step, problem=error.problem, file=error.file)

    def _tell_changes(self, manifest: Manifest) -> None:
        """Say what makes this training another one than the one that the checkpoint is of."""
        changed = changes(manifest.made_by, self._made_by)
        if changed and self._ranks.rank == 0:
            _logger.warning(
                "the training goes on from %s, which was made with other settings or code. What is part of the state "
                "stays as it was; all else is from now on what it is here:\n%s",
                self.directory / self._directory.name(manifest.step),
                "\n".join(f"  - {change}" for change in changed),
            )

    def _tell_what_is_beside(self) -> None:
        """Warn where an earlier start of this very script seems to have kept its checkpoints under another name."""
        if not self._folder.kept or self._label is None or self._ranks.rank != 0:
            return
        beside = self.directory.parent
        with contextlib.suppress(OSError):  # what this process may not read is no earlier start of its
            names = sorted(folder.name for folder in beside.iterdir() if folder.is_dir())
            for name in names[:_MOST_FOLDERS_BESIDE]:
                of_this_process = TRAININGS_HERE.has_been_in(str((beside / name).resolve()))
                if name == self.directory.name or of_this_process or not self._is_of_the_same_start(beside / name):
                    continue
                _logger.warning(
                    "this training begins at step 0 in %s, and %s beside it holds checkpoints of the same script, "
                    "started in the same way. A directory= or name= that is another one at each start (a time, the "
                    "number of a process) lets no start find what the one before has saved: give the same one at each "
                    "start. If the two are trainings of the script beside each other, all is well",
                    self.directory,
                    beside / name,
                )
                return

    def _is_of_the_same_start(self, folder: Path) -> bool:
        other = CheckpointDirectory(folder)
        try:
            newest = next(iter(other.steps()), None)
            return newest is not None and is_of_the_same_start(other.read_manifest(newest).made_by, self._made_by)
        except CheckpointError:
            return False

    def _begin(self, step: int, *, reason: str) -> None:
        """Start a save when none is running."""
        began = time.monotonic()
        self._wait_until_idle()
        self._schedule.tried(step, time.monotonic())
        self._saving_step = step
        if self._open_gradients is not None:
            self._open_gradients.warn_if_lost()
        shared = self._directory if isinstance(self._directory, SharedDirectory) else None
        try:
            if shared is None:
                self._require_what_is_updated()
                encoded = encode_state({**self._state, **self._per_rank})
            else:
                shared.begin_save()
                encoded = self._comparison.encode(self._encode_parts)
            self._tell_what_a_resume_would_miss(encoded)
            progress = Progress(
                epochs_completed=self._epochs_completed,
                metrics=dict(self._known_metrics),
                measured_at={**self._measured_at, **dict.fromkeys(self._logged_since, step)},
                made_by=self._made_by,
            )
            self._saver.start(encoded, step=step, reason=reason, progress=progress)
        except Exception as error:
            if shared is not None:
                shared.decline(error)
            if isinstance(error, MemoryError):
                raise SaveError(
                    f"the checkpoint of step {step} needs a copy of the state in memory: {error}"
                ) from error
            raise
        finally:
            self._schedule.extra_time.call(time.monotonic() - began)
        self._started_step = step

    def _tell_what_a_resume_would_miss(self, encoded: EncodedState) -> None:
        """Warn, once each, of what has changed since the training began and no checkpoint gives back."""
        beginning = self._beginning
        if beginning is None:
            return
        if not (self._form_said or self._has_on_restore):
            document = encoded.document
            if isinstance(document, ShareDocument):
                document = {"dict": [*state_pairs(document.common), *state_pairs(document.own)]}
            changes = beginning.changed_form({**self._state, **self._per_rank}, document)
            if changes:
                self._form_said = True
                _logger.warning(
                    "the state has another form than when the training began: %s. A script that starts again makes it "
                    "as it was at first, so a resume needs on_restore= of the Checkpointer, which makes it as it was "
                    "then, for example on_restore=lambda step, epoch: optimizer.add_param_group(...)",
                    "; ".join(changes[:_MOST_CHANGES]),
                )
        if not self._beside_said:
            names = beginning.changed_beside()
            if names:
                self._beside_said = True
                _logger.warning(
                    "%s changed since the training began, and no state_dict has %s, so a resume begins with what the "
                    "script makes anew: keep it in a buffer (without persistent=False) or in a dictionary of the "
                    "state, or call persistent(True) of a metric of torchmetrics. What follows from the rest of the "
                    "state, or from the step, is no loss",
                    ", ".join(names[:_MOST_CHANGES]),
                    "it" if len(names) == 1 else "them",
                )

    def _collect(self) -> SaveOutcome | None:
        """Take note of a save that has ended."""
        outcome = self._saver.collect()
        if outcome is None:
            return None
        if outcome.problem is None:
            self._durable_step = outcome.step
            # The thread that wrote it does so too, at once; but it may not have come to it when this one leaves.
            self._second_tier.saved(outcome.step)
            self._schedule.saved(outcome.seconds)
            if self._history is not None:
                self._history.seen()
            self._emit(
                "saved",
                step=outcome.step,
                seconds=round(outcome.seconds, 4),
                bytes=outcome.size_bytes,
                reason=outcome.reason,
            )
        else:
            self._schedule.failed()
            if self._started_step == outcome.step:
                self._started_step = self._durable_step
        return outcome

    def _settle(self) -> None:
        """Report how a save ended, if one has."""
        outcome = self._collect()
        if outcome is not None and outcome.problem is not None:
            if not isinstance(outcome.problem, CheckpointError):
                raise outcome.problem
            self._tell_failure(outcome.step, outcome.problem)

    def _tell_failure(self, step: int, problem: CheckpointError) -> None:
        _logger.error("no checkpoint of step %d: %s", step, problem)
        self._emit("save-failed", step=step, problem=str(problem))
        # A full disk is the usual reason: make room for the next attempt.
        self._saver.wait_until_idle()
        self._prune(replace(self._retention, last=2))

    def _wait_until_over(self) -> None:
        """Wait for what is running, as long as a notice leaves time, and tell how it went."""
        while not (self._gave_up or self._saver.wait(min(_WATCH_SECONDS, self._seconds_left()))):
            if self._seconds_left() <= 0:
                self._give_up("it is not durable in time")
        if not self._gave_up:
            self._settle()
            self._wait_until_idle()

    def _wait_until_idle(self) -> None:
        """Wait until old checkpoints are removed: gigabytes may have to be verified. On a notice there is no time."""
        while self._notice() is None and not self._saver.wait_until_idle(_WATCH_SECONDS):
            pass

    def _seconds_left(self) -> float:
        """Return seconds to act, infinite without a notice."""
        return math.inf if self._notice() is None else self._notice_watch.seconds_left

    def _give_up(self, why: str) -> None:
        self._gave_up = True
        self._tell_too_late(self._step, why)

    def _tell_too_late(self, step: int, why: str) -> None:
        with self._telling:
            if self._too_late_told:
                return
            self._too_late_told = True
            durable = self._newest_durable()
            newest = "none" if durable is None else f"that of step {durable}"
            problem = f"the notice was too short: {why}; the newest durable checkpoint is {newest}"
            _logger.error("no checkpoint of step %d: %s", step, problem)
            self._emit("save-failed", step=step, problem=problem)

    def _newest_durable(self) -> int | None:
        """Give what the writing thread knows: the training's may not have taken note of it yet.

        The disk is not asked. It may be what keeps everybody waiting.
        """
        return self._written_step if self._written_step == self._started_step else self._durable_step

    def _on_notice_change(self) -> None:
        """Act where the training's thread cannot, in the thread that watches for notices."""
        if self._notice() is None:
            return
        self._fetch_cancelled.set()
        if self._notice_watch.seconds_left > 0:
            return
        if self._step_began is not None:
            self._tell_too_late(self._step + 1, "the step takes longer")
        elif self._restored and self._newest_durable() != self._step and self._step > 0:
            self._tell_too_late(self._step, "it is not durable in time")

    def _begin_history(self) -> None:
        if self._history is not None:
            self._second_tier.fetch_history()
            self._schedule.outlook = expect(self._schedule.outlook, self._history.begin())

    def _ending(self) -> str | None:
        """Say how this process ends, for the history: without a word if a notice came too late for its last step."""
        if self._notice() is None:
            return LEFT
        return NOTICED if self._durable_step == self._step else None

    def _after_save(self) -> None:
        """Do what comes after a durable checkpoint, in the thread that wrote it."""
        step = self._saving_step
        if step in self._directory.steps():
            self._written_step = step
            self._second_tier.saved(step)
        if self._notice() is None:
            self._prune(self._retention)

    def _epoch_steps(self, first: int, end: int, total_steps: int) -> Iterator[int]:
        while self._step < end:
            self._begin_step()
            yield self._step - first
            self._complete_step(total_steps)
            # The last step's save waits for what follows the loop: it belongs to the epoch. A notice does not wait.
            if self._step < end:
                self._save_and_leave_when_due(last=False)
            elif self.noticed:
                self._try_to_save(reason="notice")
                self.leave()

    def _save_and_leave_when_due(self, *, last: bool) -> None:
        if self._save_when_due(last=last) and not last:
            self.leave()

    def _save_when_due(self, *, last: bool) -> bool:
        """Save if that is due. Says whether to leave then."""
        noticed, reason = self._agree(None if last else self._reason_to_save(), place=_LAST if last else _AFTER_A_STEP)
        pauses = self._pause_is_due and not last
        if noticed or pauses or last or reason is not None:
            self._try_to_save(reason="end" if last else reason or ("pause" if pauses else "notice"))
        # A notice that came only after the decision not to save must not make anybody leave without a save. Several
        # ranks decide once: where one of them saved, another may have failed to.
        noticed_since = self._ranks.world_size == 1 and self._notice() is not None
        if noticed or (noticed_since and self._started_step == self._step):
            return True
        # One that could not be saved is tried again after the next step.
        return pauses and self._is_durable()

    @property
    def _pause_is_due(self) -> bool:
        return self._pause_at_step is not None and self._step >= self._pause_at_step

    def _is_durable(self) -> bool:
        """Say, alike on all ranks, whether the checkpoint of this step is durable."""
        # How a save ended is the same on all ranks; when they hear of it is not.
        self._wait_until_over()
        return bool(self._ranks.largest([int(self._durable_step == self._step)])[0])

    def _pause(self, leaving: SystemExit, *, uploaded: bool) -> None:
        """Say that the run is paused, if that is why the script leaves, and nothing of it is on this machine alone."""
        # A loop of one's own may leave with 75 whatever `interrupted` means.
        of_its_own = self._pause_is_due and leaving.code == EXIT_INTERRUPTED and self._durable_step == self._step
        noticed = self._leaving_agreed or self._notice() is not None
        if not self._pausing and (not of_its_own or noticed):
            return
        if uploaded:
            self._tell_end("paused")
            leaving.code = 0
        elif noticed:
            leaving.code = EXIT_INTERRUPTED
        else:
            raise SaveError(f"the run cannot pause: the checkpoint of step {self._step} is not in S3")

    def _reason_to_save(self) -> str | None:
        if self._notice_watch.take_save_advice():
            return "rebalance"
        return "interval" if self._ranks.rank == 0 and self._due() else None

    def _agree(self, reason: str | None, *, place: int = 0) -> tuple[bool, str | None]:
        """Decide as all ranks do: whether a notice has come to any of them, and why to save, if any has a reason.

        Args:
            reason: Why this rank would save.
            place: What it is about to do; all ranks do the same.

        Raises:
            UsageError: If another rank is somewhere else in its training, or does not come any more.
        """
        notice = self._notice()
        if self._ranks.world_size == 1:
            return notice is not None, reason
        if self._leaving_agreed:
            return True, None
        self.require_common_steps()
        hurry = 0 if notice is None else _LONGEST_NOTICE_MS - round(notice.seconds_left * 1000)
        at = self._step * len(_PLACES) + place
        # Three numbers and not four: gloo takes some 20 microseconds for each. With a notice no other reason matters.
        most, furthest, nearest = self._ranks.largest([hurry * len(_REASONS) + _REASONS.index(reason), at, -at])
        hurry, why = divmod(most, len(_REASONS))
        if furthest != -nearest:
            places = self._ranks.exchange([self._step, place])
            raise UsageError(
                "the ranks are at different places of the training: "
                + ", ".join(f"rank {rank} {_PLACES[one].format(step)}" for rank, (step, one) in enumerate(places))
                + ". All of them must take the same steps: give each as many batches, with a DistributedSampler or "
                "drop_last=True, and ask and save on every rank alike"
            )
        if hurry:
            self._leaving_agreed = True
            seconds = (_LONGEST_NOTICE_MS - hurry) / 1000
            source = "another rank" if notice is None else notice.source
            self._notice_watch.take(Notice(source=source, deadline=time.time() + seconds))
        return bool(hurry), _REASONS[why]

    def _begin_step(self) -> None:
        if Checkpointer._said_done:
            self._say_whether_done(done=False)
        if self._open_gradients is not None:
            self._open_gradients.begin_batch()
        self._step_began_saving = self._saver.saving
        self._step_began = time.monotonic()

    def _complete_step(self, total_steps: int | None) -> None:
        self._step += 1
        if self._step_began is not None:
            beside_a_save = self._step_began_saving or self._saver.saving
            self._schedule.extra_time.step(time.monotonic() - self._step_began, while_saving=beside_a_save)
            self._step_began = None
        self._settle()
        self._second_tier.warn_when_late()
        if self._ranks.rank == 0:
            report = events.report_progress if self._label is None else partial(self._report, events.report_progress)
            report(step=self._step, total_steps=total_steps, **self._metrics)
        self._metrics = {}
        self._measured_at.update(dict.fromkeys(self._logged_since, self._step))
        self._logged_since.clear()

    def _due(self) -> bool:
        return self._schedule.due(self._step, time.monotonic(), saving=self._saver.saving)

    def _try_to_save(self, *, reason: str) -> None:
        if self._ranks.world_size > 1:
            # How a save ended is the same on all ranks; when they hear of it is not.
            self._wait_until_over()
        if self._started_step == self._step:
            return
        self._wait_until_over()
        fastest, left = self._schedule.extra_time.fastest_durable_seconds, self._seconds_left()
        if fastest > left and not self._gave_up:
            self._give_up(f"a save takes {rounded(fastest)} s at best, and {rounded(left)} s are left")
        if self._ranks.largest([int(self._gave_up)])[0]:
            if not self._gave_up:
                self._give_up("another rank has no time for it")
            return
        try:
            self._begin(self._step, reason=reason if self._notice() is None else "notice")
        except (StateError, OtherRankError):
            raise  # no later save would succeed
        except CheckpointError as error:
            self._tell_failure(self._step, error)

    def _prune(self, retention: Retention) -> None:
        try:
            self._directory.prune(retention)
        except OSError as error:
            _logger.warning("could not remove old checkpoints: %s", error)

    def _notice(self) -> Notice | None:
        notice = self._notice_watch.notice()
        if notice is not None and notice.deadline != self._reported_deadline:
            with self._telling:
                reported, self._reported_deadline = self._reported_deadline, notice.deadline
                if reported is None or notice.deadline < reported - 1:
                    self._emit("notice", source=notice.source, seconds_left=round(notice.seconds_left, 1))
        return notice

    def _leave_before_the_first_step(self, *, last: bool) -> None:
        """Leave if there is a reason to already.

        Args:
            last: Whether no step is left: then there is nothing to pause before.
        """
        if self.noticed or (self._pause_is_due and not last):
            self.leave()

    def _announce_interval(self, interval: Interval) -> None:
        _logger.info("saving every %s s: %s", rounded(interval.seconds), interval.reason)
        self._emit("schedule", seconds=round(interval.seconds, 1), reason=interval.reason)

    def _tell_end(self, event: str) -> None:
        """Report that this process has done its last step, after all that was measured."""
        if self._ranks.rank == 0:
            self._report(events.report_metrics, step=self._step, **self._metrics)
            self._metrics = {}
        self._emit(event, step=self._step)
        self._say_whether_done(done=True)

    def _say_whether_done(self, *, done: bool) -> None:
        """Say on each rank whether it is done: an exit with code 0 on a notice means that only then."""
        Checkpointer._said_done = done
        self._notice_watch.note_training(done=done)

    def _report_what_was_measured(self) -> None:
        """Report what the checkpoint holds: a machine that is gone may not have sent it, and its steps are done."""
        by_step: dict[int, dict[str, float]] = {}
        for name, step in self._measured_at.items():
            by_step.setdefault(step, {})[name] = self._known_metrics[name]
        for step in sorted(by_step):
            self._emit("metrics", step=step, metrics=by_step[step])

    def _emit(self, event: str, **fields: Any) -> None:
        """Report to the outside world, once for all ranks."""
        if self._ranks.rank == 0:
            self._report(events.emit, event, **fields)

    def _report(self, report: Callable[..., None], *event: str, **fields: Any) -> None:
        """Report as this training, where the script has several."""
        with events.of_training(self._label):
            report(*event, **fields)

    def _require_more(self, total_steps: int) -> None:
        """Refuse a second loop that there is no step for: it would train nothing, and say nothing."""
        if 0 < total_steps <= self._done_before:
            raise UsageError(
                f"this Checkpointer has gone through {self._done_before} steps already, and a loop over {total_steps} "
                "has none left: the number is that of the whole training. For more steps of it, pass a larger one; for "
                'another training, enter a Checkpointer with a name of its own (name="fold-2")'
            )

    def _require_entered(self) -> None:
        if not self._entered:
            raise UsageError(
                "steps are counted, and the script left, only inside `with checkpointer:`, where notices are seen"
            )


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


def _pause_at_step() -> int | None:
    """Read after which step the run shall pause; None for never."""
    text = os.environ.get(_PAUSE_VARIABLE, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{_PAUSE_VARIABLE} is {text!r}; set it to a whole number from 1")
    return int(text)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep the metrics that a manifest can hold and an order can rank."""
    numbers = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers


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
