"""What a job writes into its log about itself: `spotkeep-event: {json}` lines, read tolerantly.

A log is text from a machine that may die in the middle of a line, shared with progress bars and libraries that print
what they like. So a line that is no whole event is no error: it is no event.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

MARKER: Final = "spotkeep-event:"
_LINE_ENDS: Final = re.compile(r"[\r\n]+")
_decoder: Final = json.JSONDecoder()


class JobEventKind(StrEnum):
    """What an event tells. All are set inside the job: by `training/spotkeep`, or by `training/spotkeep_agent`."""

    START = "start"
    """The runner began: a new process life."""
    RESUME = "resume"
    """The script took up a checkpoint at `step`; 0 when it began from the beginning."""
    PROGRESS = "progress"
    SAVED = "saved"
    """A checkpoint of `step` is complete on the local disk."""
    SAVE_FAILED = "save-failed"
    """A checkpoint of `step` could not be written (a full disk); older ones stay, the training goes on."""
    FALLBACK = "fallback"
    """A damaged checkpoint was skipped."""
    SCHEDULE = "schedule"
    """The script chose how often to save."""
    UPLOADED = "uploaded"
    """A checkpoint of `step` has reached S3, sent by the script itself."""
    UPLOAD_FAILED = "upload-failed"
    """It has not, so far or for good."""
    UPLOAD_LATE = "upload-late"
    """Checkpoints have been waiting to reach S3 for longer than they should."""
    DOWNLOADED = "downloaded"
    """The checkpoint of `step` was fetched from S3, to be taken up."""
    NOTICE = "notice"
    """The job was told to end: its capacity goes away, somebody stopped it, or its time is over."""
    FINISH = "finish"
    EXIT = "exit"
    """The runner's last line, with the command's exit code."""

    # Of the instances of a run on EC2.
    INSTANCE_TRAINING = "instance-training"
    """The instance has volume and supplies, and starts the training."""
    INSTANCE_LEAVING = "instance-leaving"
    INSTANCE_LEFT = "instance-left"
    """It has let go of everything."""
    INSTANCE_SCRIPT_FAILED = "instance-script-failed"
    """The script failed and is started again."""
    INSTANCE_FINISHED = "instance-finished"
    INSTANCE_FAILED = "instance-failed"
    OUTPUT_SENT = "output-sent"
    """Model or other output is in S3, at `uri`."""
    NOT_IN_S3 = "not-in-s3"
    """The run is over, and something of it, `what`, is on its volume only, which is kept."""


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """One event.

    Attributes:
        kind: What it tells.
        at: When, in epoch seconds, by the job's clock.
        step: The count of completed steps, where the event has one.
        fields: The rest of the line, as it was written.
    """

    kind: JobEventKind
    at: float
    step: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobLog:
    """The events of one job's log, in order of time.

    Attributes:
        events: What could be read.
        complete: False when the log was longer than what was read of it, or could not be read.
    """

    events: tuple[JobEvent, ...] = ()
    complete: bool = True


def parse_line(line: str) -> JobEvent | None:
    """Read the event of one line; None when there is no whole one in it.

    Args:
        line: A line of a log. What stands before the marker and after the closing brace is ignored.
    """
    _, marker, document = line.partition(MARKER)
    if not marker:
        return None
    try:
        fields, _ = _decoder.raw_decode(document.lstrip())
        kind = JobEventKind(fields["event"])
        at = float(fields["time"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    if not math.isfinite(at):
        return None
    step = fields.get("step")
    whole = isinstance(step, int) and not isinstance(step, bool) and step >= 0
    rest = {key: value for key, value in fields.items() if key not in {"event", "time", "step"}}
    return JobEvent(kind=kind, at=at, step=step if whole else None, fields=rest)


def parse_log(messages: Iterable[str], *, complete: bool = True) -> JobLog:
    """Read the events of a log, in order of time.

    Args:
        messages: Log messages; each may hold several lines.
        complete: Whether these are all of the log's messages.
    """
    lines = (line for message in messages for line in _LINE_ENDS.split(message))
    events = [event for line in lines if (event := parse_line(line)) is not None]
    return JobLog(events=tuple(sorted(events, key=lambda event: event.at)), complete=complete)
