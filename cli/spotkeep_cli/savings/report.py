"""Adds up the cost and the savings of runs (I8). Sums are of known figures. Unknown ones are counted, never guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.cost.storage_cost import storage_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotkeep_cli.aws.stored_objects import StoredVersion
    from spotkeep_jobs.record.record import Cost, Run

NO_OWNER: Final = "(no owner)"
"""The owner of runs without one in their document."""


@dataclass(frozen=True, kw_only=True)
class RunStorage:
    """The storage of one run.

    Attributes:
        stored_bytes: Bytes stored now, including replaced and deleted versions.
        byte_seconds: Sum of each version's bytes times its age in seconds.
    """

    stored_bytes: int = 0
    byte_seconds: float = 0.0

    def usd(self, *, usd_per_gigabyte_month: float | None) -> float | None:
        """Return its cost in USD. None when the price is not known."""
        return storage_usd(self.byte_seconds, usd_per_gigabyte_month=usd_per_gigabyte_month)


def storage_by_run(versions: Iterable[StoredVersion], *, now: datetime) -> dict[str, RunStorage]:
    """Add versions up.

    Args:
        versions: In any order.
        now: The time.
    """
    bytes_of: dict[str, int] = {}
    byte_seconds_of: dict[str, float] = {}
    for version in versions:
        age = max(0.0, (now - version.written_at).total_seconds())
        bytes_of[version.run] = bytes_of.get(version.run, 0) + version.size
        byte_seconds_of[version.run] = byte_seconds_of.get(version.run, 0.0) + version.size * age
    return {run: RunStorage(stored_bytes=total, byte_seconds=byte_seconds_of[run]) for run, total in bytes_of.items()}


@dataclass(frozen=True, kw_only=True)
class SavingsLine:
    """One run's bill."""

    run: Run
    cost: Cost
    storage: RunStorage | None = None
    """None when it was not read."""
    storage_usd: float | None = None

    @property
    def figures(self) -> SavingsTotal:
        """The line as a sum of one."""
        return _total([self])


@dataclass(frozen=True, kw_only=True)
class SavingsTotal:
    """The sums over all lines. Dollars are over the runs whose price is known, None when there are none."""

    billed_seconds: float
    clean_on_demand_seconds: float
    saved_seconds: float
    redone_seconds: float
    restart_overhead_seconds: float
    idle_pool_seconds: float
    idle_pool_usd: float | None
    stored_bytes: int | None
    storage_usd: float | None
    """The cost of the bucket's objects in USD."""
    ebs_usd: float | None
    """The cost of EBS in USD, which `billed_usd` already includes.

    It covers the volumes of runs on EC2, the snapshots that moved them and the instances' root volumes."""
    saved_percent: float | None
    saved_at_most: bool
    """True where `saved_percent` is a ceiling, because repeated work or a price of storage is not known."""
    aws_saved_percent: float | None
    billed_usd: float | None
    clean_on_demand_usd: float | None
    saved_usd: float | None
    """The savings in USD. The cost of storage is subtracted, where its price is known."""
    runs_without_price: int
    runs_without_redone_work: int


class GroupedBy(StrEnum):
    """The subject of one row of the report."""

    RUN = "run"
    OWNER = "owner"
    WEEK = "week"
    """The week of a run's request, named as in ISO 8601, such as 2026-W47."""


@dataclass(frozen=True, kw_only=True)
class SavingsGroup:
    """The runs of one owner, or of one week, added up."""

    name: str
    runs: int
    total: SavingsTotal


