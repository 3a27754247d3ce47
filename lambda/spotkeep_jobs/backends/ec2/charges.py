"""What an attempt on a fleet cost, in the prices of the market it was in. Pure.

A spot instance is billed by the second, at the price its zone had in that second; the price moves a few times a day.
One that EC2 takes back within its first hour is not billed at all. What EC2 does not say, and no setting, is not
guessed: the figure is then unknown, and says which price is missing.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-instances-history.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotkeep_jobs.record.record import Charges

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.facts import SpotPrice
    from spotkeep_jobs.backends.ec2.history import InstanceLife

_SECONDS_PER_HOUR = 3600
_FREE_WHEN_TAKEN = timedelta(hours=1)
_SHORTEST_BILL_SECONDS = 60.0
"""Linux instances are billed by the second, a minute at least: "Amazon EC2 On-Demand pricing"."""
_HOURS_PER_MONTH = 730


@dataclass(frozen=True, kw_only=True)
class AttemptStorage:
    """The volume of an attempt, and the snapshots by which it moved from zone to zone.

    Attributes:
        size_gb: GiB.
        type: `gp3`, ...
        usd_per_gb_month: Its price; None where it is not known.
        snapshot_gb_hours: What snapshots held, times the hours they were there.
        snapshot_usd_per_gb_month: Their price; None where it is not known.
    """

    size_gb: int
    type: str
    usd_per_gb_month: float | None = None
    snapshot_gb_hours: float = 0.0
    snapshot_usd_per_gb_month: float | None = None


def charges_of(
    lives: Sequence[InstanceLife],
    *,
    spot_prices: Sequence[SpotPrice],
    on_demand_usd_per_hour: Mapping[str, float],
    until: datetime,
    storage: AttemptStorage | None = None,
) -> Charges:
    """Count what instances cost.

    Args:
        lives: The instances.
        spot_prices: The prices of their types and zones, from before the first launch.
        on_demand_usd_per_hour: On-demand prices by instance type.
        until: When those that have no end are taken to have ended.
        storage: The volume that followed them; None where there was none.
    """
    bills = [_instance_bill(life, spot_prices, on_demand_usd_per_hour.get(life.instance_type), until) for life in lives]
    unknown = dict.fromkeys(name for bill in bills for name in bill.unknown)
    gb_hours, storage_usd = 0.0, None
    snapshot_gb_hours, snapshot_usd = 0.0, None
    if storage is not None and lives:
        ended = max(life.ended_at or until for life in lives)
        gb_hours = storage.size_gb * (ended - min(life.launched_at for life in lives)).total_seconds() / 3600
        if storage.usd_per_gb_month is None:
            unknown[f"{storage.type} storage"] = None
        else:
            storage_usd = round(gb_hours * storage.usd_per_gb_month / _HOURS_PER_MONTH, 6)
        snapshot_gb_hours = storage.snapshot_gb_hours
        if snapshot_gb_hours and storage.snapshot_usd_per_gb_month is None:
            unknown["snapshot storage"] = None
        elif snapshot_gb_hours and storage.snapshot_usd_per_gb_month is not None:
            snapshot_usd = round(snapshot_gb_hours * storage.snapshot_usd_per_gb_month / _HOURS_PER_MONTH, 6)
    return Charges(
        instance_seconds=round(sum(bill.seconds for bill in bills), 3),
        instances_usd=_total(bill.usd for bill in bills),
        on_demand_usd=_total(bill.on_demand_usd for bill in bills),
        storage_gb_hours=round(gb_hours, 3),
        storage_usd=storage_usd,
        snapshot_gb_hours=round(snapshot_gb_hours, 6),
        snapshot_usd=snapshot_usd,
        unknown=tuple(unknown),
    )


@dataclass(frozen=True, kw_only=True)
class _InstanceBill:
    """What one instance cost.

    Attributes:
        seconds: How long it is billed for.
        usd: Its price in the market it was in; None where that is not known.
        on_demand_usd: What it would have cost on demand; None where that is not known.
        unknown: The prices that are missing.
    """

    seconds: float
    usd: float | None
    on_demand_usd: float | None
    unknown: tuple[str, ...]


def _instance_bill(
    life: InstanceLife, spot_prices: Sequence[SpotPrice], on_demand: float | None, until: datetime
) -> _InstanceBill:
    ended = max(life.ended_at or until, life.launched_at)
    seconds = max(_SHORTEST_BILL_SECONDS, (ended - life.launched_at).total_seconds())
    unknown = [] if on_demand is not None else [f"on demand {life.instance_type}"]
    on_demand_usd = None if on_demand is None else seconds * on_demand / _SECONDS_PER_HOUR
    if not life.spot:
        usd = on_demand_usd
    elif life.taken and ended - life.launched_at < _FREE_WHEN_TAKEN:
        usd = 0.0
    else:
        usd = _spot_usd(life, spot_prices, ended=ended)
        if usd is None:
            unknown.append(f"spot {life.instance_type} in {life.zone}")
    return _InstanceBill(seconds=seconds, usd=usd, on_demand_usd=on_demand_usd, unknown=tuple(unknown))


def _total(amounts: Iterable[float | None]) -> float | None:
    """Add amounts up; None when one of them is not known."""
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return round(total, 6)


def _spot_usd(life: InstanceLife, prices: Sequence[SpotPrice], *, ended: datetime) -> float | None:
    """Integrate the price over the instance's life; None when the price at its launch is not known."""
    own = sorted(
        (each for each in prices if each.instance_type == life.instance_type and each.zone == life.zone),
        key=lambda each: each.since,
    )
    if not own or own[0].since > life.launched_at:
        return None
    total = 0.0
    for place, price in enumerate(own):
        begins = max(price.since, life.launched_at)
        ends = min(own[place + 1].since, ended) if place + 1 < len(own) else ended
        total += max(0.0, (ends - begins).total_seconds()) * price.usd_per_hour
    short = max(0.0, _SHORTEST_BILL_SECONDS - (ended - life.launched_at).total_seconds())
    return (total + short * own[-1].usd_per_hour) / _SECONDS_PER_HOUR
