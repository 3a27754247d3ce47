"""EC2's rules for a CreateFleet request beside its model, and the part of them that the local AWS has. Pure.

Sources: CreateFleet in Amazon EC2's API reference, and "EC2 Fleet" in its user guide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spotkeep_local.ec2.surroundings import LocalSubnet

DEFAULT_STRATEGY = "lowest-price"
_ON_DEMAND_OPTIONS = {"AllocationStrategy": ("lowest-price",)}
_OVERRIDES = ("InstanceType", "SubnetId", "AvailabilityZone", "MaxPrice")


@dataclass(frozen=True, kw_only=True)
class CandidatePool:
    """A pool that a fleet may take an instance from.

    Attributes:
        place: Its place among the overrides of the request.
        config: The place of its LaunchTemplateConfig.
        room: The number of further instances that it has room for. None for any number.
        price_usd: The present price of an hour, in US dollars.
        max_price_usd: The highest price of an hour that the fleet pays, in US dollars. None for up to the on-demand
            price.
        overrides: The override as the request has it.
    """

    place: int
    config: int
    instance_type: str
    subnet: LocalSubnet
    price_usd: float
    room: int | None = None
    max_price_usd: float | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def refusal(self) -> tuple[str, str] | None:
        """EC2's error code and message where the pool has no spot instance to give. None when it has one."""
        if self.max_price_usd is not None and self.price_usd > self.max_price_usd:
            return (
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {self.max_price_usd:g} is lower than the minimum required Spot request "
                f"fulfillment price of {self.price_usd:g}.",
            )
        if self.room is not None and self.room <= 0:
            return (
                "InsufficientInstanceCapacity",
                f"There is no Spot capacity available that matches your request: {self.instance_type} in "
                f"{self.subnet.zone}.",
            )
        return None


def choose_pool(candidates: Sequence[CandidatePool], *, strategy: str) -> CandidatePool | None:
    """Return the pool for the next spot instance. None when no pool has one.

    Args:
        candidates: In the order of the request.
        strategy: `SpotOptions.AllocationStrategy`.
    """
    possible = [candidate for candidate in candidates if candidate.refusal is None]
    return min(possible, key=_ORDERS[strategy]) if possible else None


def choose_on_demand(candidates: Sequence[CandidatePool]) -> CandidatePool:
    """Return the cheapest pool for the next on-demand instance, of which there are always more.

    Args:
        candidates: In the order of the request. At least one.
    """
    return min(candidates, key=_ORDERS["lowest-price"])


def _depth(candidate: CandidatePool) -> float:
    return -math.inf if candidate.room is None else -candidate.room


_ORDERS: dict[str, Callable[[CandidatePool], tuple[float, ...]]] = {
    "lowest-price": lambda pool: (pool.price_usd, pool.place),
    "price-capacity-optimized": lambda pool: (_depth(pool), pool.price_usd, pool.place),
}
SPOT_STRATEGIES = tuple(_ORDERS)
_SPOT_OPTIONS = {"AllocationStrategy": SPOT_STRATEGIES, "InstanceInterruptionBehavior": ("terminate",)}


def problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reason to refuse a CreateFleet request."""
    kind = request.get("Type", "maintain")
    if kind != "maintain":
        yield f"Type {kind} is not supported by the local AWS; use maintain"
    target = request["TargetCapacitySpecification"]
    parts = (target.get("SpotTargetCapacity") or 0) + (target.get("OnDemandTargetCapacity") or 0)
    if parts > target["TotalTargetCapacity"]:
        yield (
            f"SpotTargetCapacity and OnDemandTargetCapacity are {parts}, more than TotalTargetCapacity "
            f"{target['TotalTargetCapacity']}"
        )
    if any(tags.get("ResourceType") == "instance" for tags in request.get("TagSpecifications") or []):
        yield (
            "TagSpecifications with ResourceType instance are for fleets of type instant only; "
            "tag the instances of this fleet through its launch template"
        )
    for name, known in (("SpotOptions", _SPOT_OPTIONS), ("OnDemandOptions", _ON_DEMAND_OPTIONS)):
        for option, value in (request.get(name) or {}).items():
            if value not in known.get(option, ()):
                yield f"{name}.{option} {value} is not supported by the local AWS"
    yield from _config_problems(request["LaunchTemplateConfigs"])


def spot_and_on_demand(target: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of instances that a TargetCapacitySpecification wants on spot and on demand."""
    total = int(target["TotalTargetCapacity"])
    if target.get("DefaultTargetCapacityType", "on-demand") == "spot":
        on_demand = int(target.get("OnDemandTargetCapacity") or 0)
        return total - on_demand, on_demand
    spot = int(target.get("SpotTargetCapacity") or 0)
    return spot, total - spot


def _config_problems(configs: list[dict[str, Any]]) -> Iterator[str]:
    for number, config in enumerate(configs, start=1):
        specification = config.get("LaunchTemplateSpecification") or {}
        if bool(specification.get("LaunchTemplateId")) == bool(specification.get("LaunchTemplateName")):
            yield f"LaunchTemplateConfigs.{number} must name a launch template by its id or by its name"
        if not specification.get("Version"):
            yield f"LaunchTemplateConfigs.{number} must name a version of its launch template"
        for place, overrides in enumerate(config.get("Overrides") or [], start=1):
            path = f"LaunchTemplateConfigs.{number}.Overrides.{place}"
            for name in overrides:
                if name not in _OVERRIDES:
                    yield f"{path}.{name} is not supported by the local AWS; it has {', '.join(_OVERRIDES)}"
            if "MaxPrice" in overrides and not _is_price(overrides["MaxPrice"]):
                yield f"{path}.MaxPrice must be a price in USD, found {overrides['MaxPrice']!r}"


def _is_price(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
