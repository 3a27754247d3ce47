"""What EC2 says of spot capacity, in memory: prices by zone, and placement scores; spelled as boto3's client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

from tests.models.faults import Called, Model

REGION: Final = "eu-central-1"


class SpotCapacity(Model):
    """The spot market of a region, the same for each instance type.

    Attributes:
        prices: Zone, price as EC2 writes it, and since when, one entry a page.
        scores: The placement score of zones, by name.
        asked: The instance types whose prices were asked for.
    """

    meta = SimpleNamespace(region_name=REGION)

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.prices: list[tuple[str, str, datetime]] = []
        self.scores: dict[str, int] = {}
        self.asked: list[str] = []

    def get_paginator(self, operation: str) -> Any:
        return SimpleNamespace(paginate=getattr(self, f"_{operation}"))

    def describe_availability_zones(self) -> Any:
        zones = [{"ZoneId": f"id of {zone}", "ZoneName": zone} for zone in self.scores]
        # A zone that the account may not use has no name.
        return self._call("DescribeAvailabilityZones", lambda: {"AvailabilityZones": [*zones, {"ZoneId": "other"}]})

    def _describe_spot_price_history(self, **asked: Any) -> Iterator[Any]:
        self.asked += asked["InstanceTypes"]
        pages = [
            {"SpotPriceHistory": [{"AvailabilityZone": zone, "SpotPrice": price, "Timestamp": since}]}
            for zone, price, since in self.prices
        ]
        for page in pages or [{}]:
            yield self._call("DescribeSpotPriceHistory", lambda page=page: page)  # type: ignore[misc]

    def _get_spot_placement_scores(self, **asked: Any) -> Iterator[Any]:
        assert asked["SingleAvailabilityZone"]
        assert asked["RegionNames"] == [REGION]
        scores = [{"AvailabilityZoneId": f"id of {zone}", "Score": score} for zone, score in self.scores.items()]
        yield self._call("GetSpotPlacementScores", lambda: {"SpotPlacementScores": scores})
