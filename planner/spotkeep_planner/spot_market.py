"""The facts of an AWS account about spot capacity before any run, which are prices over 90 days and placement scores.

Neither says when capacity could be had. Prices say the cost of each zone. A placement score, from 1 to 10, says how
likely a request is to succeed now. The prior and the runs (`SeenSpell`) say how capacity comes and goes.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotPriceHistory.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetSpotPlacementScores.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from spotkeep_planner.errors import HistoryError
from spotkeep_planner.replay import Past

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

PRODUCT = "Linux/UNIX"
HISTORY = timedelta(days=14)
MOST_ZONES = 6
"""The most zones to plan with, the cheapest first."""
_HIGHEST_SCORE = 10


@dataclass(frozen=True, kw_only=True)
class PricePoint:
    """A spot price that held from some moment on.

    Attributes:
        zone: The availability zone.
        since: From when.
        usd_per_hour: The price.
    """

    zone: str
    since: datetime
    usd_per_hour: float


class SpotMarket:
    """The spot market as EC2 describes it.

    Args:
        ec2: A boto3 EC2 client.
    """

    def __init__(self, ec2: EC2Client) -> None:
        self._ec2 = ec2

    def price_history(self, instance_type: str, *, since: datetime) -> Sequence[PricePoint]:
        """Return the prices of an EC2 instance type in every zone of the region.

        Raises:
            HistoryError: The service did not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        points = []
        try:
            pages = self._ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=[instance_type],  # type: ignore[list-item]
                ProductDescriptions=[PRODUCT],
                StartTime=since,
            )
            for page in pages:
                points += [_point(entry) for entry in page.get("SpotPriceHistory", [])]
        except (BotoCoreError, ClientError) as error:
            raise HistoryError(f"EC2 did not give the spot prices of {instance_type}: {error}") from error
        return points

    def placement_scores(self, instance_type: str, *, instances: int) -> Mapping[str, int]:
        """Return a request's chance of success, 1 to 10, by zone. Empty where the account may not ask.

        Raises:
            HistoryError: The service did not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        scores: dict[str, int] = {}
        try:
            pages = self._ec2.get_paginator("get_spot_placement_scores").paginate(
                InstanceTypes=[instance_type],
                TargetCapacity=instances,
                SingleAvailabilityZone=True,
                RegionNames=[self._ec2.meta.region_name],
            )
            for page in pages:
                for entry in page.get("SpotPlacementScores", []):
                    if "AvailabilityZoneId" in entry and "Score" in entry:
                        scores[entry["AvailabilityZoneId"]] = int(entry["Score"])
            zones = self._ec2.describe_availability_zones()["AvailabilityZones"]
        except (BotoCoreError, ClientError) as error:
            raise HistoryError(f"EC2 did not give placement scores of {instance_type}: {error}") from error
        names = {zone.get("ZoneId"): zone.get("ZoneName") for zone in zones}
        return {str(names[zone_id]): score for zone_id, score in scores.items() if names.get(zone_id)}


def ec2_type_of(instance_type: str) -> str:
    """Return the EC2 type behind a SageMaker one, such as `g5.2xlarge` for `ml.g5.2xlarge`."""
    return instance_type.removeprefix("ml.")


@dataclass(frozen=True, kw_only=True, eq=False)
class MarketView:
    """The knowledge of a type's zones.

    Attributes:
        zones: Their names, the cheapest first.
        past: Prices and the chance of capacity now, for planning. It holds no ticks of capacity.
        remarks: Facts that could not be found out, in sentences.
    """

    zones: tuple[str, ...]
    past: Past
    remarks: tuple[str, ...] = ()


def market_view(market: SpotMarket, instance_type: str, *, now: datetime, instances: int, tick_s: float) -> MarketView:
    """Ask the market about a type. Prices are needed. Scores, which many accounts may not ask for, are not.

    Args:
        market: The market.
        instance_type: An EC2 instance type.
        now: The time.
        instances: The job's number of instances.
        tick_s: Seconds between decisions.

    Raises:
        HistoryError: The service gave no price of this type.
    """
    points = market.price_history(instance_type, since=now - HISTORY)
    latest: dict[str, PricePoint] = {}
    for point in points:
        if point.zone not in latest or point.since > latest[point.zone].since:
            latest[point.zone] = point
    if not latest:
        raise HistoryError(
            f"EC2 knows no spot price of {instance_type} in this region: it may not be offered on spot here; "
            "name another type or region"
        )
    scores: Mapping[str, int] = {}
    remarks: tuple[str, ...] = ()
    try:
        scores = market.placement_scores(instance_type, instances=instances)
    except HistoryError as error:
        remarks = (f"{error}. How likely capacity is now is left to the prior.",)
    chosen = sorted(latest.values(), key=lambda point: (point.usd_per_hour, point.zone))[:MOST_ZONES]
    zones = tuple(point.zone for point in chosen)
    return MarketView(
        zones=zones,
        remarks=remarks,
        past=Past.without_capacity(
            tick_s=tick_s,
            now=now,
            price_now=np.array([point.usd_per_hour for point in chosen]),
            chance_now=np.array([scores[zone] / _HIGHEST_SCORE if zone in scores else math.nan for zone in zones]),
        ),
    )


def _point(entry: Mapping[str, Any]) -> PricePoint:
    try:
        price = float(entry["SpotPrice"])
        since = entry["Timestamp"]
        zone = str(entry["AvailabilityZone"])
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"EC2 gave a spot price that cannot be read: {dict(entry)!r}") from error
    if not math.isfinite(price) or price <= 0:
        raise HistoryError(f"EC2 gave {entry['SpotPrice']!r} as the spot price in {zone}; a price is more than 0")
    return PricePoint(zone=zone, since=since if since.tzinfo else since.replace(tzinfo=UTC), usd_per_hour=price)
