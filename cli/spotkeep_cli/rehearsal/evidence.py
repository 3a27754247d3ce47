"""The facts of a rehearsal, as plain values. The verdict may use nothing else."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spotkeep_cli.errors import RehearsalNotJudgedError
from spotkeep_cli.failure_causes import hint_of_failure

SCRIPT_FAILED_HINT = "run the script by itself first, and mend what it says"


ENDINGS: Final = frozenset({"completed", "failed", "stopped"})
"""The statuses of notifications that say that a run, or a sweep, has ended."""


class RehearsalTimeoutError(RehearsalNotJudgedError):
    """Something that was to happen to the rehearsed runs did not happen within the time given."""

    def __init__(self, *, seconds: float, states: Mapping[str, str]) -> None:
        """Name the state of each run when the time was over."""
        where = ", ".join(f"{run} is {state.lower()}" for run, state in states.items())
        super().__init__(
            f"the runs did not end within {seconds:g} s: {where}",
            hint="give it longer with --timeout, or make the job shorter with --set",
        )


class RehearsedRunFailedError(RehearsalNotJudgedError):
    """A run failed that was to leave something to judge.

    Attributes:
        failure: The reason, in the words of its record.
    """

    def __init__(self, *, run: str, failure: str) -> None:
        super().__init__(f"{run} failed: {failure}", hint=hint_of_failure(failure) or SCRIPT_FAILED_HINT)
        self.failure = failure


class ProcessEnding(enum.Enum):
    """The kinds of end of one life of a training process."""

    EXITED = "exited"
    """The script ended by itself, with whatever exit code."""
    NOTICE = "notice"
    """Its capacity was taken after a SIGTERM and the time of the notice."""
    NO_NOTICE = "no-notice"
    """Its capacity was taken by SIGKILL, without notice."""
    STOPPED = "stopped"
    """A user's stop, or a time limit."""


@dataclass(frozen=True, kw_only=True)
class RehearsedHost:
    """The part of one host in a life.

    Attributes:
        name: Its name, such as `algo-1`.
        uploads: Number of files of the checkpoint directory that it copied to S3.
        not_copied: Number of those on its disk that were not, or not so, in S3 when the life ended.
    """

    name: str
    uploads: int
    not_copied: int


@dataclass(frozen=True, kw_only=True)
class RehearsedProcess:
    """One life of a run's training process, from its start on some capacity to its end.

    On several hosts it is the life of all their processes.

    Attributes:
        started_at: Seconds since the epoch.
        ended_at: Seconds since the epoch.
        ending: The kind of its end.
        resumed_from_step: Number of completed steps that it restored, 0 for a start from the beginning, or ``None``
            without a report of the script.
        last_step: Number of completed steps when it ended. ``None`` without a report of the script.
        saved_steps: Steps of the checkpoints that it saved, in order.
        durable_step: Step of the newest checkpoint that was whole in S3 when the life ended. 0 for none.
        stored_files: Files of the checkpoint directory that were in S3 when the life ended.
        read_files: Those that it found when it began, and read, or ``None`` where that cannot be seen.
        uploads: Number of files of the checkpoint directory that were copied to S3 meanwhile.
        put_aside: Checkpoints that it found when it began, and that were not whole.
        unsaved_files: Files that it wrote beside its source, which went with the machine.
        hosts: The part of each host. Empty on a fleet.
    """

    started_at: float
    ended_at: float
    ending: ProcessEnding
    resumed_from_step: int | None
    last_step: int | None
    saved_steps: tuple[int, ...]
    durable_step: int
    stored_files: tuple[str, ...] = ()
    read_files: tuple[str, ...] | None = None
    uploads: int = 0
    put_aside: tuple[str, ...] = ()
    unsaved_files: tuple[str, ...] = ()
    hosts: tuple[RehearsedHost, ...] = ()

    @property
    def was_taken(self) -> bool:
        """True if it ended because its capacity was taken."""
        return self.ending in (ProcessEnding.NOTICE, ProcessEnding.NO_NOTICE)


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A file of a model archive.

    Attributes:
        sha256: The SHA-256 of its content, in hexadecimal.
        size_bytes: The size of its content.
    """

    sha256: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """The outcome of one run.

    Attributes:
        run: The run's id.
        state: The run record's final state, as its name.
        failure: The reason of its failure in the record's words, or ``None``.
        attempts: Number of training jobs that worked on it.
        lives: The lives of its training process, oldest first.
        model_files: Every file of the model archive, by path. Empty when there is none.
        shared_network: The reason why its hosts shared this machine's network. ``None`` where each had its own, and
            for one host.
        stood_still_seconds: The time without a step and without a line, in seconds, for which the rehearsal stopped it.
            None where it did not.
    """

    run: str
    state: str
    failure: str | None
    attempts: int
    lives: tuple[RehearsedProcess, ...]
    model_files: Mapping[str, ModelFile] = field(default_factory=dict)
    shared_network: str | None = None
    stood_still_seconds: float | None = None

    @property
    def reports_steps(self) -> bool:
        """True if its script ever reported its step."""
        return any(life.last_step is not None or life.resumed_from_step is not None for life in self.lives)


@dataclass(frozen=True, kw_only=True)
class ReceivedNotification:
    """A notification as its subscriber got it.

    Attributes:
        run: The run or the sweep it is about.
        status: The filter attribute ``status``: ``completed``, ``failed``, ...
        subject: The mail's subject.
        body: The mail's text.
        received_at: ISO 8601 time, UTC.
    """

    run: str
    status: str
    subject: str
    body: str
    received_at: str


@dataclass(frozen=True, kw_only=True)
class CapacityLoss:
    """One loss of capacity and its cost to the run.

    Attributes:
        when: ISO 8601 time, UTC.
        at_step: Number of completed steps when the capacity went, or ``None`` without a report of the script.
        notice: True if a SIGTERM came first.
        durable_step: Step of the newest checkpoint that was whole in S3 at that moment. 0 for none.
        resumed_from_step: Step that the next life restored. ``None`` without a report of the script, or without a next
            life.
        steps_repeated: Number of steps that were done again, or ``None`` when either end is unknown.
        seconds_to_resume: Seconds from the loss to the first report of the next life, or ``None`` without one.
        seconds_trained: Seconds that the run had trained until then, in all its lives.
        stored_files: Files of the checkpoint directory that were in S3 at that moment.
        read_files: Those of them that the next life read. ``None`` where that cannot be seen.
        put_aside: Those of them that were not whole when the next life began.
        hosts: The hosts that were taken, with the copies that each had made.
    """

    when: str
    at_step: int | None
    notice: bool
    durable_step: int
    resumed_from_step: int | None
    steps_repeated: int | None
    seconds_to_resume: float | None
    seconds_trained: float = 0.0
    stored_files: tuple[str, ...] = ()
    read_files: tuple[str, ...] | None = None
    put_aside: tuple[str, ...] = ()
    hosts: tuple[RehearsedHost, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RehearsalCheck:
    """One promise that the rehearsal checks.

    Attributes:
        expected: The promise.
        found: The fact.
        passed: True if both agree.
    """

    expected: str
    found: str
    passed: bool
