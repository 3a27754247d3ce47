"""The facts that decisions need of one job's log, added up line by line, in memory that does not grow. Pure.

Of each metric of the script they have the last value, the best value and a small curve. Values are kept by their step,
so a value that is reported twice, late or out of order counts once. A process that resumes trains the steps after its
checkpoint again. Values measured in them before are dropped when it says so, or at the first step that it reports
there.

A curve of up to 60 values is whole, and a longer one is thinned as it grows. Steps are put into spans of equal width, a
power of two. Of each span the last value stays, and the best where a metric has a goal. The first, the least and the
greatest value stay, too. The order in which values came does not matter for this.
"""

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
from spotkeep_jobs.progress.progress import ProgressFollower, StepCount, StepsTrained
from spotkeep_jobs.record.record import Attempt, Goal, Metric, Progress, ScriptMetrics

MOST_METRICS: Final = 40
"""The number of metrics of a run that are kept. SageMaker takes as many definitions."""
MOST_POINTS: Final = 60
"""So many values of a curve are kept."""
MOST_KEPT: Final = MOST_POINTS + 3
"""With the first, the least and the greatest value, where they are others."""
_GOAL_OF_MODE: Final[Mapping[str, Goal]] = {"min": "minimize", "max": "maximize"}

Point = tuple[int, float]
"""A step and the value at it."""


@dataclass
class _Curve:
    """The values of one metric. A value is added in constant time, as a log may hold millions of them.

    Attributes:
        goal: The best value is the least or the greatest, or None where that is not known.
        span: The number of steps that share a place in the curve.
        first: The value of the first step.
        least: The least value, of the first step that has it.
        greatest: The greatest value, of the first step that has it.
        points: By place, the value of the last step.
        bests: By place, the best value, empty without a goal.
        stepless: The newest value that came without a step.
        stepless_best: The best of those.
    """

    goal: Goal | None = None
    span: int = 1
    first: Point | None = None
    least: Point | None = None
    greatest: Point | None = None
    points: dict[int, Point] = field(default_factory=dict)
    bests: dict[int, Point] = field(default_factory=dict)
    stepless: float | None = None
    stepless_best: float | None = None

    def aims_at(self, goal: Goal) -> None:
        """Set a goal that was not known. Of earlier values those that stayed are compared."""
        if self.goal is None:
            self.goal = goal
            self.bests = dict(self.points)
            self.stepless_best = self.stepless

    def take(self, step: int | None, value: float) -> None:
        """Add a value."""
        if step is None:
            self.stepless = value
            if self.goal is not None and (
                self.stepless_best is None or self._rank(value) < self._rank(self.stepless_best)
            ):
                self.stepless_best = value
            return
        self._place((step, value), (step, value) if self.goal is not None else None)
        self._mark((step, value))
        while len(self.points) > MOST_POINTS:
            self._widen()

    def forget_after(self, step: int) -> None:
        """Drop the values of later steps, which are trained again."""
        kept = [point for point in self._kept() if point[0] <= step]
        self.points = {place: point for place, point in self.points.items() if point[0] <= step}
        self._mark_anew(kept)
        self.bests = {place: point for place, point in self.bests.items() if point[0] <= step}

    def metric(self) -> Metric | None:
        """Return the kept values, or None where there is no value (any more)."""
        points = tuple(self._kept())
        if points:
            last_step, last = points[-1]
        elif self.stepless is not None:
            last_step, last = None, self.stepless
        else:
            return None
        best_step, best = min(self.bests.values(), key=self._order, default=(None, self.stepless_best))
        return Metric(
            goal=self.goal,
            last_step=last_step,
            last=last,
            best_step=best_step,
            best=best,
            span=self.span,
            points=points,
            bests=tuple(sorted(self.bests.values())),
            stepless_best=self.stepless_best,
        )

    def _kept(self) -> list[Point]:
        """Return all points of the curve, in order."""
        marked = {point for point in (self.first, self.least, self.greatest) if point is not None}
        return sorted(marked.union(self.points.values()))

    def _mark(self, point: Point) -> None:
        """Compare a value with the first, the least and the greatest one."""
        step, value = point
        if any(each is not None and each[0] == step and each[1] != value for each in (self.least, self.greatest)):
            # Measured anew: what was measured at this step before is gone.
            self._mark_anew([each for each in self._kept() if each[0] != step])
        if self.first is None or step <= self.first[0]:
            self.first = point
        if self.least is None or (value, step) < (self.least[1], self.least[0]):
            self.least = point
        if self.greatest is None or (-value, step) < (-self.greatest[1], self.greatest[0]):
            self.greatest = point

    def _mark_anew(self, points: Sequence[Point]) -> None:
        """Find the first, the least and the greatest of points in order."""
        self.first = points[0] if points else None
        self.least = min(points, key=lambda point: (point[1], point[0]), default=None)
        self.greatest = min(points, key=lambda point: (-point[1], point[0]), default=None)

    def _place(self, point: Point | None, best: Point | None) -> None:
        if point is not None:
            place = point[0] // self.span
            if place not in self.points or point[0] >= self.points[place][0]:
                self.points[place] = point
        if best is not None:
            place = best[0] // self.span
            other = self.bests.get(place)
            if other is None or other[0] == best[0] or self._order(best) < self._order(other):
                self.bests[place] = best

    def _widen(self) -> None:
        """Let twice as many steps share a place."""
        points, bests = self.points.values(), self.bests.values()
        self.span, self.points, self.bests = 2 * self.span, {}, {}
        for point in points:
            self._place(point, None)
        for best in bests:
            self._place(None, best)

    def _order(self, point: Point) -> tuple[float, int]:
        """Return a key that sorts the best first. Of equal values the earlier one is first."""
        return self._rank(point[1]), point[0]

    def _rank(self, value: float) -> float:
        return -value if self.goal == "maximize" else value


