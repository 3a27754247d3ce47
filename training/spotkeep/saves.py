"""The saves of a training. Each one is encoded, copied, written, and then durable or failed.

The copy holds the training up. A thread of the save writes it to the disk while the training goes on.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotkeep.state import arrays
from spotkeep.state.encoding import Json, encode_state, encoded_pairs, objects_in, stateful_kind
from spotkeep.state.state_dicts import is_module, is_optimizer, loads_in_its_own_way, numbers_beside, tensors_beside

from .disk.checkpoint_directory import CheckpointDirectory
from .disk.late_copy import DeviceCopy, LateCopy, WatchedCopy, late_parts
from .disk.manifest import Progress, state_pairs
from .disk.retention import Retention
from .disk.staged_state import FileImage, StagedState
from .errors import ChangedStateError, CheckpointError, LockLostError, OtherRankError, SaveError, StateError
from .events import TrainingEvents
from .leaving import Leaving
from .native.written_pages import WrittenPages
from .notices.notice import NoticeWatch
from .ranks.rank_group import RankGroup
from .ranks.rank_shares import EncodedShare, ShareDocument
from .remote.second_tier import SecondTier
from .schedule.interruption_history import InterruptionHistory
from .schedule.late_copying import CopyWay, LateCopying
from .schedule.save_schedule import SaveSchedule, rounded
from .state.encoding import EncodedState
from .state.open_gradients import OpenGradients
from .state.optimizer_steps import OptimizerSteps, UpdatedMemory, names_of
from .state.training_state import TrainingState

_NAMED = 5
"""The number of changed entries that are named."""


class Beginning:
    """A state as it is when the training begins, to name changes that a restarted script would not make again.

    The changes are in the form of the state and in tensors beside it. A restarted script builds its first state. It
    lacks parameter groups, layers and shapes that came later, so a checkpoint with them does not fit. A module's
    tensors outside of its `state_dict` also begin anew.

    Args:
        state: The live state.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        document = encode_state(dict(state), left_out=lambda value: not is_module(value)).document
        self._own_way = {path for path, value in objects_in(state) if is_module(value) and loads_in_its_own_way(value)}
        self._forms = self._forms_of(state, document)
        self._beside = [
            (f"{path}.{name}", read, _identity(read()))
            for path, value in objects_in(state)
            if is_module(value)
            for name, read in tensors_beside(value)
        ]

        self._numbers = [
            (f"{path}.{name}", attributes, key, attributes[key])
            for path, value in objects_in(state)
            if is_module(value)
            for name, attributes, key in numbers_beside(value)
        ]

    def changed_form(self, state: Mapping[str, Any], document: Json) -> list[str]:
        """Name the entries that have another form than at the beginning.

        Args:
            state: The live state.
            document: Its encoded form.
        """
        forms = self._forms_of(state, document)
        changes = []
        for path, before in self._forms.items():
            if path not in forms:
                changes.append(f"{path} is gone")
            elif forms[path] != before and before[0] != "object":  # An adapter's may become one of its framework's.
                changes.append(f"{path} {_change(before, forms[path])}")
        changes += [f"{path} is new" for path, form in forms.items() if path not in self._forms and form[0] != "array"]
        return changes

    def changed_beside(self) -> list[str]:
        """Name the tensors and numbers of modules, outside of any `state_dict`, that have changed."""
        changed = [name for name, read, before in self._beside if not _same(_identity(read()), before)]
        return changed + [name for name, now, key, before in self._numbers if now.get(key, before) != before == before]

    def _forms_of(self, state: Mapping[str, Any], document: Json) -> dict[str, Any]:
        return {path: form for path, form in _forms(state, document, "state") if path not in self._own_way}


def _forms(live: Any, node: Json, path: str) -> Iterator[tuple[str, Any]]:
    """Give each array and object of a live state with the properties that a restore needs alike."""
    if isinstance(live, dict) or (isinstance(live, Mapping) and path == "state"):
        for (key, value), (_, item) in zip(live.items(), encoded_pairs(node)):
            yield from _forms(value, item, f"{path}[{key!r}]")
    elif isinstance(live, list):
        for index, (value, item) in enumerate(zip(live, node)):
            yield from _forms(value, item, f"{path}[{index}]")
    elif arrays.is_numpy_array(live) or arrays.is_torch_tensor(live):
        yield path, ("array", str(live.dtype), tuple(live.shape))
    elif is_optimizer(live):
        yield path, ("parameter groups", [len(group["params"]) for group in live.param_groups])
    elif is_module(live):
        yield path, ("module", _shapes(node))
    elif stateful_kind(live) is not None:
        yield path, ("object",)


