"""The facts of a rehearsal as plain values. The verdict uses nothing else."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


class RehearsalError(Exception):
    """There is no verdict. The message says the reason.

    Attributes:
        hint: The thing to do.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class LifeEnding(enum.Enum):
    """The kinds of end of one life of the command."""

    EXITED = "exited"
    """The command ended by itself, with whatever exit code."""
    NOTICE = "notice"
    """Its machine was taken after a SIGTERM and the time of the notice."""
    NO_NOTICE = "no-notice"
    """Its machine was taken by SIGKILL, without notice."""
    LIMIT = "limit"
    """The step at which `--for` stops every run was reached."""
    TIMEOUT = "timeout"
    """It took longer than `--timeout`."""


@dataclass(frozen=True)
class OutputLine:
    """A line of the command's output, with its time in seconds since the start of the life."""

    seconds: float
    text: str


@dataclass(frozen=True)
class FileWrite:
    """A write of a checkpoint file that was seen, with its time in seconds since the start of the life."""

    seconds: float
    name: str


@dataclass(frozen=True)
class Life:
    """One life of the command, from its start to its end.

    Attributes:
        ending: The kind of its end.
        seconds: Its length.
        exit_code: Its exit code. 128 and the signal's number after a signal. None where it was killed.
        lines: Its output, without the reports of the spotkeep library.
        writes: The checkpoint files that it wrote.
        found_files: The checkpoint files that were there when it began.
        read_files: Those of them that it read. None where the file system keeps no times of access.
        left_files: The checkpoint files at its end, which the next life finds.
        lost_files: The files outside the checkpoint folder that it had written when its machine was taken.
        resumed_step: Number of completed steps that it restored, in the library's words. None without a report.
        last_step: Number of completed steps at its end, in the library's words. None without a report.
        saved_steps: The steps that the library reported as saved.
        step_times: The time of each step that the library reported, in seconds since the start.
        done: True if it ended with code 0 and counts as done.
    """

    ending: LifeEnding
    seconds: float
    exit_code: int | None
    lines: tuple[OutputLine, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    found_files: tuple[str, ...] = ()
    read_files: tuple[str, ...] | None = None
    left_files: tuple[str, ...] = ()
    lost_files: tuple[str, ...] = ()
    resumed_step: int | None = None
    last_step: int | None = None
    saved_steps: tuple[int, ...] = ()
    step_times: tuple[tuple[int, float], ...] = ()
    done: bool = False

    @property
    def was_taken(self) -> bool:
        """True if its machine was taken."""
        return self.ending in (LifeEnding.NOTICE, LifeEnding.NO_NOTICE)

    @property
    def reports_steps(self) -> bool:
        """True if the spotkeep library reported a step."""
        return self.last_step is not None or self.resumed_step is not None


@dataclass(frozen=True)
class ResultFile:
    """A file that a run left.

    Attributes:
        path: Its place on this machine until the end of the rehearsal.
        sha256: The hash of its content.
        size_bytes: Its size.
        is_checkpoint: True if it lies in the checkpoint folder.
        changed_ns: Its time of change, in nanoseconds since the epoch.
    """

    path: Path
    sha256: str
    size_bytes: int
    is_checkpoint: bool
    changed_ns: int = 0


@dataclass(frozen=True)
class RunFacts:
    """The outcome of one run.

    Attributes:
        name: A name for people.
        lives: The lives of its command, oldest first.
        files: The files that it left, by name.
    """

    name: str
    lives: tuple[Life, ...]
    files: Mapping[str, ResultFile] = field(default_factory=dict)

    @property
    def completed(self) -> bool:
        """True if its last life is done, or reached the step at which every run stops."""
        return bool(self.lives) and (self.lives[-1].done or self.lives[-1].ending is LifeEnding.LIMIT)