class MetricsFollower:
    """Follows the metrics of a run's script through more of a log, event by event, in about the order of time."""

    def __init__(self, known: ScriptMetrics | None, *, goals: Mapping[str, Goal | None]) -> None:
        """Begin with the metrics that were known before.

        Args:
            known: These metrics.
            goals: The metrics that the request names, with the goal of each. They have a place before any other.
        """
        self._known = known
        self._goals: dict[str, Goal | None] = dict(goals)
        self._left_out = known is not None and known.left_out
        self._resumes = known is not None and known.resumes
        self._curves = {} if known is None else {name: _curve_of(metric) for name, metric in known.metrics.items()}
        self._places_left = MOST_METRICS - len(self._goals.keys() | self._curves.keys())
        for name, goal in goals.items():
            if goal is not None and name in self._curves:
                self._curves[name].aims_at(goal)

    def add(self, event: JobEvent) -> None:
        """Take the next event."""
        match event.kind:
            case JobEventKind.START:
                self._resumes = True
            case JobEventKind.RESUME if event.step is not None:
                if "training" in event.fields:
                    # What the others measured has the same steps. This one measures its own anew, and that counts.
                    self._resumes = False
                else:
                    self._forget_after(event.step)
                self._take_goal(event)
            case JobEventKind.PROGRESS | JobEventKind.METRICS:
                self._take(event)
            case _:
                pass

    def metrics(self) -> ScriptMetrics | None:
        """Return the metrics that are known now. None where no metric was ever reported."""
        kept = {name: metric for name, curve in self._curves.items() if (metric := curve.metric()) is not None}
        if not kept and self._known is None:
            return None
        return ScriptMetrics(metrics=kept, left_out=self._left_out, resumes=self._resumes)

    def _take(self, event: JobEvent) -> None:
        values: Mapping[str, float] = event.fields.get("metrics", {})
        if self._resumes and event.step is not None:
            # It has not said from where it goes on: from before the first step that it reports.
            self._forget_after(event.step - 1)
        for name, value in values.items():
            curve = self._curve(name)
            if curve is not None:
                curve.take(event.step, float(value))

    def _curve(self, name: str) -> _Curve | None:
        """Return the curve of a metric. None for one that has no place, or a name that is not one line of text."""
        if name in self._curves:
            return self._curves[name]
        if not name.isprintable() or not name.strip():
            return None
        if name not in self._goals:
            if self._places_left <= 0:
                self._left_out = True
                return None
            self._places_left -= 1
        self._curves[name] = curve = _Curve(goal=self._goals.get(name))
        return curve

    def _take_goal(self, event: JobEvent) -> None:
        """Note the metric that the script keeps its best checkpoint by. The goal in the request has precedence."""
        name, goal = event.fields.get("best_metric"), _GOAL_OF_MODE.get(event.fields.get("best_mode", ""))
        if name is None or goal is None or self._goals.get(name) is not None:
            return
        if name in self._curves:
            self._curves[name].aims_at(goal)
        elif (curve := self._curve(name)) is not None:
            curve.aims_at(goal)

    def _forget_after(self, step: int) -> None:
        self._resumes = False
        for curve in self._curves.values():
            curve.forget_after(step)