def _shapes(node: Json) -> list[tuple[Any, Any]]:
    body = node.get("state_dict") if isinstance(node, dict) else None
    return [
        (key, item["tensor"]["shape"] if isinstance(item, dict) and "tensor" in item else None)
        for key, item in (body or {}).get("items", ())
    ]


def _change(before: Any, now: Any) -> str:
    if before[0] != now[0]:
        return f"was {before[0]}, and is {now[0]}"
    if before[0] == "parameter groups":
        return f"had parameter groups of {before[1]} parameters, and has {now[1]}"
    if before[0] == "module":
        ours, theirs = ({str(name): shape for name, shape in form[1]} for form in (before, now))
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        return f"has other entries or shapes: {', '.join(names[:_NAMED])}"
    return f"was {before[1]} of shape {before[2]}, and is {now[1]} of shape {now[2]}"


def _identity(value: Any) -> Any:
    """Give a value that changes when a tensor, or a list of tensors, is changed or replaced."""
    if isinstance(value, list):
        return [_identity(item) for item in value]
    if not arrays.is_torch_tensor(value):
        return None
    return weakref.ref(value), 0 if value.is_inference() else value._version


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        # Two references to tensors that live are equal as the tensors are, element by element.
        return one[0] is other[0] and one[1] == other[1]
    return one is other


_WATCH_SECONDS = 0.2
_WITHIN_A_LOOP = ("interval", "rebalance")
"""Reasons for a save after which the loop goes on."""
_MOST_CHANGES = 5

_logger = logging.getLogger("spotkeep")


class Save:
    """One save, from the copy of its state to its end.

    Attributes:
        step: Completed steps of the checkpoint.
        reason: The reason for the save, for the `saved` event.
        seconds: Time from the start to the end, 0 before the end.
        size_bytes: Size of the checkpoint, 0 before the end and after a failure.
        problem: The error that ended the save. None for a checkpoint that is durable.
        copied_late: True if the training went on before all was copied.
        ended: Set once the checkpoint is durable or has failed.
    """

    def __init__(self, step: int, reason: str) -> None:
        self.step = step
        self.reason = reason
        self.seconds = 0.0
        self.size_bytes = 0
        self.problem: BaseException | None = None
        self.copied_late = False
        self.ended = threading.Event()
        self._began = time.monotonic()

    @property
    def is_durable(self) -> bool:
        """True once the checkpoint is durable."""
        return self.ended.is_set() and self.problem is None

    def end(self, *, size_bytes: int = 0, problem: BaseException | None = None) -> None:
        """Note the end. The thread that writes calls this once."""
        self.seconds = time.monotonic() - self._began
        self.size_bytes, self.problem = size_bytes, problem
        self.ended.set()


