"""Runs a command from its first start to its end, through the losses of its machine, and gathers the facts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from spotkeep.notices.notice import (
    EXIT_INTERRUPTED,
    NOTICE_FILE_VARIABLE,
    all_are_done,
    forget_trainings,
    left_file,
    trainings_file,
)
from spotkeep.runner.exits_on_notice import ending_of_exit_0
from spotkeep.runner.failure import says_ended_by_sigterm
from spotkeep_rehearsal.copying import cut_off
from spotkeep_rehearsal.evidence import FileWrite, Life, LifeEnding, OutputLine, RunFacts
from spotkeep_rehearsal.folders import Disk, is_log
from spotkeep_rehearsal.losses import PlacedLoss
from spotkeep_rehearsal.milestones import Milestones
from spotkeep_rehearsal.processes import MARK_VARIABLE, RunningCommand

_EVENT_PREFIX = "spotkeep-event: "
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.5
_SHARE_OF_SCANS = 10
"""A scan of the folder takes at most one part in so many of the time."""
_MOST_LIVES = 60
_KILLED_BY_SIGTERM = 143
_LONG_AGO_SECONDS = 86_400
Say = Callable[[str], None]


class Steps:
    """Counts the milestones of one life while it runs.

    Args:
        milestones: The milestones of the command. None while they are unknown.
        by_library: True to count the steps that the spotkeep library reports.
    """

    def __init__(self, milestones: Milestones | None, *, by_library: bool) -> None:
        self._milestones, self._by_library = milestones, by_library
        self._positions = milestones.positions if milestones else {}
        self.position: int | None = None
        """The newest milestone. With the library, the number of completed steps."""
        self.reached_at = 0.0

    def add(self, seconds: float, text: str, event: Mapping[str, Any] | None) -> None:
        """Take a line of output."""
        found: int | None = None
        if self._by_library:
            if event is not None and event.get("event") in ("progress", "saved") and isinstance(event.get("step"), int):
                found = event["step"]
        elif self._milestones is not None and event is None:
            key = self._milestones.key_of(text)
            found = self._positions.get(key) if key is not None else None
        if found is not None:
            self.position, self.reached_at = found, seconds


@dataclass
class Watched:
    """The facts of a life as they come."""

    lines: list[OutputLine] = field(default_factory=list)
    writes: list[FileWrite] = field(default_factory=list)
    resumed_step: int | None = None
    last_step: int | None = None
    saved_steps: list[int] = field(default_factory=list)
    step_times: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A run to make.

    Attributes:
        name: A name for people.
        losses: The losses of its machine, in order.
        milestones: The milestones of the command. None while they are unknown.
        by_library: True if losses count the steps that the spotkeep library reports.
        stop_at: The milestone, or the step, at which the run stops. None for its end.
        stop_after_seconds: The time after which the run stops. None for its end.
        notice_seconds: The seconds from a notice to the loss.
        begins_with: The checkpoint files that its first life finds, by name.
        cut_off_by: The source of chance for a copy of checkpoints that is cut off. None for a whole copy.
    """

    name: str
    losses: Sequence[PlacedLoss] = ()
    milestones: Milestones | None = None
    by_library: bool = False
    stop_at: int | None = None
    stop_after_seconds: float | None = None
    notice_seconds: float = 10.0
    begins_with: Mapping[str, Path] = field(default_factory=dict)
    cut_off_by: random.Random | None = None


