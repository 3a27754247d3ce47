"""The session of a training, which is the working part of a Checkpointer from when the ranks have met.

A Checkpointer makes one when it is entered, or at its first restore or save. The session decides after each step, and
leaves the work to its parts, which are `saves`, `restoring` and `leaving`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, NoReturn

from .disk.retention import Retention
from .errors import (
    CheckpointError,
    LockLostError,
    MissingCheckpointError,
    RankLostError,
    RemoteError,
    SaveError,
    UsageError,
)
from .events import TrainingEvents
from .leaving import AFTER_A_STEP, LAST_STEP, Leaving
from .notices.notice import EXIT_INTERRUPTED, NoticeWatch
from .progress import TrainingProgress
from .ranks.rank_group import RankGroup
from .remote.remote_checkpoints import RemoteCheckpoints
from .remote.second_tier import SecondTier, agents_copy
from .remote.upload_share import UploadShare
from .restoring import Restore, warn_of_folder_beside, warn_of_other_settings
from .saved_checkpoints import SavedCheckpoints
from .saves import BackgroundWriter, ResumeLosses, Saves
from .schedule.interruption_history import LEFT, NOTICED, InterruptionHistory, expect
from .schedule.save_schedule import SaveSchedule
from .state.open_gradients import OpenGradients
from .state.training_state import TrainingState
from .training_description import describe_process, describe_settings
from .training_folder import TRAININGS_HERE, TrainingFolder

BEST = "best"
"""Stands in the place of a step for the best checkpoint by `keep_best`."""

_logger = logging.getLogger("spotkeep")


@dataclass(frozen=True)
class Setup:
    """The arguments of a Checkpointer, checked and made into parts.

    Attributes:
        state: The live state.
        folder: The folder of the checkpoints on this machine.
        remote: The checkpoints in S3, or None where the library uploads nothing.
        retention: The rule for old checkpoints.
        schedule: The times of the saves.
        counts_interruptions: True where the interval follows from the interruptions of the run.
        open_gradients: Warns of gradients that no checkpoint holds. None where a checkpoint does.
        watch: The watch for notices, which the Checkpointer starts and stops.
        pause_at_step: Completed steps at which the run pauses. None for no pause.
        on_restore: Gives the state the form that it had.
        lock: The attempt and the lease under which this process may write. None outside of a run.
    """

    state: TrainingState
    folder: TrainingFolder
    remote: RemoteCheckpoints | None
    retention: Retention
    schedule: SaveSchedule
    counts_interruptions: bool
    open_gradients: OpenGradients | None
    watch: NoticeWatch
    pause_at_step: int | None
    on_restore: Callable[[int, int | None], object] | None
    lock: tuple[int, int] | None


@dataclass(frozen=True)
class Restored:
    """The outcome of the newest restore.

    Attributes:
        step: Completed steps of the checkpoint. None without one.
        left_out: Paths that it left out, because they did not fit.
        newer_steps: The steps of newer checkpoints, which the script went back from.
    """

    step: int | None
    left_out: tuple[str, ...] = ()
    newer_steps: frozenset[int] = frozenset()


class Session:
    """A training of this process together with the other ranks. Making it is collective.

    Attributes:
        ranks: The ranks of the training.
        saves: The saves so far.
        tier: The place that outlives this machine.
        made_by: Names and texts that describe the training, as each checkpoint holds them.
        restored: The outcome of the newest restore. None before the first one.

    Args:
        setup: The arguments of the Checkpointer.
        progress: The place that the training has reached.
        facts: The facts that the script has given so far.

    Raises:
        UsageError: If the ranks cannot meet, their folders are different ones, or the run's agents would lose files.
    """

    def __init__(self, setup: Setup, *, progress: TrainingProgress, facts: Mapping[str, str]) -> None:
        self._setup = setup
        self._progress = progress
        self.made_by = facts
        self.restored: Restored | None = None
        self._writes = False
        if agents_copy() and setup.remote is None:
            _require_copied(setup)
        self.ranks = RankGroup(setup.folder.path, ranks_upload=agents_copy() or setup.remote is not None)
        first = self.ranks.is_first
        self._events = TrainingEvents(setup.folder.label, silent=not first)
        self.tier = SecondTier(
            self.ranks.directory,
            remote=setup.remote,
            retention=setup.retention,
            events=self._events,
            share=_upload_share(self.ranks),
        )
        if self.ranks.shared is not None:
            self.ranks.shared.note = self.tier.note
        self._history = InterruptionHistory(setup.folder.path) if setup.counts_interruptions and first else None
        pause_at_step = setup.pause_at_step
        if not self.ranks.is_one_process:
            # The ranks meet at these steps without a message, so all have to know them.
            plan = [setup.schedule.every_steps, pause_at_step]
            setup.schedule.every_steps, pause_at_step = self.ranks.exchange(plan)[0]
        self._leaving = Leaving(ranks=self.ranks, events=self._events, watch=setup.watch, pause_at_step=pause_at_step)
        self.saves = Saves(
            setup.state,
            ranks=self.ranks,
            writer=BackgroundWriter(self.ranks.directory, retention=setup.retention, tier=self.tier, watch=setup.watch),
            tier=self.tier,
            leaving=self._leaving,
            schedule=setup.schedule,
            history=self._history,
            events=self._events,
            open_gradients=setup.open_gradients,
        )

    def enter(self) -> None:
        """Begin a block. A folder of another training of this process is refused, here and in S3.

        Raises:
            UsageError: If another training is there, or has ended there, on any rank.
        """
        self.tier.go_on()
        self.ranks.together(self._take_folder)

    def begin_writing(self) -> None:
        """Take the place of the writers before this one. Every rank must call it. A second call does nothing.

        Raises:
            LockLostError: If a later writer of the run has begun.
            SaveError: If the disk refuses.
            RemoteError: If S3 refuses.
        """
        if self._writes:
            return
        remote, restored = self.tier.remote, self.restored
        # Where the script has not asked for the newest checkpoint, that one stays to be read.
        takes_newest = restored is not None and not restored.newer_steps
        step = restored.step if restored and takes_newest else self.ranks.together(self._newest_step)[0]
        self.ranks.directory.begin(self._setup.lock, step=step, claim=None if remote is None else remote.claim)
        self._writes = True

    def take_over(self) -> None:
        """Begin to write before the first step. A disk that refuses does not end a training, and each save tries again.

        Raises:
            LockLostError: If a later writer of the run has begun.
        """
        problem = self._try_to_begin_writing()
        if problem is not None:
            _logger.error("no checkpoint can be saved yet: %s", problem)

    def begin_questions(self) -> None:
        """Let the ranks agree beside the training from now on, until `end_questions`. All of them have restored.

        Raises:
            RankLostError: If another rank did not end an earlier block.
        """
        self.ranks.meetings.start(wish=self._wish, find_apart=self._leaving.find_apart)

    def end_questions(self) -> None:
        """Let the other ranks know that this one asks no more question."""
        self.ranks.meetings.stop()

    def leave_folder(self, *, ended: bool | None) -> None:
        """Let another training of this process have the folder.

        Args:
            ended: True if the training has come to its end, None where that is not known.
        """
        TRAININGS_HERE.leave(self, step=self._progress.step, ended=ended)

    def restore(self, step: int | str | None = None, *, strict: bool = True) -> int:
        """Restore a checkpoint. Gives the completed steps. A second call for the newest one does nothing.

        Args:
            step: The step of the checkpoint, `best` for the best one, None for the newest good one.
            strict: False takes the part that fits.

        Raises:
            CheckpointError: As `Restore.run` does.
            MissingCheckpointError: If there is none of this step.
            LockLostError: If a later writer of the run has begun.
        """
        progress, setup = self._progress, self._setup
        begun = self.restored is not None
        if begun and step is None and strict:
            return progress.step
        self.wait_until_over()
        self.ranks.together(self._require_lock)
        chosen, newer = self.ranks.together(partial(self._choose, step))[0]
        settings = dict(describe_settings(setup.state.common))
        self.made_by = {**describe_process(environment=os.environ), **self.made_by, **settings}
        restore = Restore(
            setup.state,
            ranks=self.ranks,
            tier=self.tier,
            events=self._events,
            cancelled=setup.watch.came,
            on_restore=setup.on_restore,
            strict=strict,
        )
        manifest = restore.run(step=chosen)
        if manifest is not None:
            self.saves.durable_step = manifest.step
            progress.go_on_from(manifest)
        self.restored = Restored(None if manifest is None else manifest.step, restore.left_out, frozenset(newer))
        self.ranks.expect_new_wrappers()
        if manifest is None:
            self.ranks.together(self._warn_of_folder_beside)
        else:
            if self.ranks.is_first:
                warn_of_other_settings(self.ranks.directory, manifest, self.made_by, strict=strict)
            # These have come back with the state, and are what it goes on with.
            self.made_by = {
                **self.made_by,
                **{name: text for name, text in manifest.made_by.items() if name in settings},
            }
        if self.ranks.is_first:
            self.saves.losses = ResumeLosses(setup.state, form_may_change=setup.on_restore is not None)
        if not begun:
            self._begin_history()
        setup.schedule.tried(progress.step, time.monotonic())
        name = None if manifest is None else self.ranks.directory.name(progress.step)
        self._events.emit("resume", step=progress.step, checkpoint=name, keep=setup.retention.document())
        # A machine that is gone may not have sent these, and their steps are done.
        for step, metrics in progress.measured():
            self._events.emit("metrics", step=step, metrics=metrics)
        return progress.step

    def begin_step(self) -> None:
        """Note that a step begins."""
        setup = self._setup
        setup.watch.note_step()
        if setup.open_gradients is not None:
            setup.open_gradients.begin_batch()
        self._progress.begin_step(saving=self.saves.saving)

    def complete_step(self, total_steps: int | None) -> None:
        """Count a step, report it, and report the end of a save."""
        progress = self._progress
        seconds = progress.end_step()
        if seconds is not None:
            beside_save = progress.began_beside_save or self.saves.saving
            self._setup.schedule.extra_time.step(seconds, while_saving=beside_save)
        self.saves.end_step()
        self.saves.settle()
        self.tier.warn_when_late()
        self._events.report_progress(step=progress.step, total_steps=total_steps, metrics=progress.take_metrics())
        progress.note_measured()

    def noticed(self) -> bool:
        """Say if a notice has come to any rank. Every rank must ask when one does."""
        return self._noticed(meets=self.pause_is_due())

    def pause_is_due(self) -> bool:
        """Say if the run pauses once the checkpoint of this step is durable."""
        return self._leaving.pause_is_due(self._progress.step)

    def save(self, step: int, *, reason: str) -> None:
        """Start a save of a step that the script has counted.

        Raises:
            StateError: If the state cannot be saved.
            SaveError: If there is no memory for its copy.
        """
        self._require_newest()
        self.begin_writing()
        self._progress.step = step
        self.saves.begin_if_new(step, reason=reason, progress=self._progress.as_saved(self.made_by))

    def try_to_save(self, *, reason: str) -> None:
        """Start a save of this step, unless a notice leaves no time. A failure is reported.

        Raises:
            UsageError: If newer checkpoints would be restored in its place.
        """
        self._require_newest()
        step = self._progress.step
        problem = self._try_to_begin_writing()
        if problem is not None:
            self._setup.schedule.tried(step, time.monotonic())
            self.saves.report_failure(step, problem, makes_room=not isinstance(problem, RemoteError))
            return
        self.saves.try_to_begin(step, reason=reason, progress=self._progress.as_saved(self.made_by))

    def save_when_due(self, *, last: bool) -> bool:
        """Save if that is due. Gives true if the script has to leave then.

        Args:
            last: True after the last step of the training.
        """
        step = self._progress.step
        noticed, reason = self._leaving.agree(
            _no_reason if last else self._reason_to_save,
            step=step,
            place=LAST_STEP if last else AFTER_A_STEP,
            meets=self.pause_is_due() or self.saves.is_due_by_steps(step),
        )
        pauses = self.pause_is_due() and not last
        if noticed or pauses or last or reason is not None:
            self.try_to_save(reason="end" if last else reason or ("pause" if pauses else "notice"))
        # A notice that came only after the decision not to save must not make anybody leave without a save. Several
        # ranks decide once: where one of them saved, another may have failed to.
        noticed_since = self.ranks.is_one_process and self._leaving.notice() is not None
        if noticed or (noticed_since and self.saves.started_step == step):
            return True
        # One that could not be saved is tried again after the next step.
        return pauses and self.saves.is_durable(step)

    def delete(self, step: int) -> None:
        """Remove a checkpoint here and in S3, once all saves and uploads are over. Every rank must call it.

        Raises:
            MissingCheckpointError: If there is none of this step.
            LockLostError: If a later writer of the run has begun, whose checkpoints these are now.
            SaveError: If the disk refuses.
            RemoteError: If S3 refuses.
        """
        self.wait_until_over()
        self.tier.finish(lambda: self._setup.watch.seconds_left)
        self.ranks.together(self._require_lock)
        self.ranks.together(partial(self._delete, step))
        if self.restored is not None:
            self.restored = replace(self.restored, newer_steps=self.restored.newer_steps - {step})
        self.saves.forget(step)
        self.tier.forget(step)

    def wait_until_over(self) -> None:
        """Wait for the running save as long as a notice leaves time, and report its end."""
        self.saves.wait_until_over(self._progress.step)

    def leave(self) -> NoReturn:
        """Leave the script, with code 75 after a notice, and with 0 for a pause.

        Raises:
            SystemExit: With that code.
            SaveError: If the run cannot pause, because the checkpoint of this step is not durable.
        """
        # Only the end of the block says that the run is paused: with code 0 alone it would count as finished.
        step = self._progress.step
        self.saves.wait_until_over(step)
        if not self.pause_is_due() or self.noticed():
            raise SystemExit(EXIT_INTERRUPTED)
        if not self.saves.is_durable(step):
            raise SaveError(f"the run cannot pause: the checkpoint of step {step} is not durable")
        self._leaving.begin_pause()
        raise SystemExit(0)

    def leave_before_first_step(self, *, last: bool) -> None:
        """Leave if there is a reason to already.

        Args:
            last: True if no step is left, and so no step to pause before.
        """
        if self._noticed(meets=True) or (self.pause_is_due() and not last):
            self.leave()

    def report_end(self, event: str) -> None:
        """Report that this process has done its last step, after all that was measured."""
        step = self._progress.step
        if self.ranks.is_first:
            self._events.report_metrics(step=step, metrics=self._progress.take_metrics())
        self._events.emit(event, step=step)
        # On each rank: an exit with code 0 on a notice means that the training is done only then.
        self._setup.watch.note_training(done=True)

    def finish(self, exception: BaseException | None) -> None:
        """Wait for saves and uploads as the block ends, and settle the exit code.

        Args:
            exception: The error or exit that ends the block. None for neither.

        Raises:
            SaveError: If the run cannot pause, because its checkpoint is not in S3.
            UsageError: If a step has failed because the ranks are at different places of the training.
        """
        watch = self._setup.watch
        if isinstance(exception, RankLostError):
            self.tier.give_up_other_ranks()
        self.wait_until_over()
        ending = self._ending()
        if self._history is not None and ending is not None:
            self._history.seen(ending)
        uploaded = False
        if not isinstance(exception, KeyboardInterrupt):
            uploaded = self.tier.finish(lambda: watch.seconds_left)
            if self._history is not None and watch.seconds_left > 0:
                self.tier.send_history()
        apart = self.ranks.meetings.problem
        if isinstance(apart, UsageError) and isinstance(exception, Exception) and exception is not apart:
            # This rank was in a step, and the step has failed because another rank has left with that error.
            raise apart from exception
        if not isinstance(exception, SystemExit):
            return
        self._pause(exception, uploaded=uploaded)
        if exception.code == EXIT_INTERRUPTED:
            watch.note_leaving()
        if self._leaving.ranks_agreed:
            # A launcher ends all ranks when the first one leaves, and rank 0 may still have been uploading.
            with contextlib.suppress(RankLostError):
                self.ranks.exchange(None)

    def has_ended(self, exception_type: type[BaseException] | None) -> bool | None:
        """Say if the training has come to its end, as the block ends. None where that is not known."""
        if self._progress.step == 0 and self.saves.durable_step is None:
            return False  # there is nothing that another one could take for its own
        if exception_type is None:
            return True
        # A generator is closed by a `break` and by an error in the loop over it alike.
        return None if issubclass(exception_type, GeneratorExit) else False

    def act_on_notice(self) -> None:
        """Report a notice, and one that is over too soon, from the thread that watches for notices.

        The training's own thread may be in a step that takes minutes.
        """
        if self._leaving.notice() is None or self._setup.watch.seconds_left > 0:
            return
        step, durable = self._progress.step, self.saves.newest_durable_step
        if self._progress.step_began is not None:
            self._leaving.report_too_late("the step takes longer", step=step + 1, durable_step=durable)
        elif step > 0 and durable != step:
            self._leaving.report_too_late("it is not durable in time", step=step, durable_step=durable)

    @property
    def _saved(self) -> SavedCheckpoints:
        return SavedCheckpoints(self.ranks.directory, remote=self.tier.remote if self.ranks.is_first else None)

    def _try_to_begin_writing(self) -> CheckpointError | None:
        """Begin to write as `begin_writing` does. Gives the problem where the disk or S3 refuses, on every rank.

        Raises:
            LockLostError: If a later writer of the run has begun.
        """
        try:
            self.begin_writing()
        except LockLostError:
            raise
        except (SaveError, RemoteError) as error:
            return error
        return None

    def _require_lock(self) -> None:
        """Refuse to go on from the checkpoints of a run that has a later writer, here or in S3."""
        directory, remote = self.ranks.directory, self.tier.remote
        if remote is not None and (self.ranks.shared is None or self.ranks.shared.leads):
            remote.learn_writers()
        directory.writer_notes.require_lock(self._setup.lock)

    def _newest_step(self) -> int | None:
        return max(self._saved.steps(), default=None) if self.ranks.is_first else None

    def _choose(self, step: int | str | None) -> tuple[int | None, list[int]]:
        """Find the checkpoint that the script asks for, and the steps of newer ones. None for the newest one."""
        if step is None or not self.ranks.is_first:
            return None, []
        saved = self._saved
        chosen: int | None
        if step == BEST:
            best = self._setup.retention.best
            chosen = None if best is None else saved.best(best)
            if chosen is None:
                raise MissingCheckpointError(None, steps=saved.steps(), place=str(self._setup.folder.path))
        else:
            chosen = int(step)
            saved.require(chosen)
        return chosen, [other for other in saved.steps() if other > chosen]

    def _delete(self, step: int) -> None:
        self.ranks.directory.writer_notes.require_no_later_writer()
        if self.ranks.is_first:
            self._saved.require(step)
        self._saved.remove(step)

    def _require_newest(self) -> None:
        if self.restored is not None and self.restored.newer_steps:
            steps = ", ".join(map(str, sorted(self.restored.newer_steps)))
            raise UsageError(
                f"this training went back to an older checkpoint, and those of the steps {steps} are newer, so a "
                "resume would take them in place of what is saved now: remove them with checkpointer.delete(step), or "
                "go on in a folder of its own"
            )

    def _take_folder(self) -> None:
        folder, remote = self._setup.folder, self.tier.remote
        places = [str(folder.path.resolve()), *([] if remote is None else [str(remote.place)])]
        for warning in TRAININGS_HERE.enter(self, places):
            _logger.warning("%s", warning)
        if folder.warning is not None and remote is None and self.ranks.is_first:
            _logger.warning("%s", folder.warning)

    def _warn_of_folder_beside(self) -> None:
        if self.ranks.is_first:
            warn_of_folder_beside(self._setup.folder, self.made_by)

    def _begin_history(self) -> None:
        if self._history is not None:
            self.tier.fetch_history()
            schedule = self._setup.schedule
            schedule.outlook = expect(schedule.outlook, self._history.begin())

    def _ending(self) -> str | None:
        """Give the ending of this process for the history. None for a notice too late for the last step."""
        if self._leaving.notice() is None:
            return LEFT
        return NOTICED if self.saves.durable_step == self._progress.step else None

    def _pause(self, leaving: SystemExit, *, uploaded: bool) -> None:
        """Report the pause, if the script leaves for one and S3 has all of it."""
        step = self._progress.step
        if not self._leaving.pauses(leaving.code, step=step, is_durable=self.saves.durable_step == step):
            return
        if uploaded:
            self.report_end("paused")
            leaving.code = 0
        elif self._leaving.noticed:
            leaving.code = EXIT_INTERRUPTED
        else:
            raise SaveError(f"the run cannot pause: the checkpoint of step {step} is not in S3")

    def _noticed(self, *, meets: bool) -> bool:
        return self._leaving.agree(_no_reason, step=self._progress.step, meets=meets)[0]

    def _wish(self) -> int:
        """Give the wish of this rank for a meeting, in the thread that agrees with the other ranks."""
        return self._leaving.wish(save_is_due=self.ranks.is_first and self.saves.is_due_by_time())

    def _reason_to_save(self) -> str | None:
        if self._setup.watch.take_save_advice():
            return "rebalance"
        return "interval" if self.ranks.is_first and self.saves.is_due(self._progress.step) else None


def _require_copied(setup: Setup) -> None:
    """Refuse what the agents of several instances do not bring back.

    Raises:
        UsageError: With all that is lost.
    """
    lost = []
    if setup.folder.label is not None:
        lost.append(
            f"the training {setup.folder.label!r}, because its agents copy one training, that of a Checkpointer "
            "without name= and directory=. Leave both out. Trainings beside each other are runs of their own "
            "(`spotkeep help sweeps`)"
        )
    if setup.retention.best is not None:
        lost.append(
            "the best checkpoint of keep_best=, because they bring the newest one back. Leave it out, and let rank 0 "
            "write the best model to a file beside the checkpoints"
        )
    if lost:
        raise UsageError(
            f"a run on several instances would lose {'; and '.join(lost)}. With remote='s3://bucket/prefix' the ranks "
            "upload themselves, and nothing is lost"
        )


def _no_reason() -> None:
    """Give no reason for a save."""


def _upload_share(ranks: RankGroup) -> UploadShare:
    """Give the part of this process in the uploads."""
    shared = ranks.shared
    if shared is None:
        return UploadShare()
    return UploadShare(
        rank=ranks.rank,
        world_size=ranks.world_size,
        place=(shared.ranks_here.index(ranks.rank), len(shared.ranks_here)),
        written=shared.written,
        notes=lambda: shared.notes,
    )
