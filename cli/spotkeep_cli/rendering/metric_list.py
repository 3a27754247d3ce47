"""The metrics of a run, each with its last value, its best value, and its curve in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from spotkeep_jobs.record.record import ScriptMetrics

_HEIGHTS = "▁▂▃▄▅▆▇█"
_WIDTH = 24


def metric_list(metrics: ScriptMetrics, *, width: int) -> RenderableType:
    """Return one row a metric.

    Args:
        metrics: At least one.
        width: The room, in characters.
    """
    columns = metric_columns(metrics)
    return Padding(table_that_fits(columns, width=width - 2), (0, 0, 0, 2), expand=False)


def metric_columns(metrics: ScriptMetrics) -> list[Column]:
    """Return the table of metrics. Its last column has the curves in one line each."""
    each = metrics.metrics.values()
    return [
        Column(heading="METRIC", cells=[Text(printable_line(name)) for name in metrics.metrics]),
        Column(heading="LAST", cells=[at_step(metric.last, metric.last_step) for metric in each]),
        Column(
            heading="BEST",
            cells=["" if metric.best is None else at_step(metric.best, metric.best_step) for metric in each],
        ),
        Column(heading="GOAL", cells=[metric.goal or "" for metric in each], importance=0),
        Column(
            heading="CURVE", cells=[sparkline([value for _, value in metric.points]) for metric in each], importance=1
        ),
    ]


def sparkline(values: Sequence[float]) -> str:
    """Draw values as blocks of eight heights, from the least to the greatest.

    Args:
        values: In order. Of more than there is room for, evenly many are left out.
    """
    shown = [values[index * len(values) // _WIDTH] for index in range(_WIDTH)] if len(values) > _WIDTH else values
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    # Halved first: the distance of two numbers may be no number.
    distance = high / 2 - low / 2
    if not distance:
        return _HEIGHTS[0] * len(shown)
    most = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[round((value / 2 - low / 2) / distance * most)] for value in shown)


def at_step(value: float, step: int | None) -> str:
    """Return a value with its step, where that is known."""
    return f"{value:.6g}" if step is None else f"{value:.6g} at step {step:,}"