class BackgroundWriter:
    """Copies a state, writes the copy in a thread, and tidies up when the checkpoint is durable. One save at a time.

    Attributes:
        save: The newest save with an end that nothing has collected. None for none.
        late: The copy of the newest save. None where all was copied at once.
        unwatched: The reason why the system does not watch the state for changes. None where it does, or nothing asked.

    Args:
        directory: The directory of the checkpoints.
        retention: The rule for old checkpoints, which are removed after each save.
        tier: Takes each durable checkpoint.
        watch: The watch for notices. With a notice no old checkpoint is removed.
    """

    def __init__(
        self, directory: CheckpointDirectory, *, retention: Retention, tier: SecondTier, watch: NoticeWatch
    ) -> None:
        self.save: Save | None = None
        self.late: LateCopy | None = None
        self.unwatched: str | None = None
        self._directory = directory
        self._retention = retention
        self._tier = tier
        self._watch = watch
        self._staged = StagedState()
        self._thread: threading.Thread | None = None
        self._pages: WrittenPages | None = None

    @property
    def saving(self) -> bool:
        """True while a save is neither durable nor failed."""
        save = self.save
        return save is not None and not save.ended.is_set()

    def start(
        self,
        encoded: EncodedState | EncodedShare,
        *,
        step: int,
        reason: str,
        progress: Progress,
        way: CopyWay = CopyWay.AT_ONCE,
        updated: UpdatedMemory | None = None,
    ) -> None:
        """Begin a save. The save before it has ended and is collected, and its copy is finished.

        It returns when the state may change again. With the way `LATE` that holds for all but the memory in `updated`,
        which may change after `finish_copy`.

        Where the system starts no more threads (a limit on processes), the save has ended when this returns.

        Args:
            encoded: The state.
            step: Completed steps.
            reason: The reason for the save, for the `saved` event.
            progress: The progress of the training.
            way: The way in which the memory in `updated` is copied.
            updated: Memory that an optimizer's step alone changes.

        Raises:
            MemoryError: If there is no memory for a copy of the state.
        """
        if self.late is not None:
            self.late.join()
        save = Save(step, reason)
        document = encoded.document
        try:
            images = self._staged.arrange(encoded.parts)
        except Exception as error:
            self._directory.decline(error)
            raise
        self.save = save
        late = self.late = self._watched(images, way, updated) if way is not CopyWay.AT_ONCE else None
        save.copied_late = late is not None and way is CopyWay.LATE

        def write() -> None:
            wait = self._staged.wait if late is None else late.wait
            try:
                size = self._directory.write_images(images, document, step=step, progress=progress, wait=wait)
            except BaseException as error:  # noqa: BLE001 - the training's thread gets it with the save
                save.end(problem=error)
            else:
                save.end(size_bytes=size)
                self._tidy(step)

        # A thread of each save's own: nothing is left behind between saves, or when the script forgets to say goodbye.
        thread = threading.Thread(target=write, name=f"spotkeep-save-{step}", daemon=True)
        self._thread = None
        try:
            try:
                thread.start()
                self._thread = thread
            except RuntimeError as error:
                _logger.warning("the training waits while the checkpoint of step %d is written: %s", step, error)
            if late is None:
                self._staged.copy(images)
            else:
                late.copy()
        except BaseException as error:
            self._staged.abandon()
            if late is not None:
                late.give_up(error)
            if thread.ident is not None:
                thread.join()
            elif isinstance(error, Exception):
                self._directory.decline(error)
            self.save = None
            raise
        if self._thread is None:
            self.finish_copy()
            write()

    def finish_copy(self) -> None:
        """Copy what is not copied yet, in a moment when the state is about to change. Any thread may call it."""
        if self.late is not None:
            self.late.finish()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no save is running. Gives false if one still is after `seconds`."""
        save = self.save
        return save is None or save.ended.wait(seconds)

    def wait_until_idle(self, seconds: float | None = None) -> bool:
        """Wait until old checkpoints are removed too. Gives false if the thread still runs after `seconds`."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def collect(self) -> Save | None:
        """Give the save that has ended, once. None for none."""
        save = self.save
        if save is None or not save.ended.is_set():
            return None
        self.save = None
        return save

    def prune(self, *, last: int | None = None) -> None:
        """Remove old checkpoints.

        Args:
            last: Checkpoints to keep. None for the number of the retention.
        """
        try:
            self._directory.prune(self._retention if last is None else replace(self._retention, last=last))
        except OSError as error:
            _logger.warning("could not remove old checkpoints: %s", error)

    def _tidy(self, step: int) -> None:
        self._tier.saved(step)
        if self._watch.notice() is None:
            self.prune()

    def _watched(self, images: Sequence[FileImage], way: CopyWay, updated: UpdatedMemory | None) -> LateCopy | None:
        """Watch the memory that may be copied late. None for no such memory, or where the system does not watch."""
        try:
            parts = late_parts(images, updated.holds) if updated else []
            if not parts:
                return None
            compare = way is CopyWay.COMPARED
            if isinstance(parts[0].blob.raw, arrays.DeviceBytes):
                return DeviceCopy(parts, staged=self._staged, images=images, compare=compare)
            self._pages = self._pages or WrittenPages()
            return WatchedCopy(parts, pages=self._pages, staged=self._staged, images=images, compare=compare)
        except OSError as error:
            self.unwatched = str(error)
            return None


