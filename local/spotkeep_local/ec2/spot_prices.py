"""DescribeSpotPriceHistory: the prices of the market's script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.cloud import zone_id
from spotkeep_local.ec2.filters import in_one_page, matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.ec2.cloud import Cloud

_PRODUCT = "Linux/UNIX"
_HISTORY_SECONDS = 90 * 86_400.0


def _newest_first(record: dict[str, Any]) -> tuple[float, str, str]:
    return -record["Timestamp"], record["AvailabilityZone"], record["InstanceType"]


class SpotPrices:
    """The operations on prices."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {"DescribeSpotPriceHistory": self.describe}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeSpotPriceHistory, latest first: each change in the time asked for, and the price it began with."""
        cloud = self._cloud
        now = cloud.now()
        end = min(request.get("EndTime", now), now)
        start = min(max(request.get("StartTime", now), now - _HISTORY_SECONDS), end)
        products = request.get("ProductDescriptions")
        wanted_zone, filters = request.get("AvailabilityZone"), request.get("Filters", [])
        records: list[dict[str, Any]] = [
            {
                "AvailabilityZone": zone,
                "AvailabilityZoneId": zone_id(zone),
                "InstanceType": instance_type,
                "ProductDescription": _PRODUCT,
                "SpotPrice": f"{price_usd:.6f}",
                "Timestamp": moment,
            }
            for instance_type in request.get("InstanceTypes") or self._known_types()
            for zone in cloud.zones()
            if wanted_zone in (None, zone) and matches({"availability-zone": [zone]}, {}, filters)
            for moment, price_usd in cloud.market.prices(instance_type=instance_type, zone=zone, start=start, end=end)
            if not products or any(product.startswith(_PRODUCT) for product in products)
        ]
        return {"SpotPriceHistory": in_one_page(sorted(records, key=_newest_first), request), "NextToken": ""}

    def _known_types(self) -> list[str]:
        scripted = {change.instance_type for change in self._cloud.market.changes if change.instance_type}
        return sorted(scripted | {instance.instance_type for instance in self._cloud.instances})
