"""Fleets of type maintain, with the rules for their requests, the operations on them and the upkeep of their capacity.

Sources: CreateFleet in Amazon EC2's API reference, and "EC2 Fleet" in its user guide.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2 import records
from spotkeep_local.ec2.cloud import refuse_other_request, requested_tags, tag_list
from spotkeep_local.ec2.errors import Ec2Error, invalid
from spotkeep_local.ec2.filters import in_one_page
from spotkeep_local.ec2.instances import USER_INITIATED
from spotkeep_local.ec2.launch import find_subnets, find_template, new_instance
from spotkeep_local.ec2.records import FleetState, LocalFleet, LocalFleetEvent, LocalInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.instances import Instances
    from spotkeep_local.ec2.surroundings import LocalSubnet

DEFAULT_STRATEGY = "lowest-price"
_ON_DEMAND_OPTIONS = {"AllocationStrategy": ("lowest-price",)}
_OVERRIDES = ("InstanceType", "SubnetId", "AvailabilityZone", "MaxPrice", "Placement")


@dataclass(frozen=True, kw_only=True)
class CandidatePool:
    """A pool that a fleet may take an instance from.

    Attributes:
        place: Its place among the overrides of the request.
        config: The place of its LaunchTemplateConfig.
        room: The number of further instances that it has room for, or None for any number.
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


_ENDING_STATES = (FleetState.DELETED_RUNNING, FleetState.DELETED_TERMINATING)