class Saves:
    """Begins the saves of one training, waits for them, and reports their ends.

    Attributes:
        durable_step: Completed steps of the newest checkpoint that is durable and collected. None for none.
        losses: Warns of changes that no checkpoint gives back. None until the training begins, and on other ranks.

    Args:
        state: The live state.
        ranks: The ranks that write it.
        writer: The thread that writes.
        tier: The place that outlives this machine.
        leaving: The reasons to leave.
        schedule: Learns from each save.
        history: The file that counts interruptions. None without one.
        events: Reports of the training.
        open_gradients: Warns of gradients that no checkpoint holds. None where a checkpoint does.
    """

    def __init__(
        self,
        state: TrainingState,
        *,
        ranks: RankGroup,
        writer: BackgroundWriter,
        tier: SecondTier,
        leaving: Leaving,
        schedule: SaveSchedule,
        history: InterruptionHistory | None,
        events: TrainingEvents,
        open_gradients: OpenGradients | None,
    ) -> None:
        self.durable_step: int | None = None
        self.losses: ResumeLosses | None = None
        self._state = state
        self._ranks = ranks
        self._writer = writer
        self._tier = tier
        self._leaving = leaving
        self._schedule = schedule
        self._history = history
        self._events = events
        self._open_gradients = open_gradients
        self._late_copies = LateCopies(state, writer=writer)

    @property
    def saving(self) -> bool:
        """True while a save is running."""
        return self._writer.saving

    @property
    def started_step(self) -> int | None:
        """Completed steps of the newest checkpoint that is durable or on its way."""
        save = self._writer.save
        return self.durable_step if save is None else save.step

    @property
    def newest_durable_step(self) -> int | None:
        """Completed steps of the newest durable checkpoint, as the writing thread knows it.

        Any thread may ask. The disk is not asked, since it may be the cause of a wait.
        """
        save = self._writer.save
        return save.step if save is not None and save.is_durable else self.durable_step

    def is_due(self, step: int) -> bool:
        """Say if the schedule asks for a save of this step."""
        return self._schedule.due(step, time.monotonic(), saving=self._writer.saving)

    def is_due_by_steps(self, step: int) -> bool:
        """Say, alike on all ranks, if the schedule asks for a save of this step because of its number."""
        return self._schedule.due_by_steps(step)

    def is_due_by_time(self) -> bool:
        """Say if the schedule asks for a save because of the clock. Any thread may ask."""
        return self._schedule.due_by_time(time.monotonic(), saving=self._writer.saving)

    def begin(self, step: int, *, reason: str, progress: Progress, goes_on: bool = False) -> None:
        """Start a save. The one before it has ended.

        Args:
            step: Completed steps.
            reason: The reason for the save.
            progress: The progress of the training.
            goes_on: The training goes on with another step in the same loop, so that some of the state may be copied
                late.

        Raises:
            StateError: If the state cannot be saved.
            SaveError: If there is no memory for its copy.
        """
        began = time.monotonic()
        self.finish_copy()
        self._wait_until_idle()
        self._schedule.tried(step, time.monotonic())
        if self._open_gradients is not None:
            self._open_gradients.warn_if_lost()
        try:
            encoded = self._encode()
            way, updated = self._late_copies.next_way(goes_on=goes_on, began=began)
            self._writer.start(encoded, step=step, reason=reason, progress=progress, way=way, updated=updated)
        except MemoryError as error:
            raise SaveError(f"the checkpoint of step {step} needs a copy of the state in memory: {error}") from error
        finally:
            self._schedule.extra_time.call(time.monotonic() - began)

    def end_step(self) -> None:
        """Learn from the time that the save before this step took, now that the step has ended."""
        self._late_copies.end_step()

    def finish_copy(self) -> None:
        """Copy what of the state is not copied yet, because the script may change it from here on."""
        self._writer.finish_copy()
        self._late_copies.learn()

    def begin_if_new(self, step: int, *, reason: str, progress: Progress) -> None:
        """Start a save of a step that is neither durable nor on its way, once the running save has ended.

        Raises:
            StateError: If the state cannot be saved.
            SaveError: If there is no memory for its copy.
        """
        if not self._ranks.is_one_process:
            # How a save ended is the same on all ranks; when they hear of it is not.
            self.finish_copy()
            self._writer.wait()
            self.settle()
        if self.started_step != step:
            self.finish_copy()
            self._writer.wait()
            self.settle()
            self.begin(step, reason=reason, progress=progress)

    def try_to_begin(self, step: int, *, reason: str, progress: Progress) -> None:
        """Start a save of a step, as `begin_if_new` does, unless a notice leaves no time. A failure is reported.

        Raises:
            StateError: If the state cannot be saved. No later save would succeed.
            OtherRankError: If the state of another rank cannot.
        """
        if not self._ranks.is_one_process:
            # How a save ended is the same on all ranks; when they hear of it is not.
            self.wait_until_over(step)
        if self.started_step == step:
            return
        self.wait_until_over(step)
        fastest, left = self._schedule.extra_time.fastest_durable_seconds, self._leaving.seconds_left
        if fastest > left and not self._leaving.gave_up:
            self._give_up(step, f"a save takes {rounded(fastest)} s at best, and {rounded(left)} s are left")
        if self._ranks.largest([int(self._leaving.gave_up)])[0]:
            if not self._leaving.gave_up:
                self._give_up(step, "another rank has no time for it")
            return
        noticed = self._leaving.notice() is not None
        try:
            self.begin(
                step,
                reason="notice" if noticed else reason,
                progress=progress,
                goes_on=reason in _WITHIN_A_LOOP and not noticed,
            )
        except (StateError, OtherRankError):
            raise  # no later save would succeed
        except CheckpointError as error:
            self.report_failure(step, error)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the running save. Gives false if it still runs after `seconds`.

        Raises:
            SaveError: If it failed.
        """
        self.finish_copy()
        if not self._writer.wait(seconds):
            return False
        save = self._collect()
        if save is not None and save.problem is not None:
            raise save.problem
        return True

    def wait_until_over(self, step: int) -> None:
        """Wait for the running save as long as a notice leaves time, and report its end.

        Args:
            step: Completed steps, for the report.
        """
        self.finish_copy()
        while not (self._leaving.gave_up or self._writer.wait(min(_WATCH_SECONDS, self._leaving.seconds_left))):
            if self._leaving.seconds_left <= 0:
                self._give_up(step, "it is not durable in time")
        if not self._leaving.gave_up:
            self.settle()
            self._wait_until_idle()

    def forget(self, step: int) -> None:
        """Note that the checkpoint of a step was removed. It is saved again when the script asks for it."""
        if self.durable_step == step:
            self.durable_step = None

    def is_durable(self, step: int) -> bool:
        """Say, alike on all ranks, if the checkpoint of this step is durable."""
        # How a save ended is the same on all ranks; when they hear of it is not.
        self.wait_until_over(step)
        return bool(self._ranks.largest([int(self.durable_step == step)])[0])

    def settle(self) -> None:
        """Report the end of a save, if one has ended, or if a change of the state is about to end it."""
        self._late_copies.learn()
        late, running = self._writer.late, self._writer.save
        if late is not None and late.changed and running is not None and running.copied_late:
            self._writer.wait()
        save = self._collect()
        if save is not None and save.problem is not None:
            if not isinstance(save.problem, CheckpointError):
                raise save.problem
            self.report_failure(
                save.step,
                save.problem,
                makes_room=not (save.copied_late or isinstance(save.problem, ChangedStateError)),
            )

    def _encode(self) -> EncodedState | EncodedShare:
        try:
            encoded = self._ranks.encode(self._state)
            if self.losses is not None:
                self.losses.warn(encoded.document)
        except Exception as error:
            self._ranks.directory.decline(error)
            raise
        return encoded

    def _collect(self) -> Save | None:
        save = self._writer.collect()
        if save is None:
            return None
        if save.problem is not None:
            self._schedule.failed()
            if save.copied_late:
                self._late_copies.learn(failed=True)
                self._schedule.repeat()
            return save
        self.durable_step = save.step
        # The thread that wrote it does so too, at once; but it may not have come to it when this one leaves.
        self._tier.saved(save.step)
        interval = self._schedule.saved(save.seconds)
        if interval is not None:
            _logger.info("saving every %s s: %s", rounded(interval.seconds), interval.reason)
            self._events.emit("schedule", seconds=round(interval.seconds, 1), reason=interval.reason)
        if self._history is not None:
            self._history.seen()
        self._events.emit(
            "saved", step=save.step, seconds=round(save.seconds, 4), bytes=save.size_bytes, reason=save.reason
        )
        return save

    def report_failure(self, step: int, problem: CheckpointError, *, makes_room: bool = True) -> None:
        """Report that there is no checkpoint of a step, and make room for the next one.

        Args:
            step: The step.
            problem: The reason.
            makes_room: True to keep fewer checkpoints, because a full disk is the usual reason.

        Raises:
            LockLostError: If that is the problem.
        """
        _logger.error("no checkpoint of step %d: %s", step, problem)
        self._events.emit("save-failed", step=step, problem=str(problem))
        if isinstance(problem, LockLostError):
            raise problem
        # A full disk is the usual reason: make room for the next attempt.
        self._writer.wait_until_idle()
        if makes_room:
            self._writer.prune(last=2)

    def _wait_until_idle(self) -> None:
        """Wait until old checkpoints are removed, which may need gigabytes to be verified.

        On a notice there is no time.
        """
        while self._leaving.notice() is None and not self._writer.wait_until_idle(_WATCH_SECONDS):
            pass

    def _give_up(self, step: int, why: str) -> None:
        self._leaving.give_up(why, step=step, durable_step=self.newest_durable_step)


class LateCopies:
    """Chooses the saves that copy late, and learns from each.

    Args:
        state: The live state.
        writer: The thread that writes. It finishes its copy before each step of an optimizer.
    """

    def __init__(self, state: TrainingState, *, writer: BackgroundWriter) -> None:
        self._state = state
        self._writer = writer
        self._choice = LateCopying()
        self._steps = OptimizerSteps(before=writer.finish_copy)
        self._tried: tuple[CopyWay, float] | None = None  # the way of the save before this step, and when it began

    def next_way(self, *, goes_on: bool, began: float) -> tuple[CopyWay, UpdatedMemory]:
        """Give the way of the next save, and the memory that it may copy late.

        Args:
            goes_on: The training goes on with another step in the same loop.
            began: The time at which the save began, in seconds of the monotonic clock.
        """
        self._steps.begin()
        updated = self._steps.take_updated()
        way = self._choice.next_way(goes_on=goes_on, stepped=bool(updated))
        self._tried = (way, began) if goes_on and updated else None
        return way, updated

    def end_step(self) -> None:
        """Learn the time from the beginning of a save to the end of the step after it."""
        if self._tried is None or self._choice.medians is not None:
            return
        way, began = self._tried
        self._tried = None
        self._choice.took(way, time.monotonic() - began)
        medians = self._choice.medians
        if medians is not None:
            late, at_once = medians[CopyWay.LATE], medians[CopyWay.AT_ONCE]
            _logger.info(
                "saves copy the state %s from now on: with the next step they took %s s so, and %s s otherwise",
                "beside the next step" if late < at_once else "at once",
                rounded(min(late, at_once)),
                rounded(max(late, at_once)),
            )

    def learn(self, *, failed: bool = False) -> None:
        """Copy nothing late any more after a change of the state, or where nothing shows one. The log says why.

        Args:
            failed: A save that copied late has failed.
        """
        if self._choice.why_off is not None:
            return
        late = self._writer.late
        why = "a save that copied it late has failed" if failed else None
        if self._writer.unwatched is not None:
            why = f"the system does not watch it for changes: {self._writer.unwatched}"
        elif late is not None and late.has_ended and late.changed:
            names = names_of(self._state.whole, late.changed) or ["a tensor of an optimizer"]
            why = f"{', '.join(names[:_MOST_CHANGES])} changed between two steps of an optimizer"
        elif late is not None and late.has_ended and late.problem is not None:
            why = str(late.problem)
        if why is not None:
            self._choice.turn_off(why)
            _logger.info("each save copies the whole state at once from now on, because %s", why)


class ResumeLosses:
    """Warns, once each, of changes since the training began that no checkpoint gives back.

    Args:
        state: The live state at the beginning.
        form_may_change: True where the script gives the state its form again before a restore.
    """

    def __init__(self, state: TrainingState, *, form_may_change: bool) -> None:
        self._state = state
        self._beginning = Beginning(state.whole)
        self._watches_form = not form_may_change
        self._watches_beside = True

    def warn(self, document: Json) -> None:
        """Warn of changes.

        Args:
            document: The encoded state of the save.
        """
        if self._watches_form:
            if isinstance(document, ShareDocument):
                document = {"dict": [*state_pairs(document.common), *state_pairs(document.own)]}
            changes = self._beginning.changed_form(self._state.whole, document)
            if changes:
                self._watches_form = False
                _logger.warning(
                    "the state has another form than when the training began: %s. A script that starts again makes it "
                    "as it was at first, so a resume needs on_restore= of the Checkpointer, which makes it as it was "
                    "then, for example on_restore=lambda step, epoch: optimizer.add_param_group(...)",
                    "; ".join(changes[:_MOST_CHANGES]),
                )
        if self._watches_beside:
            names = self._beginning.changed_beside()
            if names:
                self._watches_beside = False
                _logger.warning(
                    "%s changed since the training began, and no state_dict has %s, so a resume begins with what the "
                    "script makes anew: keep it in a buffer (without persistent=False) or in a dictionary of the "
                    "state, or call persistent(True) of a metric of torchmetrics. What follows from the rest of the "
                    "state, or from the step, is no loss",
                    ", ".join(names[:_MOST_CHANGES]),
                    "it" if len(names) == 1 else "them",
                )
