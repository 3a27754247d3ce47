"""What a notification says of the metrics of a run: of each the last value and the best, with their steps."""

from __future__ import annotations

from typing import Any, Final

from spotkeep_jobs.notifications.texts.wording import fact_line
from spotkeep_jobs.record.record import Metric, ScriptMetrics

_MOST_LINES: Final = 10


def measured(metrics: ScriptMetrics | None) -> list[str]:
    """Return a paragraph of the metrics, those with a goal first; empty where there are none."""
    if metrics is None or not metrics.metrics:
        return []
    in_order = sorted(metrics.metrics.items(), key=lambda named: named[1].goal is None)
    lines = ["", "Metrics"]
    for name, metric in in_order[:_MOST_LINES]:
        lines += fact_line(f"{name} ", spoken_metric(metric))
    if len(in_order) > _MOST_LINES:
        lines.append(f"  and {len(in_order) - _MOST_LINES} more: spotkeep describe")
    return lines


def spoken_metric(metric: Metric) -> str:
    """Return a metric's last and best value, with their steps: `0.231 at step 9,000; best 0.219 at step 7,500`."""
    best = "" if metric.best is None else f"; best {_at(metric.best, metric.best_step)}"
    return f"{_at(metric.last, metric.last_step)}{best}"


def figures_of(metrics: ScriptMetrics) -> dict[str, Any]:
    """Return last and best value of each metric for programs, without the curves."""
    kept = {"goal", "last_step", "last", "best_step", "best"}
    return {name: metric.model_dump(mode="json", include=kept) for name, metric in metrics.metrics.items()}


def _at(value: float, step: int | None) -> str:
    return f"{value:.6g}" if step is None else f"{value:.6g} at step {step:,}"
