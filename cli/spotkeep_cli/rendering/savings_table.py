"""The table of `spotkeep savings`: ours beside AWS's own percentage, and what the difference means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.run_list import NARROW

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_cli.savings_report import SavingsReport


def savings_table(report: SavingsReport, *, width: int) -> RenderableType:
    """One row a run and the sum. Money where every figure has a price, instance time otherwise."""
    total = report.total
    in_dollars = total.runs_without_price == 0 and total.billed_usd is not None
    wide = width >= NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_footer=True)
    table.add_column("RUN", overflow="fold", footer="total")
    figures = [
        ("BILLED", _amount(total.billed_seconds, total.billed_usd, in_dollars=in_dollars)),
        ("SAVED", _amount(total.saved_seconds, total.saved_usd, in_dollars=in_dollars)),
        ("SAVED", quantities.percent(total.saved_percent)),
    ]
    if wide:
        clean = _amount(total.clean_on_demand_seconds, total.clean_on_demand_usd, in_dollars=in_dollars)
        figures.insert(1, ("ON DEMAND", clean))
        figures += [
            ("AWS SAYS", quantities.percent(total.aws_saved_percent)),
            ("DONE TWICE", quantities.duration(total.redone_seconds)),
        ]
    for heading, footer in figures:
        table.add_column(heading, justify="right", no_wrap=True, footer=footer)
    for line in report.lines:
        cost = line.cost
        cells = [
            _amount(cost.billed_seconds, cost.billed_usd, in_dollars=in_dollars),
            _amount(cost.saved_seconds, cost.saved_usd, in_dollars=in_dollars),
            quantities.percent(cost.saved_percent),
        ]
        if wide:
            clean = _amount(cost.clean_on_demand_seconds, cost.clean_on_demand_usd, in_dollars=in_dollars)
            cells.insert(1, clean)
            cells += [quantities.percent(cost.aws_saved_percent), quantities.duration(cost.redone_seconds)]
        table.add_row(line.run, *cells)
    return Group(table, *(Text(remark, style="dim") for remark in _remarks(report, in_dollars=in_dollars)))


def _amount(seconds: float, usd: float | None, *, in_dollars: bool) -> str:
    return quantities.dollars(usd) if in_dollars else quantities.duration(seconds)


def _remarks(report: SavingsReport, *, in_dollars: bool) -> list[str]:
    remarks = ["", "SAVED is against an on-demand run of the same work without interruptions;"]
    remarks.append("AWS counts work that was done twice as useful, so its figure can be higher.")
    total = report.total
    if not in_dollars:
        remarks.append(f"In instance time: the price is not known for {_runs(total.runs_without_price)}.")
        if total.saved_usd is not None:
            remarks.append(f"Of the others: {quantities.dollars(total.saved_usd)} saved.")
    if total.runs_without_redone_work:
        remarks.append(
            f"{_runs(total.runs_without_redone_work)} did not report steps: the work done twice is not known there."
        )
    return remarks


def _runs(count: int) -> str:
    return quantities.counted(count, "run")