def _curve_of(metric: Metric) -> _Curve:
    curve = _Curve(
        goal=metric.goal,
        span=metric.span,
        points={point[0] // metric.span: point for point in metric.points},
        bests={point[0] // metric.span: point for point in metric.bests},
        stepless=metric.last if metric.last_step is None else None,
        stepless_best=metric.stepless_best,
    )
    curve._mark_anew(metric.points)
    return curve


_NO_GOALS: Final[Mapping[str, Goal | None]] = MappingProxyType({})
MOST_RESUMES: Final = 200
"""The number of an attempt's resumes that are recorded one by one, the last of them. That is ten transactions."""
MOST_HANGS: Final = 10
"""The number of times that a training stood still which one reading gives, the last of them."""
_OUT_OF_ORDER: Final = 256
"""So many events are held back, to put those in order that several threads and processes printed at once."""


class Extent(StrEnum):
    """The part of a log that was read."""

    WHOLE = "whole"
    CUT = "cut"
    """It is longer than one reading may take."""
    UNREAD = "unread"
    """CloudWatch Logs did not answer."""
    PASSED_OVER = "passed-over"
    """Functions ended while they read it, so this one did not."""


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The script took up its work.

    Attributes:
        at: The time in epoch seconds, by its clock.
        step: The completed steps it went on from.
        training: The training, where it has several.
    """

    at: float
    step: int
    training: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hang:
    """The training stood still.

    Attributes:
        at: The time at which the runner noticed it, in epoch seconds by its clock.
        silent_seconds: Seconds without a step and without output, until then.
        restarts: The number of starts after a hang before this one. None where the runner only reports it.
        at_most: The limit of that number, or None.
    """

    at: float
    silent_seconds: float
    restarts: int | None = None
    at_most: int | None = None

    @property
    def starts_again(self) -> bool:
        """True when the command is started again for it."""
        return self.restarts is not None and self.at_most is not None and self.restarts < self.at_most


@dataclass(frozen=True, kw_only=True)
class JobLog:
    """The facts from a job's log that decisions need.

    Attributes:
        steps: The steps that the job completed, and those that it trained twice.
        progress: The progress of the run as its jobs report it, or None where no log was read.
        metrics: The metrics that its script reports, or None where no log was read.
        resumes: The steps at which the script went on, in order of time, the last `MOST_RESUMES`.
        resumes_left_out: The number of resumes before those.
        hangs: The times at which the training stood still, in order of time, the last `MOST_HANGS`.
        moved_at: The time at which it last moved again, or was started. None where this part of the log has none.
        paused_at_step: The step at which its script paused, if it did.
        exited: True when the runner's last line is in it.
        end_is_doubtful: True when its script counts as done without a report that it is done, since it ended with 0 on
            one notice after the other.
        refused: Lines that broke a bound, by the bound.
        extent: The part of the log that this is.
    """

    steps: StepsTrained = field(default_factory=StepsTrained)
    progress: Progress | None = None
    metrics: ScriptMetrics | None = None
    resumes: tuple[Resumed, ...] = ()
    resumes_left_out: int = 0
    hangs: tuple[Hang, ...] = ()
    moved_at: float | None = None
    paused_at_step: int | None = None
    exited: bool = False
    end_is_doubtful: bool = False
    refused: Mapping[LineRefusal, int] = field(default_factory=dict)
    extent: Extent = Extent.WHOLE

    @property
    def complete(self) -> bool:
        """True when it is all of the log."""
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
            launch: The id that a line has to carry, or None to take all lines.
            earlier: The run's earlier attempts.
            progress: The progress of the run that was known before.
            follows_progress: True when the caller wants the progress.
            metrics: The metrics of its script that were known before.
            goals: The metrics that its request names, with the goal of each.
            read_before: Epoch seconds, by the job's clock. Events up to then are in those metrics, or none are when it
                is None.
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
        self._hangs: deque[Hang] = deque(maxlen=MOST_HANGS)
        self._moved_at: float | None = None
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
        """Return the facts of all messages that were taken.

        Args:
            extent: The part of the log that they were.
        """
        while self._waiting:
            self._add(heapq.heappop(self._waiting)[2])
        return JobLog(
            steps=self._steps.trained(),
            progress=self._progress.progress,
            metrics=self._known if self._says_less(extent) else self._metrics.metrics(),
            resumes=tuple(self._resumes),
            resumes_left_out=self._all_resumes - len(self._resumes),
            hangs=tuple(self._hangs),
            moved_at=self._moved_at,
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
        elif event.kind is JobEventKind.STUCK:
            self._hangs.append(_hang_of(event))
        elif event.kind is JobEventKind.MOVES_AGAIN:
            self._moved_at = event.at
        elif event.kind is JobEventKind.START:
            self._moved_at = event.at
            self._paused_at_step, self._exited, self._end_is_doubtful = None, False, False
        elif event.kind is JobEventKind.PAUSED:
            self._paused_at_step = event.step
        elif event.kind is JobEventKind.EXIT_ON_NOTICE:
            self._end_is_doubtful = event.fields.get("code") == 0
        elif event.kind is JobEventKind.EXIT:
            self._exited = True


def _hang_of(event: JobEvent) -> Hang:
    restarts, at_most = (_count(event.fields.get(name)) for name in ("restarts", "at_most"))
    silent_seconds = event.fields.get("seconds", 0.0)
    return Hang(at=event.at, silent_seconds=max(0.0, silent_seconds), restarts=restarts, at_most=at_most)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
