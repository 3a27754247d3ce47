"""Searches the script's lines for its metrics in a process of its own. The training does not wait for it.

The patterns are the user's, so one may take exponential time on a line. A search ends after a tenth of a second of
processor time. A pattern that takes longer three times is not searched for any more.

It reads lines on standard input and prints `metrics` events with the newest values on standard output. It prints at
most one event for a metric in `SPOTKEEP_PROGRESS_SECONDS`, and between them the last values of the steps that
`belongs_to_curve` names.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable

from spotkeep.events import EVENT_PREFIX, LAUNCH_VARIABLE, belongs_to_curve, event_line, progress_seconds
from spotkeep_fleet.training_spec import SearchedMetric

MOST_LINE_BYTES = 4096
"""The number of a line's first bytes that are searched."""
_SEARCH_SECONDS = 0.1
_MOST_LATE_SEARCHES = 3
_MOST_STEPS = 2**53
_STEP_EVENTS = ("resume", "progress", "saved", "finish")
_STANDARD_INPUT = 0


class SearchTookTooLongError(Exception):
    """A pattern was not found, nor missed, within its time."""


PatternSearch = Callable[["re.Pattern[str]", str], "re.Match[str] | None"]


@dataclass(frozen=True)
class _CompiledMetric:
    """A metric with its compiled patterns."""

    name: str
    pattern: re.Pattern[str]
    step: re.Pattern[str] | None = None


@dataclass(frozen=True)
class _Found:
    """A value, at a step if one is known, and when."""

    value: float
    step: int | None
    at: float


class MetricSearch:
    """Finds values in lines, and gives them at a limited rate.

    Args:
        metrics: The metrics to search for, by name, without those whose pattern this Python cannot read.
        seconds_between: The least seconds between the newest values of one metric.
        search: Searches a line, within its time.
        complain: Called with a sentence about a pattern that is given up.
    """

    def __init__(
        self,
        metrics: Mapping[str, SearchedMetric],
        *,
        seconds_between: float,
        search: PatternSearch,
        complain: Callable[[str], None],
    ) -> None:
        compiled = (_compiled(name, metric, complain=complain) for name, metric in metrics.items())
        self._metrics = [metric for metric in compiled if metric is not None]
        self._seconds_between = seconds_between
        self._search = search
        self._complain = complain
        self._late = {metric.name: 0 for metric in self._metrics}
        self._steps: dict[str, int] = {}
        self._reported_step: int | None = None
        self._waiting: dict[str, _Found] = {}
        self._given: dict[str, float] = {}
        self._of_curves: list[tuple[str, _Found]] = []
        self._steps_found = dict.fromkeys(self._late, 0)

    def take(self, line: str, *, now: float) -> None:
        """Search a line.

        Args:
            line: Without its end.
            now: Seconds since the epoch.
        """
        if line.startswith(EVENT_PREFIX):
            self._follow(line)
            return
        for metric in list(self._metrics):
            if not self._search_for(metric, line, now=now):
                self._took_too_long(metric)

    def due(self, *, now: float, all_of_them: bool = False) -> Iterator[tuple[float, dict[str, Any]]]:
        """Take out the values to print. Each has the time at which it was found, and the fields of its event.

        Args:
            now: Seconds since the epoch.
            all_of_them: True to take also the values that should wait.
        """
        of_curves, self._of_curves = self._of_curves, []
        for name, found in of_curves:
            yield found.at, _fields(name, found)
        for name in list(self._waiting):
            if all_of_them or self._waits_seconds(name, now=now) <= 0:
                found = self._waiting.pop(name)
                self._given[name] = now
                yield found.at, _fields(name, found)

    def waits_seconds(self, *, now: float) -> float | None:
        """Give in how many seconds the next value is due. None where none waits.

        Args:
            now: Seconds since the epoch.
        """
        return min((max(0.0, self._waits_seconds(name, now=now)) for name in self._waiting), default=None)

    def _waits_seconds(self, name: str, *, now: float) -> float:
        return self._given.get(name, -math.inf) + self._seconds_between - now

    def _search_for(self, metric: _CompiledMetric, line: str, *, now: float) -> bool:
        """Search a line for a metric. Gives False if that took longer than it may."""
        try:
            step = None if metric.step is None else _number_in(self._search(metric.step, line))
            value = _number_in(self._search(metric.pattern, line))
        except SearchTookTooLongError:
            return False
        if step is not None and 0 <= step < _MOST_STEPS:
            self._steps[metric.name] = int(step)
        if value is not None:
            step_now = self._reported_step if metric.step is None else self._steps.get(metric.name)
            self._take_value(metric.name, _Found(value=value, step=step_now, at=now))
        return True

    def _take_value(self, name: str, found: _Found) -> None:
        """Let a value wait. The one that waited was the last of its step, if this one is of another step."""
        before = self._waiting.get(name)
        self._waiting[name] = found
        if before is None or before.step in (None, found.step):
            return
        counted = self._steps_found[name]
        self._steps_found[name] = counted + 1
        if belongs_to_curve(counted):
            self._of_curves.append((name, before))

    def _took_too_long(self, metric: _CompiledMetric) -> None:
        self._late[metric.name] += 1
        if self._late[metric.name] == _MOST_LATE_SEARCHES:
            self._metrics.remove(metric)
            self._complain(
                f"the metric {metric.name} is not searched for any more: its pattern took longer than "
                f"{_SEARCH_SECONDS} s on {_MOST_LATE_SEARCHES} lines. Let it begin with the words before the number, "
                "and repeat no group that repeats"
            )

    def _follow(self, line: str) -> None:
        try:
            event = json.loads(line[len(EVENT_PREFIX) :])
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict) or event.get("event") not in _STEP_EVENTS:
            return
        step = event.get("step")
        if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < _MOST_STEPS:
            self._reported_step = step


