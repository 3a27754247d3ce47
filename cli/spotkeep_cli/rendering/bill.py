"""What a run cost and saved (I8): against a clean on-demand run of the same work, work done twice on the bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_jobs.record import Cost, Run


def bill(run: Run) -> RenderableType:
    """A run's bill, a line each; says so where a figure is not known."""
    if run.cost is None:
        return Text("not known before the attempt ends" if not run.state.ended else "nothing was billed", style="dim")
    cost = run.cost
    rows = [
        ("billed", _with_dollars(cost.billed_seconds, cost.billed_usd), ""),
        (
            "clean on-demand run",
            _with_dollars(cost.clean_on_demand_seconds, cost.clean_on_demand_usd),
            "at most" if cost.redone_seconds is None else "",
        ),
        ("saved", _with_dollars(cost.saved_seconds, cost.saved_usd), quantities.percent(cost.saved_percent)),
        ("done twice", _redone(cost), ""),
        ("waited for capacity", quantities.duration(cost.waited_seconds), "not billed"),
    ]
    if cost.aws_saved_percent is not None:
        rows.append(
            ("savings as AWS counts", quantities.percent(cost.aws_saved_percent), "work done twice taken for useful")
        )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for row in rows:
        table.add_row(*row)
    if cost.usd_per_hour is None:
        table.add_row("", Text(f"the price of {run.instance_type} is not known", style="dim"), "")
    return table


def _with_dollars(seconds: float, usd: float | None) -> str:
    time = quantities.duration(seconds)
    return time if usd is None else f"{time}  {quantities.dollars(usd)}"


def _redone(cost: Cost) -> str:
    if cost.redone_steps is None:
        return "not known: the job did not report its steps"
    if cost.redone_steps == 0:
        return "nothing"
    seconds = f", {quantities.duration(cost.redone_seconds)}" if cost.redone_seconds is not None else ""
    return f"{quantities.counted(cost.redone_steps, 'step')}{seconds}"
