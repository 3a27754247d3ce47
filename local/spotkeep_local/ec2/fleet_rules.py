"""What EC2 says in prose of a fleet's request, beside what its model says: pure functions.

Sources: CreateFleet and ModifyFleet in Amazon EC2's API reference; "EC2 Fleet" in its user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_CONFIGS = 50
_MOST_CAPACITY = 10_000
_TERMINATION_DELAYS_S = (120, 7200)


def problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Every reason to refuse a CreateFleet request; none when it is good."""
    kind = request.get("Type", "maintain")
    if kind == "request":
        yield "Type request is not supported by the local AWS; use maintain or instant"
    yield from _capacity_problems(request["TargetCapacitySpecification"])
    yield from config_problems(request.get("LaunchTemplateConfigs") or [])
    yield from _rebalance_problems(request, kind)
    if kind == "maintain":
        if any(tags.get("ResourceType") == "instance" for tags in request.get("TagSpecifications") or []):
            yield (
                "TagSpecifications with ResourceType instance are for fleets of type instant only; "
                "tag the instances of this fleet through its launch template"
            )
        for name in ("SingleInstanceType", "SingleAvailabilityZone", "MinTargetCapacity"):
            if (request.get("SpotOptions") or {}).get(name):
                yield f"SpotOptions.{name} is for fleets of type instant only"


def config_problems(configs: list[dict[str, Any]]) -> Iterator[str]:
    """Every reason to refuse launch template configurations."""
    if not 1 <= len(configs) <= _MOST_CONFIGS:
        yield f"LaunchTemplateConfigs must be from 1 to {_MOST_CONFIGS}, found {len(configs)}"
    for number, config in enumerate(configs, start=1):
        specification = config.get("LaunchTemplateSpecification") or {}
        if bool(specification.get("LaunchTemplateId")) == bool(specification.get("LaunchTemplateName")):
            yield f"LaunchTemplateConfigs.{number} must name a launch template by its id or by its name"
        if not specification.get("Version"):
            yield f"LaunchTemplateConfigs.{number} must name a version of its launch template"
        for place, overrides in enumerate(config.get("Overrides") or [], start=1):
            path = f"LaunchTemplateConfigs.{number}.Overrides.{place}"
            if "InstanceRequirements" in overrides:
                yield f"{path}.InstanceRequirements are not supported by the local AWS; name instance types"
            if "MaxPrice" in overrides and not _is_price(overrides["MaxPrice"]):
                yield f"{path}.MaxPrice must be a price in USD, found {overrides['MaxPrice']!r}"
            if overrides.get("WeightedCapacity", 1) <= 0:
                yield f"{path}.WeightedCapacity must be above 0, found {overrides['WeightedCapacity']:g}"


def spot_and_on_demand(target: Mapping[str, Any]) -> tuple[float, float]:
    """How many units of capacity a TargetCapacitySpecification wants on spot, and how many on demand."""
    total = float(target["TotalTargetCapacity"])
    spot, on_demand = target.get("SpotTargetCapacity"), target.get("OnDemandTargetCapacity")
    if target.get("DefaultTargetCapacityType", "on-demand") == "spot":
        on_demand = float(on_demand or 0)
        return total - on_demand, on_demand
    spot = float(spot or 0)
    return spot, total - spot


def _capacity_problems(target: Mapping[str, Any]) -> Iterator[str]:
    total = target["TotalTargetCapacity"]
    if not 0 <= total <= _MOST_CAPACITY:
        yield f"TotalTargetCapacity must be from 0 to {_MOST_CAPACITY}, found {total}"
    parts = (target.get("SpotTargetCapacity") or 0) + (target.get("OnDemandTargetCapacity") or 0)
    if parts > total:
        yield f"SpotTargetCapacity and OnDemandTargetCapacity are {parts}, more than TotalTargetCapacity {total}"


def _rebalance_problems(request: Mapping[str, Any], kind: str) -> Iterator[str]:
    rebalance = ((request.get("SpotOptions") or {}).get("MaintenanceStrategies") or {}).get("CapacityRebalance")
    if not rebalance:
        return
    if kind != "maintain":
        yield "CapacityRebalance is for fleets of type maintain only"
    delay_s = rebalance.get("TerminationDelay")
    if rebalance.get("ReplacementStrategy") == "launch-before-terminate":
        low, high = _TERMINATION_DELAYS_S
        if delay_s is None or not low <= delay_s <= high:
            yield f"TerminationDelay must be from {low} to {high} seconds with launch-before-terminate, found {delay_s}"
    elif delay_s is not None:
        yield "TerminationDelay needs ReplacementStrategy launch-before-terminate"


def _is_price(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
