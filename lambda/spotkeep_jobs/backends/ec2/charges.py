"""The cost of an attempt on a fleet, in the prices of its market. Pure.

AWS bills a spot instance by the second, at the price of its zone in that second. The price moves a few times a day. AWS
does not bill an instance that EC2 takes back within its first hour. A price that neither EC2 nor a setting gives is
never guessed. The figure is then unknown, and names the missing price.

AWS bills a volume for its provisioned capacity, however full it is. The bill counts the size, and for gp3 the IOPS and
the throughput beyond those included in the price of the size. The run's volume exists from the first instance to the
last. In a later attempt it exists from the attempt's beginning. Each instance has a root volume of its own while it
lives. EBS bills that volume even where EC2 bills nothing for the instance.

Sources:
    https://aws.amazon.com/ebs/pricing/ https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-instances-history.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotkeep_jobs.backends.backend import CostSoFar
from spotkeep_jobs.backends.ec2.facts import SpotPrice
from spotkeep_jobs.backends.ec2.history import Billed
from spotkeep_jobs.record.record import Charges

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.facts import ProvisionedVolume
    from spotkeep_jobs.backends.ec2.history import EarlierInstances, InstanceLife
    from spotkeep_jobs.record.deployment_records import StoragePrices

_SECONDS_PER_HOUR = 3600
_FREE_WHEN_TAKEN = timedelta(hours=1)
_SHORTEST_BILL = timedelta(minutes=1)
"""The shortest time that AWS bills. Linux instances and gp3 volumes are billed by the second, for a minute at least.

