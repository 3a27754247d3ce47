"""What EC2 requires of a CreateFleet request beside what its model says, and what of it the local AWS has: pure.

Sources: CreateFleet in Amazon EC2's API reference; "EC2 Fleet" in its user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.allocation import SPOT_STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_STRATEGY = "lowest-price"
_SPOT_OPTIONS = {"AllocationStrategy": SPOT_STRATEGIES, "InstanceInterruptionBehavior": ("terminate",)}
_ON_DEMAND_OPTIONS = {"AllocationStrategy": ("lowest-price",)}
_OVERRIDES = ("InstanceType", "SubnetId", "AvailabilityZone", "MaxPrice")


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
    """Return how many instances a TargetCapacitySpecification wants on spot, and how many on demand."""
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
