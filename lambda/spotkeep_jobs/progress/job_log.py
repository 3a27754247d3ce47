"""What decisions need of one job's log, added up line by line: memory does not grow with the log. Pure."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind, LineRefusal, read_message
from spotkeep_jobs.progress.progress import ProgressFollower
from spotkeep_jobs.progress.script_metrics import MetricsFollower
from spotkeep_jobs.progress.steps_trained import StepCount, StepsTrained
from spotkeep_jobs.record.record import Attempt, Goal, Progress, ScriptMetrics

_NO_GOALS: Final[Mapping[str, Goal | None]] = MappingProxyType({})
MOST_RESUMES: Final = 200
"""So many of an attempt's resumes are recorded one by one, the last of them: ten transactions of the timeline."""
_OUT_OF_ORDER: Final = 256
"""So many events are held back, to put those in order that several threads and processes printed at once."""


class Extent(StrEnum):
    """How much of a log was read."""

    WHOLE = "whole"
    CUT = "cut"
    """It is longer than what one reading may take."""
    UNREAD = "unread"
    """CloudWatch Logs did not answer."""
    PASSED_OVER = "passed-over"
    """Functions ended while they read it, so this one did not."""


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The script took up its work.

    Attributes:
        at: When, in epoch seconds, by the job's clock.
        step: The completed steps it went on from.
        training: Which of its trainings, where it has several.
    """

    at: float
    step: int
    training: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobLog:
    """What decisions need of a job's log.

    Attributes:
        steps: How far the job came, and what it trained twice.
        progress: How far the run is by its jobs' word; None where nothing was read of it.
        metrics: What its script measures; None where nothing was read of it.
        resumes: Where the script took up its work, in order of time, the last `MOST_RESUMES`.
        resumes_left_out: How many there were before those.
        paused_at_step: Where its script paused, if it did.
        exited: Whether the runner's last line is in it.
        end_is_doubtful: Whether its script counts as done because it ended with 0 on one notice after the other, and
            did not say that it is done.
        refused: Lines that broke a bound, by what they broke.
        extent: How much of the log this is.
    """

    steps: StepsTrained = field(default_factory=StepsTrained)
    progress: Progress | None = None
    metrics: ScriptMetrics | None = None
    resumes: tuple[Resumed, ...] = ()
    resumes_left_out: int = 0
    paused_at_step: int | None = None
    exited: bool = False
    end_is_doubtful: bool = False
    refused: Mapping[LineRefusal, int] = field(default_factory=dict)
    extent: Extent = Extent.WHOLE

    @property
    def complete(self) -> bool:
        """Whether it is all of the log."""
        return self.extent is Extent.WHOLE


class LogAccount:
    """Adds up a log. Its messages come in about the order of time."""

    def __init__(
        self,
        *,
        launch: str | None,
        earlier: Sequence[Attempt] = (),
        progress: Progress | None = None,
        follows_progress: bool = True,
        metrics: ScriptMetrics | None = None,
        goals: Mapping[str, Goal | None] = _NO_GOALS,
        read_before: float | None = None,
    ) -> None:
        """Begin an account.

        Args:
            launch: The id that a line has to carry; None to take all lines.
            earlier: The run's earlier attempts.
            progress: What was known before of how far the run is.
            follows_progress: Whether that is asked for.
            metrics: What was known before of what its script measures.
            goals: The metrics that its request names, with the goal of each.
            read_before: Epoch seconds, by the job's clock: events up to then are in those metrics. None: none are.
        """
        self._launch = launch
        self._steps = StepCount(earlier=earlier)
        self._progress = ProgressFollower(progress)
        self._follows = follows_progress
        self._known = metrics
        self._metrics = MetricsFollower(metrics, goals=goals)
        self._read_before = -math.inf if read_before is None else read_before
        self._resumes: deque[Resumed] = deque(maxlen=MOST_RESUMES)
        self._all_resumes = 0
        self._paused_at_step: int | None = None
        self._exited = False
        self._end_is_doubtful = False
        self._refused: Counter[LineRefusal] = Counter()
        self._waiting: list[tuple[float, int, JobEvent]] = []
        self._taken = 0

    def take(self, message: str) -> None:
        """Add a message of the log, which may hold several lines."""
        for event in read_message(message, launch=self._launch):
            if isinstance(event, LineRefusal):
                self._refused[event] += 1
            else:
                self._taken += 1
                heapq.heappush(self._waiting, (event.at, self._taken, event))
                if len(self._waiting) > _OUT_OF_ORDER:
                    self._add(heapq.heappop(self._waiting)[2])

    def log(self, extent: Extent = Extent.WHOLE) -> JobLog:
        """Return what was taken, added up.

        Args:
            extent: How much of the log that was.
        """
        while self._waiting:
            self._add(heapq.heappop(self._waiting)[2])
        return JobLog(
            steps=self._steps.trained(),
            progress=self._progress.progress,
            metrics=self._known if self._says_less(extent) else self._metrics.metrics(),
            resumes=tuple(self._resumes),
            resumes_left_out=self._all_resumes - len(self._resumes),
            paused_at_step=self._paused_at_step,
            exited=self._exited,
            end_is_doubtful=self._end_is_doubtful,
            refused=dict(self._refused),
            extent=extent,
        )

    def _says_less(self, extent: Extent) -> bool:
        """Say whether the beginning of a log is read, of which the end was read while the job lived."""
        return extent is Extent.CUT and self._known is not None and self._read_before == -math.inf

    def _add(self, event: JobEvent) -> None:
        self._steps.add(event)
        if self._follows:
            self._progress.add(event)
        if event.at > self._read_before:
            self._metrics.add(event)
        if event.kind is JobEventKind.RESUME and event.step is not None:
            self._resumes.append(Resumed(at=event.at, step=event.step, training=event.fields.get("training")))
            self._all_resumes += 1
        elif event.kind is JobEventKind.START:
            self._paused_at_step, self._exited, self._end_is_doubtful = None, False, False
        elif event.kind is JobEventKind.PAUSED:
            self._paused_at_step = event.step
        elif event.kind is JobEventKind.EXIT_ON_NOTICE:
            self._end_is_doubtful = event.fields.get("code") == 0
        elif event.kind is JobEventKind.EXIT:
            self._exited = True
