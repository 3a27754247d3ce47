"""Fleets: what is asked of one, and how it keeps its capacity."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2 import events, fleet_rules
from spotkeep_local.ec2.allocation import Candidate, choose, choose_on_demand
from spotkeep_local.ec2.cloud import refuse_other_request, tag_list, tags_of
from spotkeep_local.ec2.errors import Ec2Error, invalid, wrong_combination
from spotkeep_local.ec2.filters import matches, page
from spotkeep_local.ec2.instances import USER_INITIATED, spot_request_id
from spotkeep_local.ec2.launch import find_subnet, find_template, launch_data, new_instance
from spotkeep_local.ec2.records import Fleet, FleetEvent, FleetState, FleetType, Instance, LaunchSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.instances import Instances

_DEFAULT_STRATEGY = "lowest-price"
_TYPES_IN_EXAMPLES = {
    "fleet-change": "fleetRequestChange",
    "instance-change": "instanceChange",
    "service-error": "error",
}
"""Source: the example on the page of the command `describe-fleet-history`, and API_EventInformation.html."""
_LIVE_STATES = (FleetState.ACTIVE, FleetState.MODIFYING)
_ENDING_STATES = (FleetState.DELETED_RUNNING, FleetState.DELETED_TERMINATING)


class Fleets:
    """The operations on fleets, and what keeps them going.

    Args:
        cloud: What they are part of.
        instances: Launches and ends their instances.
    """

    def __init__(self, cloud: Cloud, instances: Instances) -> None:
        self._cloud = cloud
        self._instances = instances
        self.history_as_in_examples = False
        """Whether DescribeFleetHistory spells event types as AWS's example answers do, not as its model does."""

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """By the API's names."""
        return {
            "CreateFleet": self.create,
            "DeleteFleets": self.delete,
            "ModifyFleet": self.modify,
            "DescribeFleets": self.describe,
            "DescribeFleetInstances": self.describe_instances,
            "DescribeFleetHistory": self.describe_history,
        }

    # The API.

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateFleet: of type instant, answered with what was launched; of type maintain, launched soon after."""
        cloud = self._cloud
        if token := request.get("ClientToken"):
            for fleet in cloud.fleets:
                if fleet.created_from.get("ClientToken") == token:
                    refuse_other_request(token, before=fleet.created_from, request=request)
                    return self._created(fleet)
        if problems := list(fleet_rules.problems(request)):
            raise invalid("; ".join(problems))
        fleet_type = FleetType(request.get("Type", "maintain"))
        fleet = Fleet(
            fleet_id=f"fleet-{uuid.uuid4()}",
            fleet_type=fleet_type,
            state=FleetState.ACTIVE,
            request=request,
            created_from=request,
            created_at=cloud.now(),
            tags=tags_of(request, "fleet"),
        )
        # What cannot be launched at all is refused now, not discovered later.
        candidates = list(self._candidates(fleet))
        for candidate in candidates:
            self._launch_data(fleet, candidate)
        if fleet_type is FleetType.INSTANT:
            fleet = self._launch_at_once(fleet)
        else:
            fleet = self._note(fleet, "fleet-change", "submitted")
            fleet = self._note(fleet, "fleet-change", "active")
        cloud.fleets.put(fleet)
        cloud.wake()
        return self._created(fleet)

    def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteFleets, with or without its instances."""
        deleted, refused = [], []
        terminate = request["TerminateInstances"]
        for fleet_id in request["FleetIds"]:
            try:
                fleet = self._deletable(fleet_id, terminate=terminate)
            except Ec2Error as error:
                refused.append({"FleetId": fleet_id, "Error": {"Code": error.code, "Message": error.message}})
                continue
            state = FleetState.DELETED_TERMINATING if terminate else FleetState.DELETED_RUNNING
            self._cloud.fleets.put(self._note(replace(fleet, state=state), "fleet-change", state.value))
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

    def modify(self, request: dict[str, Any]) -> dict[str, Any]:
        """ModifyFleet: its target, its launch templates, what becomes of too much capacity."""
        fleet = self._shown([request["FleetId"]])[0]
        if fleet.fleet_type is not FleetType.MAINTAIN:
            raise Ec2Error("UnsupportedOperation", f"Fleets of type {fleet.fleet_type.value} cannot be modified")
        if fleet.state not in _LIVE_STATES:
            raise Ec2Error("IncorrectState", f"The fleet {fleet.fleet_id} is {fleet.state.value}")
        changes = {
            name: request[name]
            for name in ("TargetCapacitySpecification", "LaunchTemplateConfigs", "ExcessCapacityTerminationPolicy")
            if name in request
        }
        if "TargetCapacitySpecification" in changes:
            # The kind of capacity stays what it was.
            kept = {"DefaultTargetCapacityType": fleet.target.get("DefaultTargetCapacityType", "on-demand")}
            changes["TargetCapacitySpecification"] = kept | changes["TargetCapacitySpecification"]
        changed = replace(fleet, request=fleet.request | changes, problem="", try_at=0.0)
        if problems := list(fleet_rules.problems(changed.request)):
            raise invalid("; ".join(problems))
        for candidate in self._candidates(changed):
            self._launch_data(changed, candidate)
        changed = self._note(changed, "fleet-change", "modify_in_progress")
        self._cloud.fleets.put(self._note(changed, "fleet-change", "modify_succeeded"))
        self._cloud.wake()
        return {"Return": True}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeFleets. A fleet of type instant is described when it is asked for by its id."""
        ids = request.get("FleetIds")
        found = [
            fleet
            for fleet in self._shown(ids)
            if (ids or fleet.fleet_type is not FleetType.INSTANT)
            and matches(self._filter_values(fleet), fleet.tags, request.get("Filters", []))
        ]
        chosen, token = page(found, request, key=lambda fleet: fleet.fleet_id)
        return {"Fleets": [self._describe(fleet) for fleet in chosen], "NextToken": token}

    def describe_instances(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeFleetInstances: those that run or are about to."""
        fleet = self._shown([request["FleetId"]])[0]
        if fleet.fleet_type is FleetType.INSTANT:
            raise Ec2Error("UnsupportedOperation", "Use DescribeFleets for a fleet of type instant")
        found = [
            instance
            for instance in self._live(fleet)
            if matches({"instance-type": [instance.instance_type]}, {}, request.get("Filters", []))
        ]
        chosen, token = page(found, request, key=lambda instance: instance.instance_id)
        active = [
            {
                "InstanceId": instance.instance_id,
                "InstanceType": instance.instance_type,
                "SpotInstanceRequestId": spot_request_id(instance),
                "InstanceHealth": "healthy",
            }
            for instance in chosen
        ]
        return {"ActiveInstances": active, "FleetId": fleet.fleet_id, "NextToken": token}

    def describe_history(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeFleetHistory."""
        fleet = self._shown([request["FleetId"]])[0]
        start = request["StartTime"]
        wanted = request.get("EventType")
        spelling = _TYPES_IN_EXAMPLES if self.history_as_in_examples else {}
        records = [
            {
                "EventType": spelling.get(event.event_type, event.event_type),
                "Timestamp": event.at,
                "EventInformation": {
                    "EventSubType": event.sub_type,
                    "EventDescription": event.description or None,
                    "InstanceId": event.instance_id,
                },
            }
            for event in fleet.history
            if event.at >= start and wanted in (None, event.event_type)
        ]
        numbered = list(enumerate(records))
        chosen, token = page(numbered, request, key=lambda item: f"{item[0]:09d}")
        return {
            "HistoryRecords": [record for _, record in chosen],
            "FleetId": fleet.fleet_id,
            "StartTime": start,
            "LastEvaluatedTime": self._cloud.now(),
            "NextToken": token,
        }

    # What keeps them going.

    def keep(self, fleet: Fleet) -> None:
        """Looks after one fleet: launches what is missing, ends what is too much, and says when all is over."""
        if fleet.state in _ENDING_STATES:
            if not any(instance.ended_at is None for instance in self._cloud.instances if self._owns(fleet, instance)):
                deleted = replace(fleet, state=FleetState.DELETED)
                self._cloud.fleets.put(self._note(deleted, "fleet-change", "deleted"))
            return
        if fleet.fleet_type is not FleetType.MAINTAIN or fleet.state not in _LIVE_STATES:
            return
        self._rebalance(fleet)
        if self._cloud.now() >= fleet.try_at:
            fleet = self._launch_missing(fleet)
        self._end_excess(fleet)

    def note_notice(self, instance: Instance) -> None:
        """Remembers that an interruption of one of its instances was announced."""
        self._note_of_instance(instance, "termination_notified")

    def note_ended(self, instance: Instance) -> None:
        """Remembers that one of its instances ended."""
        self._note_of_instance(instance, "terminated")

    def wait_before_replacing(self, instance: Instance) -> None:
        """Lets a little time pass between the loss of an instance and the launch of another."""
        if instance.fleet_id is not None and instance.fleet_id in self._cloud.fleets:
            fleet = self._cloud.fleets[instance.fleet_id]
            self._cloud.fleets.put(replace(fleet, try_at=self._cloud.now() + self._cloud.latencies.fleet_seconds))

    def _note_of_instance(self, instance: Instance, sub_type: str) -> None:
        if instance.fleet_id is not None and instance.fleet_id in self._cloud.fleets:
            fleet = self._cloud.fleets[instance.fleet_id]
            description = events.instance_description(instance)
            self._cloud.fleets.put(
                self._note(fleet, "instance-change", sub_type, description, instance_id=instance.instance_id)
            )

    def _launch_missing(self, fleet: Fleet) -> Fleet:
        spot_missing, on_demand_missing = self._missing(fleet)
        if spot_missing <= 0 and on_demand_missing <= 0:
            return fleet
        problem = ("", "", "")
        try:
            while on_demand_missing > 0:
                candidate = choose_on_demand(list(self._candidates(fleet)), strategy=self._on_demand_strategy(fleet))
                on_demand_missing -= self._launch(fleet, candidate, spot=False).weight
            while spot_missing > 0 and not problem[0]:
                candidates = list(self._candidates(fleet))
                chosen = choose(candidates, strategy=self._spot_strategy(fleet))
                if chosen is None:
                    problem = _why_none(candidates)
                else:
                    spot_missing -= self._launch(fleet, chosen, spot=True).weight
        except Ec2Error as error:
            problem = ("service-error", "spotFleetRequestConfigurationInvalid", f"{error.code}: {error.message}")
        fleet = self._cloud.fleets[fleet.fleet_id]
        event_type, sub_type, description = problem
        if description and description != fleet.problem:
            fleet = self._note(fleet, event_type, sub_type, description)
        try_at = self._cloud.now() + self._cloud.latencies.fleet_seconds if description else fleet.try_at
        return self._cloud.fleets.put(replace(fleet, problem=description, try_at=try_at))

    def _end_excess(self, fleet: Fleet) -> None:
        if fleet.request.get("ExcessCapacityTerminationPolicy", "termination") != "termination":
            return
        spot_missing, on_demand_missing = self._missing(fleet)
        for spot, excess in ((True, -spot_missing), (False, -on_demand_missing)):
            mine = [i for i in self._live(fleet) if i.spot is spot and not i.replaced]
            left = excess
            for instance in sorted(mine, key=lambda instance: instance.launched_at, reverse=True):
                if instance.weight <= left:
                    left -= instance.weight
                    self._instances.end(instance.instance_id, reason=USER_INITIATED, power_off=False)

    def _rebalance(self, fleet: Fleet) -> None:
        options = fleet.request.get("SpotOptions") or {}
        rebalance = (options.get("MaintenanceStrategies") or {}).get("CapacityRebalance")
        if not rebalance:
            return
        delay_s = rebalance.get("TerminationDelay")
        for instance in self._live(fleet):
            if instance.rebalance_at is not None and not instance.replaced:
                terminate_at = None
                if delay_s is not None:
                    terminate_at = self._cloud.now() + self._cloud.latencies.scaled(delay_s)
                self._cloud.instances.put(replace(instance, replaced=True, terminate_at=terminate_at))

    def _launch_at_once(self, fleet: Fleet) -> Fleet:
        spot_missing, on_demand_missing = fleet_rules.spot_and_on_demand(fleet.target)
        planned: list[tuple[Candidate, bool]] = []
        taken: dict[int, int] = {}
        errors: list[dict[str, Any]] = []
        candidates = list(self._candidates(fleet))
        while on_demand_missing > 0:
            candidate = choose_on_demand(candidates, strategy=self._on_demand_strategy(fleet))
            planned.append((candidate, False))
            on_demand_missing -= candidate.weight
        while spot_missing > 0:
            left = [_less(candidate, taken.get(candidate.place, 0)) for candidate in candidates]
            chosen = choose(left, strategy=self._spot_strategy(fleet))
            if chosen is None:
                errors = [self._launch_error(fleet, candidate) for candidate in left if candidate.refusal]
                break
            taken[chosen.place] = taken.get(chosen.place, 0) + 1
            planned.append((candidates[chosen.place], True))
            spot_missing -= chosen.weight
        least = (fleet.request.get("SpotOptions") or {}).get("MinTargetCapacity") or 0
        if sum(candidate.weight for candidate, spot in planned if spot) < least:
            planned = [plan for plan in planned if not plan[1]]
        launched: dict[tuple[int, bool], dict[str, Any]] = {}
        for candidate, spot in planned:
            instance = self._launch(fleet, candidate, spot=spot)
            entry = launched.setdefault(
                (candidate.place, spot),
                {
                    "LaunchTemplateAndOverrides": self._template_and_overrides(fleet, candidate),
                    "Lifecycle": "spot" if spot else "on-demand",
                    "InstanceIds": [],
                    "InstanceType": candidate.instance_type,
                },
            )
            entry["InstanceIds"].append(instance.instance_id)
        return replace(fleet, launched=tuple(launched.values()), errors=tuple(errors))

    def _launch(self, fleet: Fleet, candidate: Candidate, *, spot: bool) -> Instance:
        data = self._launch_data(fleet, candidate)
        data = replace(data, tags=data.tags | tags_of(fleet.request, "instance"))
        instance = new_instance(self._cloud, data, spot=spot, fleet_id=fleet.fleet_id, weight=candidate.weight)
        instance = replace(
            instance,
            tags={
                "aws:ec2:fleet-id": fleet.fleet_id,
                "aws:ec2launchtemplate:id": data.source.template_id if data.source else "",
                "aws:ec2launchtemplate:version": data.source.version if data.source else "",
                **instance.tags,
            },
        )
        self._instances.launch(instance)
        self._note_of_instance(instance, "launched")
        return instance

    def _launch_data(self, fleet: Fleet, candidate: Candidate) -> Any:
        config = fleet.request["LaunchTemplateConfigs"][candidate.config]
        template = find_template(self._cloud, config["LaunchTemplateSpecification"])
        source = LaunchSource(template_id=template.template_id, version=template.version, overrides=candidate.overrides)
        place = {"SubnetId": candidate.subnet_id, "AvailabilityZone": candidate.zone}
        if self._cloud.surroundings.subnet(candidate.subnet_id) is None:
            del place["SubnetId"]
        data = template.data | candidate.overrides | {"InstanceType": candidate.instance_type} | place
        return launch_data(self._cloud, data, source=source)

    def _candidates(self, fleet: Fleet) -> Iterator[Candidate]:
        """Every pool that the fleet may take from, in the order of its request."""
        place = 0
        for number, config in enumerate(fleet.request["LaunchTemplateConfigs"]):
            template = find_template(self._cloud, config["LaunchTemplateSpecification"])
            for overrides in config.get("Overrides") or [{}]:
                data = template.data | overrides
                if not data.get("InstanceType"):
                    raise invalid(f"LaunchTemplateConfigs.{number + 1} names no InstanceType, nor does its template")
                for subnet in self._subnets(data):
                    yield self._candidate(fleet, place=place, config=number, data=data, overrides=overrides, at=subnet)
                    place += 1

    def _subnets(self, data: dict[str, Any]) -> list[Any]:
        interfaces = data.get("NetworkInterfaces") or [{}]
        somewhere = data.get("SubnetId") or data.get("AvailabilityZone") or interfaces[0].get("SubnetId")
        return [find_subnet(self._cloud, data)] if somewhere else self._cloud.surroundings.default_subnets()

    def _candidate(
        self, fleet: Fleet, *, place: int, config: int, data: dict[str, Any], overrides: dict[str, Any], at: Any
    ) -> Candidate:
        instance_type = str(data["InstanceType"])
        pool = self._cloud.market.pool(instance_type=instance_type, zone=at.zone, now=self._cloud.now())
        there = [
            instance
            for instance in self._cloud.instances
            if instance.spot
            and instance.state.live
            and (instance.instance_type, instance.zone) == (instance_type, at.zone)
        ]
        max_price = overrides.get("MaxPrice") or (
            ((data.get("InstanceMarketOptions") or {}).get("SpotOptions") or {}).get("MaxPrice")
        )
        return Candidate(
            place=place,
            config=config,
            instance_type=instance_type,
            zone=at.zone,
            subnet_id=at.subnet_id,
            price_usd=pool.price_usd,
            room=None if pool.capacity is None else pool.capacity - len(there),
            max_price_usd=float(max_price) if max_price else None,
            weight=float(overrides.get("WeightedCapacity", 1)),
            priority=float(overrides.get("Priority", "inf")),
            running=sum(self._owns(fleet, instance) for instance in there),
            overrides=overrides,
        )

    def _missing(self, fleet: Fleet) -> tuple[float, float]:
        spot, on_demand = fleet_rules.spot_and_on_demand(fleet.target)
        counted = [instance for instance in self._live(fleet) if not instance.replaced]
        spot -= sum(instance.weight for instance in counted if instance.spot)
        on_demand -= sum(instance.weight for instance in counted if not instance.spot)
        return spot, on_demand

    def _shown(self, ids: list[str] | None) -> list[Fleet]:
        return self._cloud.fleets.shown(ids, made_before=self._cloud.shown_before)

    def _live(self, fleet: Fleet) -> list[Instance]:
        return [i for i in self._cloud.instances if self._owns(fleet, i) and i.state.live]

    @staticmethod
    def _owns(fleet: Fleet, instance: Instance) -> bool:
        return instance.fleet_id == fleet.fleet_id

    def _deletable(self, fleet_id: str, *, terminate: bool) -> Fleet:
        if not any(fleet.fleet_id == fleet_id for fleet in self._shown(None)):
            raise Ec2Error("fleetIdDoesNotExist", f"The fleet ID '{fleet_id}' does not exist")
        fleet = self._cloud.fleets[fleet_id]
        if fleet.state not in _LIVE_STATES:
            raise Ec2Error("fleetNotInDeletableState", f"The fleet {fleet_id} is {fleet.state.value}")
        if fleet.fleet_type is FleetType.INSTANT and not terminate:
            raise wrong_combination("A fleet of type instant can only be deleted together with its instances")
        return fleet

    def _note(
        self, fleet: Fleet, event_type: str, sub_type: str, description: str = "", *, instance_id: str | None = None
    ) -> Fleet:
        event = FleetEvent(
            at=self._cloud.now(),
            event_type=event_type,
            sub_type=sub_type,
            description=description,
            instance_id=instance_id,
        )
        # Fleets of type instant send no events.
        if fleet.fleet_type is not FleetType.INSTANT:
            self._cloud.send_event(*events.fleet_event(event, arn=self._cloud.arn("fleet", fleet.fleet_id)))
        return fleet.with_event(event)

    @staticmethod
    def _spot_strategy(fleet: Fleet) -> str:
        return str((fleet.request.get("SpotOptions") or {}).get("AllocationStrategy", _DEFAULT_STRATEGY))

    @staticmethod
    def _on_demand_strategy(fleet: Fleet) -> str:
        return str((fleet.request.get("OnDemandOptions") or {}).get("AllocationStrategy", _DEFAULT_STRATEGY))

    # What describes them.

    def _created(self, fleet: Fleet) -> dict[str, Any]:
        if fleet.fleet_type is not FleetType.INSTANT:
            return {"FleetId": fleet.fleet_id}
        return {"FleetId": fleet.fleet_id, "Instances": list(fleet.launched), "Errors": list(fleet.errors)}

    def _launch_error(self, fleet: Fleet, candidate: Candidate) -> dict[str, Any]:
        code, message = candidate.refusal or ("", "")
        return {
            "LaunchTemplateAndOverrides": self._template_and_overrides(fleet, candidate),
            "Lifecycle": "spot",
            "ErrorCode": code,
            "ErrorMessage": message,
        }

    def _template_and_overrides(self, fleet: Fleet, candidate: Candidate) -> dict[str, Any]:
        config = fleet.request["LaunchTemplateConfigs"][candidate.config]
        template = find_template(self._cloud, config["LaunchTemplateSpecification"])
        overrides: dict[str, Any] = {"InstanceType": candidate.instance_type, "AvailabilityZone": candidate.zone}
        return {
            "LaunchTemplateSpecification": {
                "LaunchTemplateId": template.template_id,
                "Version": template.version,
            },
            "Overrides": overrides | candidate.overrides,
        }

    def _activity(self, fleet: Fleet) -> str:
        if fleet.state in (*_ENDING_STATES, FleetState.DELETED):
            return "pending_termination" if self._live(fleet) else "fulfilled"
        if fleet.fleet_type is FleetType.INSTANT:
            return "fulfilled"
        if fleet.problem:
            return "error"
        return "pending_fulfillment" if max(self._missing(fleet)) > 0 else "fulfilled"

    def _filter_values(self, fleet: Fleet) -> dict[str, list[str]]:
        return {
            "activity-status": [self._activity(fleet)],
            "excess-capacity-termination-policy": [fleet.request.get("ExcessCapacityTerminationPolicy", "termination")],
            "fleet-state": [fleet.state.value],
            "replace-unhealthy-instances": [str(fleet.request.get("ReplaceUnhealthyInstances", False)).lower()],
            "type": [fleet.fleet_type.value],
        }

    def _describe(self, fleet: Fleet) -> dict[str, Any]:
        request = fleet.request
        live = self._live(fleet)
        spot, on_demand = fleet_rules.spot_and_on_demand(fleet.target)
        return {
            "FleetId": fleet.fleet_id,
            "FleetState": fleet.state.value,
            "ActivityStatus": self._activity(fleet),
            "Type": fleet.fleet_type.value,
            "CreateTime": fleet.created_at,
            "ClientToken": fleet.created_from.get("ClientToken"),
            "ExcessCapacityTerminationPolicy": request.get("ExcessCapacityTerminationPolicy", "termination"),
            "FulfilledCapacity": sum(instance.weight for instance in live),
            "FulfilledOnDemandCapacity": sum(instance.weight for instance in live if not instance.spot),
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": config["LaunchTemplateSpecification"],
                    "Overrides": config.get("Overrides") or [],
                }
                for config in request["LaunchTemplateConfigs"]
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": fleet.target["TotalTargetCapacity"],
                "SpotTargetCapacity": int(spot),
                "OnDemandTargetCapacity": int(on_demand),
                "DefaultTargetCapacityType": fleet.target.get("DefaultTargetCapacityType", "on-demand"),
            },
            "TerminateInstancesWithExpiration": request.get("TerminateInstancesWithExpiration", False),
            "ReplaceUnhealthyInstances": request.get("ReplaceUnhealthyInstances", False),
            "SpotOptions": {"AllocationStrategy": self._spot_strategy(fleet)} | request.get("SpotOptions", {}),
            "OnDemandOptions": {"AllocationStrategy": self._on_demand_strategy(fleet)}
            | request.get("OnDemandOptions", {}),
            "Tags": tag_list(fleet.tags),
            "Errors": list(fleet.errors),
            "Instances": list(fleet.launched),
        }


def _less(candidate: Candidate, taken: int) -> Candidate:
    room = None if candidate.room is None else candidate.room - taken
    return replace(candidate, room=room, running=candidate.running + taken)


def _why_none(candidates: list[Candidate]) -> tuple[str, str, str]:
    """Event type, sub-type and description of why no pool has an instance to give."""
    refusals = sorted({refusal for candidate in candidates if (refusal := candidate.refusal) is not None})
    description = "; ".join(f"{code}: {message}" for code, message in refusals)
    if refusals and all(code == "SpotMaxPriceTooLow" for code, _ in refusals):
        return "information", "fleetProgressHalted", description
    return "service-error", "allLaunchSpecsTemporarilyBlacklisted", description
