"""The table of `spotkeep savings`.

It shows our figures beside AWS's own percentage, and the meaning of the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_cli.savings.report import GroupedBy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from spotkeep_cli.savings.report import SavingsReport, SavingsTotal


_AT_MOST = "≤ means at most. Repeated work or a price of storage is not known there."


def savings_table(report: SavingsReport, *, width: int) -> RenderableType:
    """Return one row a run, an owner or a week, and the sum. It has money where every figure has a price, else time."""
    total = report.total
    in_dollars = total.runs_without_price == 0 and total.billed_usd is not None
    by_run = report.grouped_by is GroupedBy.RUN
    names = [line.run.run for line in report.lines] if by_run else [group.name for group in report.groups]
    rows = [line.figures for line in report.lines] if by_run else [group.total for group in report.groups]

    def amounts(heading: str, figures: list[tuple[float, float | None]], *, importance: int | None = None) -> Column:
        *cells, footer = [usd_or_time(seconds, usd) for seconds, usd in figures]
        return Column(heading=heading, cells=cells, footer=footer, importance=importance, justify="right")

    def usd_or_time(seconds: float, usd: float | None) -> str:
        return quantities.dollars(usd) if in_dollars else quantities.duration(seconds)

    def percents(heading: str, shares: list[str], *, importance: int | None = None) -> Column:
        *cells, footer = shares
        return Column(heading=heading, cells=cells, footer=footer, importance=importance, justify="right")

    every = [*rows, total]
    redone = [line.cost.redone_seconds for line in report.lines] if by_run else [row.redone_seconds for row in rows]
    redone_cells = [quantities.duration(seconds) for seconds in redone]
    columns = [
        Column(heading=report.grouped_by.value.upper(), cells=names, footer="total"),
        *([] if by_run else [_counts(report)]),
        amounts("BILLED", [(cost.billed_seconds, cost.billed_usd) for cost in every]),
        amounts("ON DEMAND", [(c.clean_on_demand_seconds, c.clean_on_demand_usd) for c in every], importance=0),
        amounts("SAVED", [(cost.saved_seconds, cost.saved_usd) for cost in every], importance=4),
        percents("SAVED %", [quantities.percent(each.saved_percent, at_most=each.saved_at_most) for each in every]),
        percents("AWS SAYS", [quantities.percent(each.aws_saved_percent) for each in every], importance=3),
        Column(
            heading="TWICE",
            cells=redone_cells,
            footer=quantities.duration(total.redone_seconds),
            importance=1,
            justify="right",
        ),
    ]
    if total.idle_pool_seconds:
        columns.append(amounts("IDLE", [(row.idle_pool_seconds, row.idle_pool_usd) for row in every], importance=2))
    if total.stored_bytes:
        columns.append(_stored(every, in_dollars=total.storage_usd is not None))
    if total.ebs_usd:
        *ebs, footer = [quantities.dollars(row.ebs_usd) for row in every]
        columns.append(Column(heading="EBS", cells=ebs, footer=footer, importance=1, justify="right"))
    table = table_that_fits(columns, width=width)
    return Group(table, *(Text(remark, style="dim") for remark in _remarks(report, in_dollars=in_dollars)))


def _counts(report: SavingsReport) -> Column:
    cells = [str(group.runs) for group in report.groups]
    return Column(heading="RUNS", cells=cells, footer=str(len(report.lines)), importance=5, justify="right")


def _stored(rows: Sequence[SavingsTotal], *, in_dollars: bool) -> Column:
    """Return the cost of storage, or its amount where the price is not known."""
    *cells, footer = [
        quantities.dollars(row.storage_usd) if in_dollars else quantities.size(row.stored_bytes or 0) for row in rows
    ]
    return Column(heading="STORAGE", cells=cells, footer=footer, importance=1, justify="right")


def _remarks(report: SavingsReport, *, in_dollars: bool) -> list[str]:
    remarks = ["", "SAVED is against an on-demand run of the same work without interruptions."]
    total = report.total
    if total.saved_at_most:
        remarks.append(_AT_MOST)
    if all(line.run.place.backend == "sagemaker" for line in report.lines):
        remarks += _difference(total, in_dollars=in_dollars)
    if not in_dollars:
        remarks.append(f"In instance time: the price is not known for {_runs(total.runs_without_price)}.")
        if total.saved_usd is not None:
            remarks.append(f"Of the others: {quantities.dollars(total.saved_usd)} saved.")
    if total.stored_bytes:
        what = "STORAGE is what the bucket still holds of each run, replaced and deleted versions included"
        remarks.append(f"{what}{'' if total.storage_usd is not None else '; its price is not known'}.")
    if total.ebs_usd:
        what = "EBS is the volumes of runs on EC2, the snapshots that moved them and the instances' root volumes"
        remarks.append(f"{what}; it is billed already.")
    if total.runs_without_redone_work:
        remarks.append(
            f"{_runs(total.runs_without_redone_work)} did not report steps: the repeated work is not known there."
        )
    return remarks


def _difference(total: SavingsTotal, *, in_dollars: bool) -> list[str]:
    """Return the reason that AWS's own percentage is another one."""
    if total.saved_percent is None or total.aws_saved_percent is None:
        return []
    useful, left_out = [], []
    if total.redone_seconds:
        useful.append(f"{quantities.duration(total.redone_seconds)} trained twice")
    if total.restart_overhead_seconds:
        useful.append(f"{quantities.duration(total.restart_overhead_seconds)} of loading again")
    if total.idle_pool_seconds:
        left_out.append(f"{quantities.duration(total.idle_pool_seconds)} of idle pools")
    if total.storage_usd and in_dollars:
        left_out.append(f"{quantities.dollars(total.storage_usd)} of storage")
    points = round(total.aws_saved_percent) - round(total.saved_percent)
    if not points or not (useful or left_out):
        return []
    reasons = []
    if useful:
        reasons.append(f"takes {' and '.join(useful)} for useful work")
    if left_out:
        reasons.append(f"leaves out {' and '.join(left_out)}")
    return [f"AWS says {abs(points)} points {'more' if points > 0 else 'less'}: it {' and '.join(reasons)}."]


def _runs(count: int) -> str:
    return quantities.counted(count, "run")