Source: "Amazon EC2 On-Demand pricing".
"""
_HOURS_PER_MONTH = 730
_GP3_INCLUDED_IOPS = 3_000
_GP3_INCLUDED_MIB_S = 125
_MIB_PER_GIB = 1024


@dataclass(frozen=True, kw_only=True)
class AttemptStorage:
    """The storage that EBS keeps for an attempt, and its prices.

    Attributes:
        volume: The run's volume, which followed its instances, or None where there was none.
        volume_since: The time since when it exists, where an earlier attempt left it. None for the first launch.
        root_volume: The root volume with which each instance began, or None where that is not known.
        snapshot_gb_hours: GiB times hours of the snapshots that moved the volume from zone to zone.
        prices: The known prices of storage.
    """

    volume: ProvisionedVolume | None
    root_volume: ProvisionedVolume | None
    volume_since: datetime | None = None
    snapshot_gb_hours: float = 0.0
    prices: StoragePrices


def billed(
    lives: Sequence[InstanceLife],
    *,
    spot_prices: Sequence[SpotPrice],
    until: datetime,
    earlier: Billed | None = None,
) -> Billed:
    """Add up the billed time of instances.

    Args:
        lives: The instances.
        spot_prices: The prices of their types and zones, from before the first launch.
        until: The assumed end of instances without a recorded end.
        earlier: The bill of the instances before them.
    """
    before = earlier or Billed()
    time, on_demand_time = dict(before.time), dict(before.on_demand_time)
    spot_usd, unknown = before.spot_usd, dict.fromkeys(before.unknown_spot)
    unknown_time = dict(before.unknown_spot_time)
    for life in lives:
        ended = max(life.ended_at or until, life.launched_at)
        lasted = max(_SHORTEST_BILL, ended - life.launched_at)
        time[life.instance_type] = time.get(life.instance_type, timedelta(0)) + lasted
        if not life.spot:
            on_demand_time[life.instance_type] = on_demand_time.get(life.instance_type, timedelta(0)) + lasted
        elif not (life.taken and ended - life.launched_at < _FREE_WHEN_TAKEN):
            usd = _spot_usd(life, spot_prices, ended=ended)
            if usd is None:
                unknown[_place(life)] = None
                unknown_time[life.instance_type] = unknown_time.get(life.instance_type, timedelta(0)) + lasted
            spot_usd += usd or 0.0
    return Billed(
        time=time,
        on_demand_time=on_demand_time,
        spot_usd=spot_usd,
        unknown_spot=tuple(unknown),
        unknown_spot_time=unknown_time,
    )


def charges_of(
    lives: Sequence[InstanceLife],
    *,
    spot_prices: Sequence[SpotPrice],
    on_demand_usd_per_hour: Mapping[str, float],
    until: datetime,
    storage: AttemptStorage | None = None,
    earlier: EarlierInstances | None = None,
) -> Charges:
    """Count the cost of instances.

    Args:
        lives: The instances.
        spot_prices: The prices of their types and zones, from before the first launch.
        on_demand_usd_per_hour: On-demand prices by instance type.
        until: The assumed end of instances without a recorded end.
        storage: The storage that EBS kept for them. None where that is not counted.
        earlier: The sums over the instances before them.
    """
    sums = billed(lives, spot_prices=spot_prices, until=until, earlier=None if earlier is None else earlier.billed)
    missing = (f"on demand {name}" for name in sums.time if name not in on_demand_usd_per_hour)
    unknown = dict.fromkeys((*missing, *sums.unknown_spot))
    on_demand_usd = _on_demand_usd(sums.time, on_demand_usd_per_hour)
    not_spot_usd = _on_demand_usd(sums.on_demand_time, on_demand_usd_per_hour)
    instance_seconds = sum(sums.time.values(), timedelta(0)).total_seconds()
    stored = _storage_costs(lives, storage, instance_seconds=instance_seconds, until=until, earlier=earlier)
    volume, snapshots, root_volume = stored
    for each in stored:
        unknown |= dict.fromkeys(each.unknown)
    instances_usd = None if not_spot_usd is None or sums.unknown_spot else round(sums.spot_usd + not_spot_usd, 6)
    return Charges(
        instance_seconds=round(instance_seconds, 3),
        instances_usd=instances_usd,
        on_demand_usd=None if on_demand_usd is None else round(on_demand_usd, 6),
        storage_gb_hours=round(volume.gb_hours, 3),
        storage_usd=volume.usd,
        snapshot_gb_hours=round(snapshots.gb_hours, 6),
        snapshot_usd=snapshots.usd,
        root_volume_gb_hours=round(root_volume.gb_hours, 3),
        root_volume_usd=root_volume.usd,
        unknown=tuple(unknown),
    )


def cost_so_far(
    lives: Sequence[InstanceLife],
    *,
    spot_prices: Sequence[SpotPrice],
    on_demand_usd_per_hour: Mapping[str, float],
    now: datetime,
    storage: AttemptStorage,
    earlier: EarlierInstances | None = None,
) -> CostSoFar:
    """Count the cost of a live attempt until now.

    A spot instance without a known price counts at its on-demand price, which is never less. Another missing price is
    named, and adds nothing. The run's volume counts until now, also where no instance has it.

    Args:
        lives: The instances.
        spot_prices: The prices of their types and zones, from before the first launch.
        on_demand_usd_per_hour: On-demand prices by instance type.
        now: The time.
        storage: The storage that EBS keeps for them.
        earlier: The sums over the instances before them.
    """
    bounds = _bounds(lives, spot_prices, on_demand_usd_per_hour)
    prices = (*spot_prices, *bounds.values())
    sums = billed(lives, spot_prices=prices, until=now, earlier=None if earlier is None else earlier.billed)
    instances_usd, not_counted = sums.spot_usd, list(sums.unknown_spot)
    at_on_demand = dict.fromkeys(bounds)
    for name, lasted in sorted(sums.unknown_spot_time.items()):
        if name in on_demand_usd_per_hour:
            instances_usd += lasted.total_seconds() * on_demand_usd_per_hour[name] / _SECONDS_PER_HOUR
            bounded = [place for place in not_counted if place.startswith(f"spot {name} in ")]
            at_on_demand |= dict.fromkeys(bounded)
            not_counted = [place for place in not_counted if place not in bounded]
    for name, lasted in sorted(sums.on_demand_time.items()):
        if name not in on_demand_usd_per_hour:
            not_counted.append(f"on demand {name}")
        instances_usd += lasted.total_seconds() * on_demand_usd_per_hour.get(name, 0.0) / _SECONDS_PER_HOUR
    seconds = sum(sums.time.values(), timedelta(0)).total_seconds()
    live = sum(life.ended_at is None for life in lives)
    stored, in_an_hour = (
        _storage_costs(
            lives,
            storage,
            instance_seconds=seconds + live * later.total_seconds(),
            until=now + later,
            earlier=earlier,
            volume_until=now + later,
        )
        for later in (timedelta(0), timedelta(hours=1))
    )
    stored_usd = sum(each.usd or 0.0 for each in stored)
    return CostSoFar(
        usd=round(instances_usd + stored_usd, 6),
        storage_usd_per_hour=round(sum(each.usd or 0.0 for each in in_an_hour) - stored_usd, 6),
        at_on_demand=tuple(at_on_demand),
        not_counted=tuple(dict.fromkeys([*not_counted, *(name for each in stored for name in each.unknown)])),
    )


def _bounds(
    lives: Sequence[InstanceLife], spot_prices: Sequence[SpotPrice], on_demand_usd_per_hour: Mapping[str, float]
) -> dict[str, SpotPrice]:
    """Return an on-demand price for each place of a spot instance without a known price at its launch."""
    bounds: dict[str, SpotPrice] = {}
    for life in lives:
        usd = on_demand_usd_per_hour.get(life.instance_type)
        if life.spot and usd is not None and _spot_usd(life, spot_prices, ended=life.launched_at) is None:
            place = SpotPrice(
                instance_type=life.instance_type, zone=life.zone, since=life.launched_at, usd_per_hour=usd
            )
            bounds.setdefault(_place(life), place)
    return bounds


def _place(life: InstanceLife) -> str:
    return f"spot {life.instance_type} in {life.zone}"


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """An amount of storage over some time.

    Attributes:
        gb_hours: GiB times hours.
        usd: Its cost. None where there was none, or a price is not known.
        unknown: The names of the missing prices.
    """

    gb_hours: float = 0.0
    usd: float | None = None
    unknown: tuple[str, ...] = ()


def _storage_costs(
    lives: Sequence[InstanceLife],
    storage: AttemptStorage | None,
    *,
    instance_seconds: float,
    until: datetime,
    earlier: EarlierInstances | None,
    volume_until: datetime | None = None,
) -> tuple[_Stored, _Stored, _Stored]:
    """Count the cost of the run's volume, of its snapshots and of the root volumes.

    Args:
        lives: The instances.
        storage: The storage that EBS kept for them. None where that is not counted.
        instance_seconds: The seconds for which there were root volumes, over all instances.
        until: The assumed end of instances without a recorded end.
        earlier: The sums over the instances before them.
        volume_until: The time until which the volume counts. None for the end of the last instance.
    """
    volume = root_volume = _Stored()
    since = None if storage is None else storage.volume_since
    if storage is None or (not lives and earlier is None and since is None):
        return volume, _Stored(), root_volume
    ends = [life.ended_at or until for life in lives] or [until]
    begins = [life.launched_at for life in lives] + ([since] if since else [])
    if earlier is not None:
        ends.append(earlier.last_ended_at)
        begins.append(earlier.first_launched_at)
    there = (max([*ends, *([volume_until] if volume_until else [])]) - min(begins)).total_seconds() / _SECONDS_PER_HOUR
    if storage.volume is not None:
        volume = _volume(storage.volume, hours=there, prices=storage.prices)
    if not instance_seconds:
        pass  # No instance began with one.
    elif storage.root_volume is None:
        root_volume = _Stored(unknown=("root volumes",))
    else:
        hours = instance_seconds / _SECONDS_PER_HOUR
        root_volume = _volume(storage.root_volume, hours=hours, prices=storage.prices)
    return volume, _snapshots(storage.snapshot_gb_hours, usd_per_gb_month=storage.prices.ebs_snapshot), root_volume


def _volume(volume: ProvisionedVolume, *, hours: float, prices: StoragePrices) -> _Stored:
    """Count the cost of a volume, or of volumes that are alike. The hours are the sum over all of them."""
    gb_hours = volume.size_gb * hours
    if volume.type != "gp3":
        return _Stored(gb_hours=gb_hours, unknown=(f"{volume.type} storage",))
    iops = max(0, (volume.iops or 0) - _GP3_INCLUDED_IOPS)
    gib_s = max(0, (volume.throughput_mib_s or 0) - _GP3_INCLUDED_MIB_S) / _MIB_PER_GIB
    usd, unknown = 0.0, []
    for name, amount, usd_per_month in (
        ("gp3 storage", volume.size_gb, prices.ebs_gp3),
        ("gp3 IOPS", iops, prices.ebs_gp3_iops),
        ("gp3 throughput", gib_s, prices.ebs_gp3_throughput),
    ):
        if amount and usd_per_month is None:
            unknown.append(name)
        usd += amount * (usd_per_month or 0.0) * hours / _HOURS_PER_MONTH
    return _Stored(gb_hours=gb_hours, usd=None if unknown else round(usd, 6), unknown=tuple(unknown))


def _snapshots(gb_hours: float, *, usd_per_gb_month: float | None) -> _Stored:
    if not gb_hours:
        return _Stored()
    if usd_per_gb_month is None:
        return _Stored(gb_hours=gb_hours, unknown=("snapshot storage",))
    return _Stored(gb_hours=gb_hours, usd=round(gb_hours * usd_per_gb_month / _HOURS_PER_MONTH, 6))


def _on_demand_usd(time: Mapping[str, timedelta], usd_per_hour: Mapping[str, float]) -> float | None:
    """Return the cost of instances on demand, in US dollars. None when the price of a type is not known."""
    total = 0.0
    for name, lasted in sorted(time.items()):
        if name not in usd_per_hour:
            return None
        total += lasted.total_seconds() * usd_per_hour[name] / _SECONDS_PER_HOUR
    return total


def _spot_usd(life: InstanceLife, prices: Sequence[SpotPrice], *, ended: datetime) -> float | None:
    """Integrate the price over the instance's life. None when the price at its launch is not known."""
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
    short = max(timedelta(0), _SHORTEST_BILL - (ended - life.launched_at)).total_seconds()
    last = next(each for each in reversed(own) if each.since <= ended)
    return (total + short * last.usd_per_hour) / _SECONDS_PER_HOUR
