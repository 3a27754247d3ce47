"""Job events, the reports of a job to the outside world, one line of standard output each.

The platform carries standard output to the logs. The controller, the command line and the rehearsal read these lines
there. A line is `spotkeep-event: ` and a JSON object with at least `event` and `time` (seconds since the epoch). `step`
is always the number of completed steps.

Nothing is printed unless `SPOTKEEP_EVENTS=stdout`, which `spotkeep run` sets. So a script that is run by hand stays
quiet. In a job that Spotkeep launched the object also has `launch`, the id of the launch from `SPOTKEEP_LAUNCH`. A
reader of the run ignores lines without it. A script may have several trainings, each with a folder of its own. Then an
event of one of them has the training's name as `training`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

EVENT_PREFIX = "spotkeep-event: "
LAUNCH_VARIABLE = "SPOTKEEP_LAUNCH"
"""Names the launch that a job is of."""
_DEFAULT_PROGRESS_SECONDS = 10.0
_FIRST_VALUES = 60
"""So many values of each metric go out at once, as many as the curve of a run holds."""
_MOST_CURVES = 256
"""So many metrics of a process have curves. Others go out with the progress alone, such as those of a name per step."""

_last_progress: float | None = None
_training: ContextVar[str | None] = ContextVar("training", default=None)
"""The name of the training that reports."""
_held_back: dict[tuple[str | None, str], tuple[int, Any]] = {}
"""Metrics since the last progress event, by training and name, each with its step and value."""
_values_reported: dict[tuple[str | None, str], int] = {}
"""Number of values that the script has reported, by training and name."""
# Events come from several threads; a line is never torn.
_printing = threading.Lock()


def _renew_lock_after_fork() -> None:
    global _printing
    _printing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_after_fork)


@contextlib.contextmanager
def of_training(label: str | None) -> Iterator[None]:
    """Give the events in this block to the training of this name. None where the script has one training."""
    before = _training.set(label)
    try:
        yield
    finally:
        _training.reset(before)


def emit(event: str, **fields: Any) -> None:
    """Print one job event, if job events are switched on.

    Args:
        event: The kind of event, for example `saved`.
        **fields: JSON values. Numbers that JSON lacks (NaN, infinities) become null.
    """
    written = line(event, **fields)
    if written is not None:
        with _printing:
            sys.stdout.write(written)
            sys.stdout.flush()


def line(event: str, **fields: Any) -> str | None:
    """Give one job event as its line, with the newline. None where job events are switched off.

    Args:
        event: The kind of event, for example `saved`.
        **fields: JSON values.
    """
    if os.environ.get("SPOTKEEP_EVENTS") != "stdout":
        return None
    launch, training = os.environ.get(LAUNCH_VARIABLE), _training.get()
    if training is not None:
        fields["training"] = training
    return event_line(event, time_seconds=time.time(), fields=fields, launch=launch)


def event_line(event: str, *, time_seconds: float, fields: dict[str, Any], launch: str | None = None) -> str:
    """Format one job event as its line, with the newline.

    Args:
        event: The kind of event.
        time_seconds: Its time, in seconds since the epoch.
        fields: JSON values, or numbers that `float` takes.
        launch: The id of the job's launch. None for a job without one.
    """
    own = {} if launch is None else {"launch": launch}
    document = {"event": event, "time": round(time_seconds, 3), **fields, **own}
    return EVENT_PREFIX + json.dumps(_plain(document), separators=(",", ":"), allow_nan=False) + "\n"


def report_progress(*, step: int, total_steps: int | None = None, **metrics: float) -> None:
    """Report the progress of the training. `Checkpointer.steps` does this by itself.

    At most one event goes out in `SPOTKEEP_PROGRESS_SECONDS` seconds (10 by default, 0 for each step), and one for the
    last step. Between two of them `metrics` events carry the values that `belongs_to_curve` names, at once. Of the
    other values the newest of each metric goes out with the second progress event.

    Args:
        step: Completed steps.
        total_steps: Steps of the whole training. None for an unknown number.
        **metrics: Numbers by their names, for example `loss=0.3`.
    """
    global _last_progress
    now = time.monotonic()
    of_curve = {name: value for name, value in metrics.items() if _belongs_to_curve(name)}
    finished = total_steps is not None and step >= total_steps
    if not finished and _last_progress is not None and now - _last_progress < progress_seconds():
        for name, value in metrics.items():
            if name in of_curve:
                _held_back.pop((_training.get(), name), None)
            else:
                _held_back[_training.get(), name] = (step, value)
        if of_curve:
            emit("metrics", step=step, metrics=of_curve)
        return
    _last_progress = now
    _report_held_back(except_for=metrics)
    emit("progress", step=step, total_steps=total_steps, metrics=metrics)


def belongs_to_curve(values_before: int) -> bool:
    """Say if a metric's next value goes out at once.

    The first 60 do. Of the values up to the 120th every second one does, up to the 240th every fourth, and so on. So a
    short training has all of its curve, and a million values are under 500 events.

    Args:
        values_before: Number of its values before this one.
    """
    return values_before % (1 << (values_before // _FIRST_VALUES).bit_length()) == 0


def _belongs_to_curve(name: str) -> bool:
    curve = _training.get(), name
    if curve not in _values_reported and len(_values_reported) >= _MOST_CURVES:
        return False
    before = _values_reported.get(curve, 0)
    _values_reported[curve] = before + 1
    return belongs_to_curve(before)


def report_metrics(*, step: int, **metrics: float) -> None:
    """Report the metrics that have not gone out yet, at the end of a process. `Checkpointer` does this by itself.

    Args:
        step: Number of completed steps.
        **metrics: The values since the last step, by name.
    """
    _report_held_back(except_for=metrics)
    if metrics:
        emit("metrics", step=step, metrics=metrics)


class TrainingEvents:
    """The job events of one training.

    Args:
        label: Name of the training in its events. None where the script has one training.
        silent: True on a rank that reports nothing.
    """

    def __init__(self, label: str | None = None, *, silent: bool = False) -> None:
        self._label = label
        self._silent = silent

    def emit(self, event: str, **fields: Any) -> None:
        """Print one event with its fields, JSON values."""
        if not self._silent:
            with of_training(self._label):
                emit(event, **fields)

    def report_progress(self, *, step: int, total_steps: int | None, metrics: Mapping[str, Any]) -> None:
        """Report the step and the metrics of it, as `report_progress` of this module does."""
        if self._silent:
            return
        if self._label is None:
            report_progress(step=step, total_steps=total_steps, **metrics)
        else:
            with of_training(self._label):
                report_progress(step=step, total_steps=total_steps, **metrics)

    def report_metrics(self, *, step: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics at the end of a process, as `report_metrics` of this module does."""
        if not self._silent:
            with of_training(self._label):
                report_metrics(step=step, **metrics)


