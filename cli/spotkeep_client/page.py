"""A run as Jupyter shows it: a small table. All of it is text of others, and is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.metric_list import at_step, sparkline
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_cli.rendering.run_list import reason_text, where

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Run, ScriptMetrics


def run_page(run: Run, *, metrics: ScriptMetrics | None) -> str:
    """Return HTML without scripts and without styles of its own.

    Args:
        run: The run item.
        metrics: What its script measures.
    """
    reason = reason_text(run.end_reason)
    rows = [
        ("state", f"{run.state.value.lower()}{f', {reason}' if reason else ''}"),
        ("runs on", where(run)),
        ("attempt", str(run.attempt)),
        ("interruptions", str(run.interruptions)),
        ("created", f"{quantities.moment(run.created_at)} UTC"),
    ]
    if run.cost is not None:
        rows.append(
            ("cost", f"{quantities.dollars(run.cost.billed_usd)}, {quantities.percent(run.cost.saved_percent)} saved")
        )
    if run.failure_reason:
        rows.append(("said", run.failure_reason))
    if run.output_uri:
        rows.append(("model", run.output_uri))
    rows.append(("checkpoints", run.checkpoint_uri))
    for name, metric in () if metrics is None else metrics.metrics.items():
        best = "" if metric.best is None else f", best {at_step(metric.best, metric.best_step)}"
        curve = sparkline([value for _, value in metric.points])
        rows.append((name, f"{at_step(metric.last, metric.last_step)}{best} {curve}"))
    cells = "".join(f"<tr><th>{_shown(name)}</th><td>{_shown(text)}</td></tr>" for name, text in rows)
    return f"<table><caption>{_shown(run.run)}</caption>{cells}</table>"


def _shown(text: str) -> str:
    return escape(printable_line(text, longest=1_000))