@dataclass(frozen=True, kw_only=True)
class SavingsReport:
    """Lines, newest run first, and their sum. For owners and weeks the groups, in the order of their names."""

    lines: tuple[SavingsLine, ...]
    total: SavingsTotal
    grouped_by: GroupedBy = GroupedBy.RUN
    groups: tuple[SavingsGroup, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "runs": [
                {
                    **line.run.model_dump(mode="json", include={"run", "state", "capacity", "instance_type"}),
                    **line.cost.model_dump(mode="json"),
                    "saved_at_most": line.cost.saves_at_most,
                    "stored_bytes": None if line.storage is None else line.storage.stored_bytes,
                    "storage_usd": line.storage_usd,
                    "volume_usd": line.cost.storage_usd,
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


def report_savings(
    runs: Iterable[Run],
    *,
    by: GroupedBy = GroupedBy.RUN,
    storage: Mapping[str, RunStorage] | None = None,
    s3_usd_per_gigabyte_month: float | None = None,
) -> SavingsReport:
    """Return the report over the runs that have a bill.

    Args:
        runs: Newest first.
        by: The subject of its rows.
        storage: The storage of runs, by id. None when it was not read.
        s3_usd_per_gigabyte_month: The price of storage in USD for a gigabyte and month. None where it is not known.
    """
    lines: list[SavingsLine] = []
    grouped: dict[str, list[SavingsLine]] = {}
    for run in runs:
        if run.cost is None:
            continue
        stored = None if storage is None else storage.get(run.run, RunStorage())
        usd = None if stored is None else stored.usd(usd_per_gigabyte_month=s3_usd_per_gigabyte_month)
        line = SavingsLine(run=run, cost=run.cost, storage=stored, storage_usd=usd)
        lines.append(line)
        if by is not GroupedBy.RUN:
            grouped.setdefault(_group_of(run, by), []).append(line)
    groups = [SavingsGroup(name=name, runs=len(of_it), total=_total(of_it)) for name, of_it in sorted(grouped.items())]
    return SavingsReport(lines=tuple(lines), total=_total(lines), grouped_by=by, groups=tuple(groups))


def _group_of(run: Run, by: GroupedBy) -> str:
    if by is GroupedBy.OWNER:
        return run.owner or NO_OWNER
    year, week, _ = run.created_at.isocalendar()
    return f"{year}-W{week:02d}"


def _total(lines: Sequence[SavingsLine]) -> SavingsTotal:
    costs = [line.cost for line in lines]
    stored = [line.storage.stored_bytes for line in lines if line.storage is not None]
    storage_usd = _sum_known(line.storage_usd for line in lines)
    billed = sum(cost.billed_seconds for cost in costs)
    clean = sum(cost.clean_on_demand_seconds for cost in costs)
    saved = sum(cost.saved_seconds for cost in costs)
    # AWS's figure is over the time instances worked, so the sum must be too. SageMaker shows it, and EC2 shows none.
    shown = [line.cost for line in lines if line.run.place.backend == "sagemaker"]
    training = sum(cost.training_seconds for cost in shown)
    worked = sum(cost.billed_seconds - cost.idle_pool_seconds for cost in shown)
    # Storage counts where the rest of a run's bill is in dollars too: one sum, of the same runs.
    clean_usd = _sum_known(line.cost.clean_on_demand_usd for line in lines)
    saved_usd = _sum_known(
        None if line.cost.saved_usd is None else line.cost.saved_usd - (line.storage_usd or 0.0) for line in lines
    )
    known = all(cost.saved_usd is not None for cost in costs) and clean_usd is not None and clean_usd > 0
    return SavingsTotal(
        billed_seconds=billed,
        clean_on_demand_seconds=clean,
        saved_seconds=saved,
        redone_seconds=sum(cost.redone_seconds or 0.0 for cost in costs),
        restart_overhead_seconds=sum(cost.restart_overhead_seconds for cost in costs),
        idle_pool_seconds=sum(cost.idle_pool_seconds for cost in costs),
        idle_pool_usd=_sum_known(cost.idle_pool_usd for cost in costs),
        stored_bytes=sum(stored) if stored else None,
        storage_usd=storage_usd,
        ebs_usd=_sum_known(usd for cost in costs for usd in _ebs_of(cost)),
        saved_percent=_share(saved_usd, clean_usd) if known and storage_usd is not None else _share(saved, clean),
        saved_at_most=any(cost.saves_at_most for cost in costs),
        aws_saved_percent=None if training <= 0 else 100 * (1 - worked / training),
        billed_usd=_sum_known(cost.billed_usd for cost in costs),
        clean_on_demand_usd=clean_usd,
        saved_usd=saved_usd,
        runs_without_price=sum(cost.usd_per_hour is None for cost in costs),
        runs_without_redone_work=sum(cost.redone_steps is None for cost in costs),
    )


def _ebs_of(cost: Cost) -> tuple[float | None, ...]:
    return cost.storage_usd, cost.snapshot_usd, cost.root_volume_usd


def _share(part: float | None, whole: float | None) -> float | None:
    return 100 * part / whole if part is not None and whole is not None and whole > 0 else None


def _sum_known(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
