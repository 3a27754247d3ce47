"""What really happened in a rehearsal, as plain values: the only thing the verdict may look at."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Ending(enum.Enum):
    """How one life of a training process ended."""

    EXITED = "exited"
    """The script ended by itself, with whatever exit code."""
    NOTICE = "notice"
    """Its capacity was taken after a SIGTERM and the time of the notice."""
    NO_NOTICE = "no-notice"
    """Its capacity was taken by SIGKILL, without a word."""
    STOPPED = "stopped"
    """A user's stop, or a time limit."""


@dataclass(frozen=True, kw_only=True)
class ProcessLife:
    """One life of a run's training process, from its start on some capacity to its end.

    Attributes:
        started_at: Seconds since the epoch.
        ended_at: Seconds since the epoch.
        ending: How it ended.
        resumed_from_step: Completed steps it restored, 0 for a start from the beginning, ``None`` when the script never
            said.
        last_step: Completed steps when it ended, ``None`` when the script never said.
        saved_steps: Steps of the checkpoints it saved, in order.
        durable_step: Step of the newest checkpoint that was whole in S3 when the life ended, 0 for none.
    """

    started_at: float
    ended_at: float
    ending: Ending
    resumed_from_step: int | None
    last_step: int | None
    saved_steps: tuple[int, ...]
    durable_step: int


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """What became of one run.

    Attributes:
        run: The run's id.
        state: The run record's final state, as its name.
        failure: Why it failed, in the record's words, or ``None``.
        attempts: How many training jobs worked on it.
        lives: The lives of its training process, oldest first.
        model_files: SHA-256 of every file of the model archive, by path; empty when there is none.
    """

    run: str
    state: str
    failure: str | None
    attempts: int
    lives: tuple[ProcessLife, ...]
    model_files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReceivedNotification:
    """A notification as its subscriber got it.

    Attributes:
        run: The run it tells of.
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
class Interruption:
    """One loss of capacity and what it cost the run.

    Attributes:
        when: ISO 8601 time, UTC.
        at_step: Completed steps when the capacity went, ``None`` if the script never said.
        notice: Whether a SIGTERM came first.
        durable_step: Step of the newest checkpoint whole in S3 at that moment, 0 for none.
        resumed_from_step: Step the next life restored, ``None`` if it never said (or there was no next life).
        steps_repeated: Steps that had to be done again, ``None`` when either end is unknown.
        seconds_to_resume: From the loss to the first word of the next life, ``None`` without one.
    """

    when: str
    at_step: int | None
    notice: bool
    durable_step: int
    resumed_from_step: int | None
    steps_repeated: int | None
    seconds_to_resume: float | None


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that what was rehearsed is for.

    Attributes:
        expected: What should be.
        found: What was.
        passed: Whether they agree.
    """

    expected: str
    found: str
    passed: bool
