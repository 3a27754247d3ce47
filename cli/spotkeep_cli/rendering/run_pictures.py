"""The metrics of a run as pictures, a curve each through all attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_cli.rendering.metric_list import at_step
from spotkeep_cli.rendering.pictures import Curve, curves_picture
from spotkeep_jobs.record.states import TimelineKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spotkeep_cli.rendering.pictures import Picture
    from spotkeep_jobs.record.record import Metric, ScriptMetrics, TimelineEntry


def resumed_steps(timeline: Sequence[TimelineEntry]) -> list[int]:
    """Return the steps from which the jobs of a run went on."""
    return sorted({entry.step for entry in timeline if entry.kind is TimelineKind.STEP_RESUMED and entry.step})


def metric_pictures(metrics: ScriptMetrics, *, steps: Sequence[int] = ()) -> Iterator[Picture]:
    """Draw each metric that has a curve. A dashed line marks each step from which a job went on.

    Args:
        metrics: The metrics of the run.
        steps: The steps from which its jobs went on.
    """
    for number, (name, metric) in enumerate(metrics.metrics.items(), start=1):
        picture = curves_picture(
            _curves(name, metric),
            name=f"metric-{number}",
            title=name,
            description=_description(name, metric, steps=steps),
            x_label="step",
            y_label="",
            marks=[(float(step), "") for step in steps if any(at >= step for at, _ in metric.points)],
        )
        if picture is not None:
            yield picture


def _curves(name: str, metric: Metric) -> list[Curve]:
    curves = [Curve(name=f"last {metric.last:.4g}", points=metric.points, says=name)]
    if metric.best is not None and metric.best_step is not None and metric.best_step != metric.last_step:
        best = at_step(metric.best, metric.best_step)
        point = (float(metric.best_step), metric.best)
        curves.append(Curve(name=f"best {metric.best:.4g}", points=[point], says=f"the best value, {best}"))
    return curves


def _description(name: str, metric: Metric, *, steps: Sequence[int]) -> str:
    first, first_value = metric.points[0] if metric.points else (None, metric.last)
    text = f"{name} goes from {at_step(first_value, first)} to {at_step(metric.last, metric.last_step)}."
    if metric.best is not None:
        text += f" Its best value is {at_step(metric.best, metric.best_step)}."
    if steps:
        text += f" Jobs went on from the steps {', '.join(f'{step:,}' for step in steps)}."
    return text