class FleetOperations:
    """The operations on fleets, and the upkeep of their capacity.

    Args:
        cloud: The local EC2.
        instances: Launches and ends their instances.
    """

    def __init__(self, cloud: Cloud, instances: Instances) -> None:
        self._cloud = cloud
        self._instances = instances

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {
            "CreateFleet": self.create,
            "DeleteFleets": self.delete,
            "DescribeFleets": self.describe,
            "DescribeFleetInstances": self.describe_instances,
            "DescribeFleetHistory": self.describe_history,
        }

    # The API.

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateFleet. The instances are launched soon after."""
        cloud = self._cloud
        if token := request.get("ClientToken"):
            for fleet in cloud.fleets:
                if fleet.request.get("ClientToken") == token:
                    refuse_other_request(token, before=fleet.request, request=request)
                    return {"FleetId": fleet.fleet_id}
        if wrong := list(problems(request)):
            raise invalid("; ".join(wrong))
        fleet = LocalFleet(
            fleet_id=f"fleet-{uuid.uuid4()}",
            state=FleetState.ACTIVE,
            request=request,
            created_at=cloud.now(),
            tags=requested_tags(request, "fleet"),
        )
        # As on AWS, a template or a subnet that does not exist refuses the fleet; what its instances lack does not.
        list(self._candidates(fleet))
        fleet = self._add_event(fleet, "fleet-change", "submitted")
        cloud.fleets.put(self._add_event(fleet, "fleet-change", "active"))
        cloud.wake()
        return {"FleetId": fleet.fleet_id}

    def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteFleets, with or without its instances."""
        deleted, refused = [], []
        terminate = request["TerminateInstances"]
        for fleet_id in request["FleetIds"]:
            try:
                fleet = self._deletable(fleet_id)
            except Ec2Error as error:
                refused.append({"FleetId": fleet_id, "Error": {"Code": error.code, "Message": error.message}})
                continue
            state = FleetState.DELETED_TERMINATING if terminate else FleetState.DELETED_RUNNING
            self._cloud.fleets.put(self._add_event(replace(fleet, state=state), "fleet-change", state.value))
            if terminate:
                for instance in self._live(fleet):
                    self._instances.end(instance.instance_id, reason=USER_INITIATED, power_off=False)
            deleted.append(
                {
                    "FleetId": fleet_id,
                    "PreviousFleetState": fleet.state.value,
                    "CurrentFleetState": state.value,
                }
            )
        self._cloud.wake()
        return {"SuccessfulFleetDeletions": deleted, "UnsuccessfulFleetDeletions": refused}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeFleets."""
        found = self._cloud.fleets.described(
            request,
            ids="FleetIds",
            values=lambda fleet: {"fleet-state": [fleet.state.value]},
            made_before=self._cloud.shown_before,
        )
        return {"Fleets": [self._describe(fleet) for fleet in found]}

    def describe_instances(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeFleetInstances: those that run or are about to."""
        fleet = self._shown([request["FleetId"]])[0]
        active = [
            {"InstanceId": instance.instance_id, "InstanceType": instance.instance_type, "InstanceHealth": "healthy"}
            for instance in in_one_page(self._live(fleet), request)
        ]
        return {"ActiveInstances": active, "FleetId": fleet.fleet_id}

    def describe_history(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeFleetHistory."""
        fleet = self._shown([request["FleetId"]])[0]
        records = [
            {
                "EventType": event.event_type,
                "Timestamp": event.at,
                "EventInformation": {
                    "EventSubType": event.sub_type,
                    "EventDescription": event.description or None,
                    "InstanceId": event.instance_id,
                },
            }
            for event in fleet.history
            if event.at >= request["StartTime"] and request.get("EventType") in (None, event.event_type)
        ]
        return {
            "HistoryRecords": in_one_page(records, request),
            "FleetId": fleet.fleet_id,
            "StartTime": request["StartTime"],
            "LastEvaluatedTime": self._cloud.now(),
        }

    # What keeps their capacity.

    def keep(self, fleet: LocalFleet) -> None:
        """Launch the instances that one fleet lacks, and marks a fleet as deleted when its last instance ended."""
        if fleet.state in _ENDING_STATES:
            if not any(i.fleet_id == fleet.fleet_id and i.ended_at is None for i in self._cloud.instances):
                deleted = replace(fleet, state=FleetState.DELETED)
                self._cloud.fleets.put(self._add_event(deleted, "fleet-change", "deleted"))
        elif fleet.state is FleetState.ACTIVE and self._cloud.now() >= fleet.try_at:
            self._launch_missing(fleet)

    def note_notice(self, instance: LocalInstance) -> None:
        """Write to the fleet's history that an interruption of one of its instances was announced."""
        self._add_instance_event(instance, "termination_notified")

    def note_ended(self, instance: LocalInstance) -> None:
        """Write to the fleet's history that one of its instances ended."""
        self._add_instance_event(instance, "terminated")

    def wait_before_replacing(self, instance: LocalInstance) -> None:
        """Let some time pass between the loss of an instance and the launch of another."""
        if instance.fleet_id in self._cloud.fleets:
            fleet = self._cloud.fleets[instance.fleet_id]
            self._cloud.fleets.put(replace(fleet, try_at=self._cloud.now() + self._cloud.latencies.fleet_seconds))

    def _launch_missing(self, fleet: LocalFleet) -> None:
        spot_missing, on_demand_missing = self._missing(fleet)
        if spot_missing <= 0 and on_demand_missing <= 0:
            return
        problem = ("", "", "")
        try:
            for _ in range(on_demand_missing):
                self._launch(fleet, choose_on_demand(list(self._candidates(fleet))), spot=False)
            for _ in range(spot_missing):
                candidates = list(self._candidates(fleet))
                chosen = choose_pool(candidates, strategy=_spot_strategy(fleet))
                if chosen is None:
                    problem = _why_none(candidates)
                    break
                self._launch(fleet, chosen, spot=True)
        except Ec2Error as error:
            problem = ("service-error", "spotFleetRequestConfigurationInvalid", f"{error.code}: {error.message}")
        fleet = self._cloud.fleets[fleet.fleet_id]
        event_type, sub_type, description = problem
        if description and description != fleet.problem:
            fleet = self._add_event(fleet, event_type, sub_type, description)
        try_at = self._cloud.now() + self._cloud.latencies.fleet_seconds if description else fleet.try_at
        self._cloud.fleets.put(replace(fleet, problem=description, try_at=try_at))

    def _launch(self, fleet: LocalFleet, candidate: CandidatePool, *, spot: bool) -> None:
        config = fleet.request["LaunchTemplateConfigs"][candidate.config]
        template = find_template(self._cloud, config["LaunchTemplateSpecification"])
        own_tags = {
            "aws:ec2:fleet-id": fleet.fleet_id,
            "aws:ec2launchtemplate:id": template.template_id,
            "aws:ec2launchtemplate:version": template.version,
        }
        instance = new_instance(
            self._cloud,
            template.data | candidate.overrides,
            subnet=candidate.subnet,
            fleet=fleet,
            own_tags=own_tags,
            spot=spot,
        )
        self._instances.launch(instance)
        self._add_instance_event(instance, "launched")

    def _candidates(self, fleet: LocalFleet) -> Iterator[CandidatePool]:
        """Yield every pool that the fleet may take from, in the order of its request."""
        place = 0
        for number, config in enumerate(fleet.request["LaunchTemplateConfigs"]):
            template = find_template(self._cloud, config["LaunchTemplateSpecification"])
            for overrides in config.get("Overrides") or [{}]:
                data = template.data | overrides
                if not data.get("InstanceType"):
                    raise invalid(f"LaunchTemplateConfigs.{number + 1} names no InstanceType, nor does its template")
                for subnet in find_subnets(self._cloud, data):
                    pool = self._cloud.market.pool(
                        instance_type=data["InstanceType"], zone=subnet.zone, now=self._cloud.now()
                    )
                    taken = self._spot_instances(data["InstanceType"], subnet.zone)
                    yield CandidatePool(
                        place=place,
                        config=number,
                        instance_type=data["InstanceType"],
                        subnet=subnet,
                        price_usd=pool.price_usd,
                        room=None if pool.capacity is None else pool.capacity - taken,
                        max_price_usd=float(overrides["MaxPrice"]) if "MaxPrice" in overrides else None,
                        overrides=overrides,
                    )
                    place += 1

    def _spot_instances(self, instance_type: str, zone: str) -> int:
        return sum(
            instance.spot and instance.state.live and (instance.instance_type, instance.zone) == (instance_type, zone)
            for instance in self._cloud.instances
        )

    def _missing(self, fleet: LocalFleet) -> tuple[int, int]:
        spot, on_demand = spot_and_on_demand(fleet.target)
        live = self._live(fleet)
        return spot - sum(i.spot for i in live), on_demand - sum(not i.spot for i in live)

    def _shown(self, ids: list[str] | None) -> list[LocalFleet]:
        return self._cloud.fleets.shown(ids, made_before=self._cloud.shown_before)

    def _live(self, fleet: LocalFleet) -> list[LocalInstance]:
        return [i for i in self._cloud.instances if i.fleet_id == fleet.fleet_id and i.state.live]

    def _deletable(self, fleet_id: str) -> LocalFleet:
        if not any(fleet.fleet_id == fleet_id for fleet in self._shown(None)):
            raise Ec2Error("fleetIdDoesNotExist", f"The fleet ID '{fleet_id}' does not exist")
        fleet = self._cloud.fleets[fleet_id]
        if fleet.state is not FleetState.ACTIVE:
            raise Ec2Error("fleetNotInDeletableState", f"The fleet {fleet_id} is {fleet.state.value}")
        return fleet

    def _add_instance_event(self, instance: LocalInstance, sub_type: str) -> None:
        if instance.fleet_id in self._cloud.fleets:
            fleet = self._cloud.fleets[instance.fleet_id]
            description = records.instance_description(instance)
            self._cloud.fleets.put(
                self._add_event(fleet, "instance-change", sub_type, description, instance_id=instance.instance_id)
            )

    def _add_event(
        self,
        fleet: LocalFleet,
        event_type: str,
        sub_type: str,
        description: str = "",
        *,
        instance_id: str | None = None,
    ) -> LocalFleet:
        event = LocalFleetEvent(
            at=self._cloud.now(),
            event_type=event_type,
            sub_type=sub_type,
            description=description,
            instance_id=instance_id,
        )
        self._cloud.send_event(*records.fleet_event(event, arn=self._cloud.arn("fleet", fleet.fleet_id)))
        return fleet.with_event(event)

    def _describe(self, fleet: LocalFleet) -> dict[str, Any]:
        request = fleet.request
        live = self._live(fleet)
        spot, on_demand = spot_and_on_demand(fleet.target)
        return {
            "FleetId": fleet.fleet_id,
            "FleetState": fleet.state.value,
            "ActivityStatus": self._activity(fleet),
            "Type": "maintain",
            "CreateTime": fleet.created_at,
            "ClientToken": request.get("ClientToken"),
            "FulfilledCapacity": float(len(live)),
            "FulfilledOnDemandCapacity": float(sum(not instance.spot for instance in live)),
            "LaunchTemplateConfigs": request["LaunchTemplateConfigs"],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": fleet.target["TotalTargetCapacity"],
                "SpotTargetCapacity": spot,
                "OnDemandTargetCapacity": on_demand,
                "DefaultTargetCapacityType": fleet.target.get("DefaultTargetCapacityType", "on-demand"),
            },
            "SpotOptions": request.get("SpotOptions"),
            "Tags": tag_list(fleet.tags),
        }

    def _activity(self, fleet: LocalFleet) -> str:
        if fleet.state is not FleetState.ACTIVE:
            return "pending_termination" if self._live(fleet) else "fulfilled"
        if fleet.problem:
            return "error"
        return "pending_fulfillment" if max(self._missing(fleet)) > 0 else "fulfilled"


def _spot_strategy(fleet: LocalFleet) -> str:
    return str((fleet.request.get("SpotOptions") or {}).get("AllocationStrategy", DEFAULT_STRATEGY))


def _why_none(candidates: list[CandidatePool]) -> tuple[str, str, str]:
    """Return event type, sub-type and description of why no pool has an instance."""
    refusals = sorted({refusal for candidate in candidates if (refusal := candidate.refusal) is not None})
    description = "; ".join(f"{code}: {message}" for code, message in refusals)
    if refusals and all(code == "SpotMaxPriceTooLow" for code, _ in refusals):
        return "information", "fleetProgressHalted", description
    return "service-error", "allLaunchSpecsTemporarilyBlacklisted", description
