"""What a run's script measures, step by step: last value, best value and a small curve of each metric. Pure.

Values are kept by their step, so one that is reported twice, late or out of order counts once. A process that resumes
trains the steps after its checkpoint again: what was measured in them before is dropped when it says so, or at the
first step it reports where it does not.

A curve is thinned as it grows. Steps are put into spans of equal width, a power of two; of each span the last value
stays, and, where a metric has a goal, the best. Which values stay does not depend on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.record.record import Goal, Metric, ScriptMetrics

MOST_METRICS: Final = 40
"""So many metrics of a run are kept: as many as SageMaker takes definitions."""
MOST_POINTS: Final = 60
"""So many values of a curve are kept."""
_GOAL_OF_MODE: Final[Mapping[str, Goal]] = {"min": "minimize", "max": "maximize"}

Point = tuple[int, float]
"""A step and the value at it."""


@dataclass
class _Curve:
    """The values of one metric. A value is added in constant time: a log may hold millions.

    Attributes:
        goal: Which value is the best; None where that is not known.
        span: How many steps share a place in the curve.
        points: By place, the value of the last step.
        bests: By place, the best value; empty without a goal.
        stepless: The newest value that came without a step.
        stepless_best: The best of those.
    """

    goal: Goal | None = None
    span: int = 1
    points: dict[int, Point] = field(default_factory=dict)
    bests: dict[int, Point] = field(default_factory=dict)
    stepless: float | None = None
    stepless_best: float | None = None

    def aims_at(self, goal: Goal) -> None:
        """Set a goal that was not known; of earlier values those that stayed are compared."""
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
        while len(self.points) > MOST_POINTS:
            self._widen()

    def forget_after(self, step: int) -> None:
        """Drop the values of later steps: they are trained again."""
        self.points = {place: point for place, point in self.points.items() if point[0] <= step}
        self.bests = {place: point for place, point in self.bests.items() if point[0] <= step}

    def metric(self) -> Metric | None:
        """Return what is kept; None where there is no value (any more)."""
        points = tuple(sorted(self.points.values()))
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
        """Return what sorts the best first; of equal values the earlier one."""
        return self._rank(point[1]), point[0]

    def _rank(self, value: float) -> float:
        return -value if self.goal == "maximize" else value


class MetricsFollower:
    """Follows what a run's script measures through some more of a log, event by event, in about the order of time."""

    def __init__(self, known: ScriptMetrics | None, *, goals: Mapping[str, Goal | None]) -> None:
        """Begin with what was known before.

        Args:
            known: It.
            goals: The metrics that the request names, with the goal of each; they have a place before any other.
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
        """Return what is known now; None where no metric was ever reported."""
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
        """Return the curve of a metric; None for one that has no place, or a name that is not one line of text."""
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
        """Note what the script keeps its best checkpoint by; what the request says of a metric counts more."""
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
    return _Curve(
        goal=metric.goal,
        span=metric.span,
        points={point[0] // metric.span: point for point in metric.points},
        bests={point[0] // metric.span: point for point in metric.bests},
        stepless=metric.last if metric.last_step is None else None,
        stepless_best=metric.stepless_best,
    )