def _fields(name: str, found: _Found) -> dict[str, Any]:
    fields: dict[str, Any] = {} if found.step is None else {"step": found.step}
    return {**fields, "metrics": {name: found.value}}


def written_metrics(metrics: Mapping[str, SearchedMetric]) -> str:
    """Write metrics as the argument of the search's command line."""
    return json.dumps({name: [metric.pattern, metric.step] for name, metric in metrics.items()})


def search_standard_input(written: str) -> int:
    """Search standard input to its end. Gives the exit code.

    Args:
        written: The metrics, as `written_metrics` writes them.
    """
    launch = os.environ.get(LAUNCH_VARIABLE)
    search = MetricSearch(
        {name: SearchedMetric(pattern, step) for name, (pattern, step) in json.loads(written).items()},
        seconds_between=progress_seconds(),
        search=_search_within_its_time(),
        complain=lambda problem: print(f"spotkeep: {problem}", file=sys.stderr, flush=True),
    )

    def give(*, all_of_them: bool = False) -> None:
        for at, fields in search.due(now=time.time(), all_of_them=all_of_them):
            sys.stdout.write(event_line("metrics", time_seconds=at, fields=fields, launch=launch))
            sys.stdout.flush()

    rest = b""
    while True:
        ready, _, _ = select.select([_STANDARD_INPUT], [], [], search.waits_seconds(now=time.time()))
        if ready:
            piece = os.read(_STANDARD_INPUT, 1 << 16)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                search.take(line.decode("utf-8", "replace"), now=time.time())
                give()
        give()
    give(all_of_them=True)
    return 0


def _compiled(name: str, metric: SearchedMetric, *, complain: Callable[[str], None]) -> _CompiledMetric | None:
    try:
        step = None if metric.step is None else re.compile(metric.step)
        return _CompiledMetric(name=name, pattern=re.compile(metric.pattern), step=step)
    except (re.error, RecursionError, OverflowError) as error:
        complain(f"the metric {name} is not searched for: this Python cannot read its pattern: {error}")
        return None


def _search_within_its_time() -> PatternSearch:
    """Give the function that searches, for this process's main thread. Python's engine lets a signal end a search."""

    def end(signum: int, frame: object) -> None:  # noqa: ARG001 - the signature is Python's
        raise SearchTookTooLongError

    signal.signal(signal.SIGVTALRM, end)

    def search(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
        signal.setitimer(signal.ITIMER_VIRTUAL, _SEARCH_SECONDS)
        try:
            return pattern.search(line)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return search


def _number_in(match: re.Match[str] | None) -> float | None:
    if match is None or match[1] is None:
        return None
    try:
        number = float(match[1])
    except ValueError:
        return None
    return number if math.isfinite(number) else None
