"""Adds up what runs cost and saved (I8). Sums are of what is known; what is not is counted, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_jobs.record import Cost, Run


NOBODY: Final = "(nobody)"
"""The owner of runs whose document names none."""


@dataclass(frozen=True, kw_only=True)
class SavingsLine:
    """One run's bill."""

    run: str
    capacity: str
    instance_type: str
    state: str
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class SavingsTotal:
    """The sums over all lines. Dollars are over the runs whose price is known, None when there are none."""

    billed_seconds: float
    clean_on_demand_seconds: float
    saved_seconds: float
    redone_seconds: float
    saved_percent: float | None
    aws_saved_percent: float | None
    billed_usd: float | None
    clean_on_demand_usd: float | None
    saved_usd: float | None
    runs_without_price: int
    runs_without_redone_work: int


class GroupedBy(StrEnum):
    """What one row of the report is about."""

    RUN = "run"
    OWNER = "owner"
    WEEK = "week"
    """The week a run was asked for in, named as ISO 8601 does: 2026-W47."""


@dataclass(frozen=True, kw_only=True)
class SavingsGroup:
    """The runs of one owner, or of one week, added up."""

    name: str
    runs: int
    total: SavingsTotal


@dataclass(frozen=True, kw_only=True)
class SavingsReport:
    """Lines, newest run first, and their sum; for owners and weeks the groups, in the order of their names."""

    lines: tuple[SavingsLine, ...]
    total: SavingsTotal
    grouped_by: GroupedBy = GroupedBy.RUN
    groups: tuple[SavingsGroup, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "runs": [
                {
                    "run": line.run,
                    "state": line.state,
                    "capacity": line.capacity,
                    "instance_type": line.instance_type,
                    **line.cost.model_dump(mode="json"),
                }
                for line in self.lines
            ],
            "total": vars(self.total),
        } | (
            {
                "groups": [
                    {self.grouped_by.value: each.name, "runs": each.runs, **vars(each.total)} for each in self.groups
                ]
            }
            if self.grouped_by is not GroupedBy.RUN
            else {}
        )


def report_savings(runs: Iterable[Run], *, by: GroupedBy = GroupedBy.RUN) -> SavingsReport:
    """The report over the runs that have a bill.

    Args:
        runs: Newest first.
        by: What its rows are about.
    """
    billed = [run for run in runs if run.cost is not None]
    grouped: dict[str, list[Cost]] = {}
    for run in billed:
        if run.cost is not None and by is not GroupedBy.RUN:
            grouped.setdefault(_group_of(run, by), []).append(run.cost)
    lines = tuple(
        SavingsLine(
            run=run.run,
            capacity=run.capacity,
            instance_type=run.instance_type,
            state=run.state.value,
            cost=run.cost,
        )
        for run in billed
        if run.cost is not None
    )
    groups = [SavingsGroup(name=name, runs=len(costs), total=_total(costs)) for name, costs in sorted(grouped.items())]
    return SavingsReport(lines=lines, total=_total([line.cost for line in lines]), grouped_by=by, groups=tuple(groups))


def _group_of(run: Run, by: GroupedBy) -> str:
    if by is GroupedBy.OWNER:
        return run.owner or NOBODY
    year, week, _ = run.created_at.isocalendar()
    return f"{year}-W{week:02d}"


def _total(costs: list[Cost]) -> SavingsTotal:
    billed = sum(cost.billed_seconds for cost in costs)
    clean = sum(cost.clean_on_demand_seconds for cost in costs)
    saved = sum(cost.saved_seconds for cost in costs)
    # AWS's figure is over the time instances worked, so the sum must be too.
    training = sum(cost.training_seconds for cost in costs)
    return SavingsTotal(
        billed_seconds=billed,
        clean_on_demand_seconds=clean,
        saved_seconds=saved,
        redone_seconds=sum(cost.redone_seconds or 0.0 for cost in costs),
        saved_percent=100 * saved / clean if clean > 0 else None,
        aws_saved_percent=100 * (1 - billed / training) if training > 0 else None,
        billed_usd=_sum_known(cost.billed_usd for cost in costs),
        clean_on_demand_usd=_sum_known(cost.clean_on_demand_usd for cost in costs),
        saved_usd=_sum_known(cost.saved_usd for cost in costs),
        runs_without_price=sum(cost.usd_per_hour is None for cost in costs),
        runs_without_redone_work=sum(cost.redone_steps is None for cost in costs),
    )


def _sum_known(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
