"""Reads the `spotkeep-event: {json}` lines that a job writes into its log, tolerantly and within bounds. Pure.

A log is text from a machine that may die in the middle of a line. Progress bars and libraries print into it, too. So a
line that is no whole event is no error, and is ignored.

A log is also text from a stranger. Lines that are too long, too deep, or with too large numbers are refused. So are
lines without the id of the launch. Only known fields are kept, and their texts are cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

MARKER: Final = "spotkeep-event:"
LONGEST_LINE: Final = 16_384
"""In characters. The longest that library and agent print is a tenth of it."""
MOST: Final = 2**53
"""The bound of a number. Below it a float represents every whole number."""
LATEST_TIME: Final = 4_102_444_800.0
"""The year 2100, in epoch seconds. An interval added to it still has a date."""
_LONGEST_TEXT: Final = 500
_LONGEST_NAME: Final = 100
_MOST_NAMES: Final = 64
_MOST_DIGITS: Final = 20
_LINE_ENDS: Final = re.compile(r"[\r\n]+")

_NUMBERS: Final = frozenset(
    {
        "total_steps", "seconds", "bytes", "seconds_left", "code", "exit_code", "script_failures", "uploaded_step",
        "in_a_row", "restarts", "at_most", "hosts",
    }
)  # fmt: skip
_TEXTS: Final = frozenset(
    {
        "reason", "checkpoint", "digest", "problem", "uri", "what", "why", "instance", "zone", "python", "spotkeep",
        "training", "failure",
    }
)  # fmt: skip
_NAMED_NUMBERS: Final = frozenset({"metrics", "phases"})
_MODES: Final = ("min", "max")


class LineRefusal(StrEnum):
    """The reason why an event line is not taken, in words that follow a count of lines."""

    TOO_LONG = f"longer than {LONGEST_LINE:,} characters"
    TOO_DEEP = "nested too deep"
    NUMBER = "with a number out of bounds"
    OTHER_LAUNCH = "without the id of the launch"


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


_decoder: Final = json.JSONDecoder(parse_int=_whole_number)


class JobEventKind(StrEnum):
    """The subject of an event. All are set inside the job, by `training/spotkeep` or by `training/spotkeep_agent`."""

    START = "start"
    """The runner began, in a new process. Or it starts the command again that hung."""
    INSTALLING = "installing"
    """The runner installs the packages that the script needs. The field `what` names them."""
    INSTALLED = "installed"
    """The packages are there after `seconds`. `reason` says where from."""
    ENVIRONMENT_CACHED = "environment-cached"
    """The installed packages are in the archive at `what`, of `bytes` bytes.

    It is in S3 for the next machine, or on this host for the next job.
    """
    ENVIRONMENT_NOT_CACHED = "environment-not-cached"
    """The environment could not be written to `what` or read from there. So pip installs the packages again."""
    SET_UP = "set-up"
    """The job file's `setup` ran to its end."""
    RESUME = "resume"
    """The script took up a checkpoint at `step`. 0 when it began from the beginning."""
    PROGRESS = "progress"
    METRICS = "metrics"
    """Values that were measured since the last progress, or that the runner found in the script's lines."""
    SAVED = "saved"
    """A checkpoint of `step` is complete on the local disk."""
    SAVE_FAILED = "save-failed"
    """A checkpoint of `step` could not be written (a full disk). Older ones stay, the training goes on."""
    FALLBACK = "fallback"
    """A damaged checkpoint was skipped."""
    PUT_ASIDE = "put-aside"
    """A checkpoint of the script's own, at `what`, was cut off and put aside. The script does not find it."""
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
    """The job was asked to end. Its capacity goes away, a user stopped it, or its time is over."""
    STUCK = "stuck"
    """The command showed no step and no output for `seconds`. With `at_most` it is ended, and started again unless it
    has been so `restarts` times as often as that."""
    MOVES_AGAIN = "moves-again"
    """It shows life again, after that."""
    PAUSED = "paused"
    """The checkpoint of `step` is durable, and the script exits, because it has reached its `pause_at_step`."""
    FINISH = "finish"
    EXIT_ON_NOTICE = "exit-on-notice"
    """The command ended with 0 on a notice and did not say that it is done. With `code` 75 it is started again.

    With 0 it counts as done, for it was not the first time."""
    EXIT = "exit"
    """The runner's last line, with the command's exit code."""

    # Of the instances of a run on EC2.
    INSTANCE_TRAINING = "instance-training"
    """The instance has volume and supplies, and starts the training."""
    INSTANCE_FIRST_STEP = "instance-first-step"
    """The training has done its first step on the instance."""
    IMAGE_PULLING = "image-pulling"
    """The instance asks a registry for the container image at `what`."""
    IMAGE_PULLED = "image-pulled"
    """It is there after `seconds`. `digest` says which one it is."""
    INSTANCE_LEAVING = "instance-leaving"
    INSTANCE_LEFT = "instance-left"
    """It has let go of everything."""
    WORLD_BEGAN = "world-began"
    """`hosts` nodes of the run train together from now on, from `step` or from the beginning."""
    NODE_JOINED = "node-joined"
    """The node `instance` is connected with the leader."""
    NODE_LEFT = "node-left"
    """It is not any more, for the `reason`."""
    INSTANCE_SCRIPT_FAILED = "instance-script-failed"
    """The script failed and is started again."""
    INSTANCE_FINISHED = "instance-finished"
    INSTANCE_FAILED = "instance-failed"
    OUTPUT_SENT = "output-sent"
    """Model or other output is in S3, at `uri`."""
    NOT_IN_S3 = "not-in-s3"
    """The run is over, and its files at `what` are on its volume only, which is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvent:
    """One event.

    Attributes:
        kind: The subject of the event.
        at: The time in epoch seconds, by the job's clock.
        step: The count of completed steps, where the event has one.
        fields: The known fields of the rest of the line. `training` is there for a script with several trainings, one
            after the other or at once, each with its own steps.
    """

    kind: JobEventKind
    at: float
    step: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class _OutOfBoundsError(ValueError):
    """A number that no event may hold."""


def read_line(line: str, *, launch: str | None = None) -> JobEvent | LineRefusal | None:
    """Read the event of one line.

    Args:
        line: A line of a log, of which the parts before the marker and after the closing brace are ignored.
        launch: The id that the line has to carry, or None to take a line of any origin.

    Returns:
        The event, or the reason why the line is refused, or None when there is no whole event in it.
    """
    _, marker, document = line.partition(MARKER)
    if not marker:
        return None
    if len(line) > LONGEST_LINE:
        return LineRefusal.TOO_LONG
    if launch is not None and launch not in document:
        return LineRefusal.OTHER_LAUNCH
    try:
        fields, _ = _decoder.raw_decode(document.lstrip())
        if not isinstance(fields, dict):
            return None
        if launch is not None and fields.get("launch") != launch:
            return LineRefusal.OTHER_LAUNCH
        return _event_of(fields)
    except _OutOfBoundsError:
        return LineRefusal.NUMBER
    except RecursionError:
        return LineRefusal.TOO_DEEP
    except ValueError:
        return None


def parse_line(line: str) -> JobEvent | None:
    """Read the event of one line of any origin. None when there is none, or it is refused."""
    event = read_line(line)
    return event if isinstance(event, JobEvent) else None


def lines_of(message: str) -> Iterator[str]:
    """Yield the lines of one message of a log, one at a time."""
    begin = 0
    for end in _LINE_ENDS.finditer(message):
        yield message[begin : end.start()]
        begin = end.end()
    yield message[begin:]


def read_message(message: str, *, launch: str | None = None) -> Iterator[JobEvent | LineRefusal]:
    """Yield the events of one message of a log, which may hold several lines, and why lines are refused.

    Args:
        message: The message.
        launch: The id that a line has to carry. None to take lines of any origin.
    """
    for line in lines_of(message):
        read = read_line(line, launch=launch)
        if read is not None:
            yield read


def _event_of(fields: Mapping[str, Any]) -> JobEvent | None:
    """Return the event of a line's fields. None when it has no known kind, or no time."""
    kind, at, step = fields.get("event"), _number(fields.get("time")), _number(fields.get("step"))
    if not isinstance(kind, str) or kind not in _KINDS or at is None:
        return None
    if not 0 <= at < LATEST_TIME:
        raise _OutOfBoundsError
    return JobEvent(
        kind=JobEventKind(kind),
        at=float(at),
        step=step if isinstance(step, int) and step >= 0 else None,
        fields=dict(_known(fields)),
    )