def _report_held_back(*, except_for: Collection[str]) -> None:
    """Report the values that were held back, each with the step it was measured at, but for those of these names."""
    earlier: dict[int, dict[str, Any]] = {}
    own = [key for key in _held_back if key[0] == _training.get()]
    for key in own:
        measured_at, value = _held_back.pop(key)
        if key[1] not in except_for:
            earlier.setdefault(measured_at, {})[key[1]] = value
    for measured_at in sorted(earlier):
        emit("metrics", step=measured_at, metrics=earlier[measured_at])


def report_saved(*, step: int, seconds: float | None = None, size_bytes: int | None = None) -> None:
    """Report that a script with checkpoints of its own has saved one.

    Args:
        step: Completed steps of the checkpoint.
        seconds: Duration of the save. None for an unknown one.
        size_bytes: Size of the checkpoint. None for an unknown one.
    """
    emit("saved", step=step, seconds=seconds, bytes=size_bytes, reason="script")


def report_resumed(*, step: int, checkpoint: str | None = None) -> None:
    """Report the begin of a script with checkpoints of its own.

    Args:
        step: Completed steps of the checkpoint that was restored, 0 without one.
        checkpoint: Name of the checkpoint. None without one.
    """
    emit("resume", step=step, checkpoint=checkpoint)


def progress_seconds() -> float:
    """Give how far apart two progress events are at least, in seconds."""
    try:
        return float(os.environ.get("SPOTKEEP_PROGRESS_SECONDS", _DEFAULT_PROGRESS_SECONDS))
    except ValueError:
        return _DEFAULT_PROGRESS_SECONDS


def _plain(value: Any) -> Any:
    """Turn numbers of other libraries into JSON's, so that `loss=array.mean()` just works."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return number if math.isfinite(number) else None