class Rehearsal:
    """Runs one command on disks of its own.

    Args:
        words: The command.
        environment: The caller's environment.
        disk: The disk of the machine.
        scratch: A folder outside all disks.
        timeout_seconds: The longest time of one run.
        say: Shows a line of progress.
        show: Shows a line of the command's output.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        disk: Disk,
        scratch: Path,
        timeout_seconds: float,
        say: Say,
        show: Say,
    ) -> None:
        self._words, self._environment, self.disk, self._scratch = words, environment, disk, scratch
        self._timeout_seconds, self._say, self._show = timeout_seconds, say, show
        self._keeps_access_times = _keeps_access_times(scratch)

    def run(self, plan: Plan) -> RunFacts:
        """Run the command to its end. Its disk is kept under the plan's name.

        Raises:
            RehearsalError: The command cannot be started.
        """
        lives: list[Life] = []
        survivors = self._copied(plan.begins_with) if plan.begins_with else None
        losses = list(plan.losses)
        exits_in_a_row = 0
        began = time.monotonic()
        while len(lives) < _MOST_LIVES:
            self.disk.fresh(survivors)
            trained = sum(life.seconds for life in lives)
            limit = self._timeout_seconds - (time.monotonic() - began)
            loss = losses[0] if losses else None
            life, exits_in_a_row = self._live(plan, loss, trained=trained, limit=limit, exits_before=exits_in_a_row)
            lives.append(life)
            if life.done or not life.was_taken:
                break
            losses = losses[1:]
            survivors = self.disk.take_checkpoints()
            if plan.cut_off_by is not None:
                cut(survivors, [write.name for life in lives for write in life.writes], draw=plan.cut_off_by)
            self._say(_taken(life, survivors))
        return RunFacts(name=plan.name, lives=tuple(lives), files=self.disk.keep_as(plan.name))

    def _copied(self, files: Mapping[str, Path]) -> Path:
        folder = self._scratch / "begins-with"
        for name, path in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / name)
        return folder

    def _live(
        self,
        plan: Plan,
        loss: PlacedLoss | None,
        *,
        trained: float,
        limit: float,
        exits_before: int,
    ) -> tuple[Life, int]:
        """Run one life of the command. Return it with the number of exits with code 0 on a notice in a row."""
        mark, notice_file = secrets.token_hex(8), self._scratch / "notice"
        for path in (notice_file, left_file(notice_file), trainings_file(notice_file)):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        forget_trainings(notice_file)
        words, environment, directory = self.disk.launch(
            self._words, self._variables(notice_file, mark, plan.notice_seconds)
        )
        found = self.disk.checkpoint_files()
        self._forget_access(found)
        steps, watched = Steps(plan.milestones, by_library=plan.by_library), Watched()
        versions, next_scan, ending = dict(found), 0.0, LifeEnding.EXITED
        noticed_at: float | None = None
        with RunningCommand(words, environment=environment, directory=directory, mark=mark) as command:
            while True:
                code = command.exit_code
                stopped = self._take_lines(command, watched, steps, plan)
                if command.seconds >= next_scan or code is not None:
                    scan_began = time.monotonic()
                    versions = self._take_writes(versions, watched, command.seconds)
                    took = time.monotonic() - scan_began
                    next_scan = command.seconds + min(max(0.02, took * _SHARE_OF_SCANS), 2.0)
                if code is not None:
                    break
                if stopped or _is_over(plan.stop_after_seconds, command.seconds + trained):
                    ending = LifeEnding.LIMIT
                    break
                if command.seconds > limit:
                    ending = LifeEnding.TIMEOUT
                    break
                if noticed_at is not None:
                    if command.seconds - noticed_at > plan.notice_seconds:
                        ending = LifeEnding.NOTICE
                        break
                elif loss is not None and _is_due(loss, steps, watched, command.seconds, trained):
                    if not loss.notice:
                        ending = LifeEnding.NO_NOTICE
                        break
                    noticed_at = command.seconds
                    command.warn(notice_file=notice_file, seconds=plan.notice_seconds)
                time.sleep(_SHORTEST_PAUSE_SECONDS)
            command.kill()
            seconds = command.seconds
            self._take_lines(command, watched, steps, plan)
        self._take_writes(versions, watched, seconds)
        exits = 0
        done = False
        if ending is LifeEnding.EXITED:
            tail = "\n".join(line.text for line in watched.lines[-20:]).encode()
            left = left_file(notice_file).exists()
            if not code:
                meaning = ending_of_exit_0(
                    noticed=noticed_at is not None, left=left, done=all_are_done(notice_file), exits_before=exits_before
                )
                exits, done = meaning.exits_in_a_row, not meaning.exit_code
            left |= code in (EXIT_INTERRUPTED, _KILLED_BY_SIGTERM) or says_ended_by_sigterm(tail)
            if noticed_at is not None and not done and (not code or left):
                ending = LifeEnding.NOTICE
        left_files = self.disk.checkpoint_files()
        life = Life(
            ending=ending,
            seconds=seconds,
            exit_code=code,
            lines=tuple(watched.lines),
            writes=tuple(watched.writes),
            found_files=tuple(sorted(found)),
            read_files=self._read_of(found),
            left_files=tuple(sorted(left_files)),
            lost_files=self.disk.files_outside(),
            resumed_step=watched.resumed_step,
            last_step=watched.last_step,
            saved_steps=tuple(watched.saved_steps),
            step_times=tuple(sorted(watched.step_times.items())),
            done=done,
        )
        return life, exits

    def _variables(self, notice_file: Path, mark: str, notice_seconds: float) -> dict[str, str]:
        own = {
            "PYTHONUNBUFFERED": "1",
            "SM_MODEL_DIR": self.disk.model_variable,
            "SPOTKEEP_CHECKPOINT_DIR": self.disk.checkpoints_variable,
            "SPOTKEEP_EVENTS": "stdout",
            "SPOTKEEP_PROGRESS_SECONDS": "0",
        }
        ours = {NOTICE_FILE_VARIABLE: str(notice_file), "SPOTKEEP_NOTICE_SECONDS": f"{notice_seconds:g}"}
        return {**own, **self._environment, **ours, MARK_VARIABLE: mark}

    def _take_lines(self, command: RunningCommand, watched: Watched, steps: Steps, plan: Plan) -> bool:
        """Take the new lines of output. Return True once the step is reached at which every run stops."""
        for seconds, text in command.new_lines():
            event = _event(text)
            if event is None:
                watched.lines.append(OutputLine(seconds, text))
                self._show(text)
            else:
                _take_event(event, seconds, watched)
            steps.add(seconds, text, event)
            if plan.stop_at is not None and steps.position is not None and steps.position >= plan.stop_at:
                return True
        return False

    def _take_writes(self, versions: dict[str, Any], watched: Watched, seconds: float) -> dict[str, Any]:
        now = self.disk.checkpoint_files()
        watched.writes += [FileWrite(seconds, name) for name, version in now.items() if versions.get(name) != version]
        return now

    def _forget_access(self, names: Mapping[str, Any]) -> None:
        """Set the times of access back, so that a read shows."""
        for name in names if self._keeps_access_times and self.disk.place is not None else ():
            with contextlib.suppress(OSError):
                facts = (self.disk.checkpoints / name).stat()
                earlier = min(facts.st_mtime_ns, time.time_ns()) - int(_LONG_AGO_SECONDS * 1e9)
                os.utime(self.disk.checkpoints / name, ns=(earlier, facts.st_mtime_ns))

    def _read_of(self, found: Mapping[str, tuple[int, int, int]]) -> tuple[str, ...] | None:
        if not self._keeps_access_times or self.disk.place is None:
            return None
        read = []
        for name in found:
            try:
                facts = (self.disk.checkpoints / name).stat()
            except OSError:
                # It was read or not, and is gone. A command that prunes its checkpoints has looked at them.
                read.append(name)
                continue
            if facts.st_mtime_ns != found[name][0] or facts.st_atime_ns > facts.st_mtime_ns - int(1e9 * 3_600):
                read.append(name)
        return tuple(sorted(read))


def _taken(life: Life, survivors: Path) -> str:
    how = "after a notice (SIGTERM)" if life.ending is LifeEnding.NOTICE else "without notice (SIGKILL)"
    left = sum(1 for path in survivors.rglob("*") if path.is_file())
    return f"machine taken after {life.seconds:.1f} s, {how}; {left} checkpoint file{'' if left == 1 else 's'} left"


def _is_over(limit: float | None, seconds: float) -> bool:
    return limit is not None and seconds >= limit


def _is_due(loss: PlacedLoss, steps: Steps, watched: Watched, seconds: float, trained: float) -> bool:
    if loss.writes is not None:
        written = [write.seconds for write in watched.writes if not is_log(write.name)]
        return loss.is_due_by_writes(written, seconds=seconds)
    if loss.position is None:
        return seconds + (0.0 if loss.in_life else trained) >= loss.seconds
    return steps.position is not None and steps.position >= loss.position and seconds >= steps.reached_at + loss.seconds


def _event(text: str) -> dict[str, Any] | None:
    if not text.startswith(_EVENT_PREFIX):
        return None
    try:
        event = json.loads(text[len(_EVENT_PREFIX) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _take_event(event: Mapping[str, Any], seconds: float, watched: Watched) -> None:
    kind, step = event.get("event"), event.get("step")
    if not isinstance(step, int):
        return
    if kind == "resume" and watched.resumed_step is None:
        watched.resumed_step = step
    if kind == "saved":
        watched.saved_steps.append(step)
    if kind in ("resume", "saved", "progress"):
        watched.last_step = max(step, watched.last_step or 0)
        watched.step_times.setdefault(step, seconds)


def _keeps_access_times(scratch: Path) -> bool:
    """Return True if the file system notes when a file is read."""
    probe = scratch / "access-times"
    probe.write_text("read me", encoding="ascii")
    try:
        before = probe.stat().st_mtime_ns - int(_LONG_AGO_SECONDS * 1e9)
        os.utime(probe, ns=(before, probe.stat().st_mtime_ns))
        probe.read_text(encoding="ascii")
        return probe.stat().st_atime_ns > before
    finally:
        probe.unlink()


def cut(folder: Path, writes: Sequence[str], *, draw: random.Random) -> None:
    """Leave of the checkpoints what a copy brings back that was cut off.

    Args:
        folder: The checkpoint files.
        writes: The names of the files that were written, once for each write.
        draw: The source of chance.
    """
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    facts = {name: (path.stat().st_mtime_ns, path.stat().st_size) for name, path in files.items()}
    rewritten = frozenset(name for name in files if writes.count(name) > 1)
    came = cut_off(facts, rewritten=rewritten, draw=draw)
    for name, path in files.items():
        if name not in came:
            path.unlink()
        elif came[name] < facts[name][1]:
            os.truncate(path, came[name])