_KINDS: Final = frozenset(kind.value for kind in JobEventKind)


def _known(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in _NUMBERS and (number := _number(value)) is not None:
            yield name, number
        elif name in _TEXTS and isinstance(value, str):
            yield name, value[:_LONGEST_TEXT]
        elif name in _NAMED_NUMBERS and isinstance(value, dict):
            yield name, dict(_named_numbers(value))
        elif name == "keep" and isinstance(value, dict):
            yield from _best_kept(value.get("best"))


def _named_numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    """Yield the metrics that a script reports. They have no bound but to be numbers, as a loss may be 1e30."""
    for name, value in list(values.items())[:_MOST_NAMES]:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name[:_LONGEST_NAME], value


def _best_kept(best: object) -> Iterator[tuple[str, str]]:
    """Yield by which metric the script keeps its best checkpoint, and whether the least or the greatest is best."""
    if isinstance(best, dict) and isinstance(best.get("metric"), str) and best.get("mode") in _MODES:
        yield "best_metric", best["metric"][:_LONGEST_NAME]
        yield "best_mode", best["mode"]


def _number(value: object) -> int | float | None:
    """Return a number, or None for a value that is none.

    Raises:
        _OutOfBoundsError: It is not finite, or too large to count with.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if not -MOST < value < MOST:
        raise _OutOfBoundsError
    return value
