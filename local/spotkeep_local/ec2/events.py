"""The events of EC2 and EC2 Fleet, as pure functions that return detail, detail type and resources.

Sources: "EC2 Fleet event types", "Spot Instance interruption notices" and "State change events for your instances" in
Amazon EC2's user guide.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotkeep_local.ec2.records import InstanceState, LocalFleetEvent, LocalInstance

Event = tuple[dict[str, Any], str, list[str]]

INTERRUPTION_WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE_RECOMMENDATION = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
_FLEET_PREFIX = "EC2 Fleet "
_FLEET_DETAIL_TYPES = {
    "fleet-change": "EC2 Fleet State Change",
    "instance-change": "EC2 Fleet Instance Change",
    "service-error": "EC2 Fleet Error",
    "information": "EC2 Fleet Information",
}


def source_of(detail_type: str) -> str:
    """Return the source of an event, which its detail type decides."""
    return "aws.ec2fleet" if detail_type.startswith(_FLEET_PREFIX) else "aws.ec2"


def interruption_warning(*, instance_id: str, zone: str) -> Event:
    """Return the notice of an interruption, which names neither tags nor the fleet, as on AWS."""
    detail = {"instance-id": instance_id, "instance-action": "terminate"}
    return detail, INTERRUPTION_WARNING, [f"arn:aws:ec2:{zone}:instance/{instance_id}"]


def rebalance_recommendation(*, instance_id: str, zone: str) -> Event:
    """Return the recommendation that a spot instance at elevated risk be replaced."""
    return {"instance-id": instance_id}, REBALANCE_RECOMMENDATION, [f"arn:aws:ec2:{zone}:instance/{instance_id}"]


def state_change(*, instance_id: str, state: InstanceState, arn: str) -> Event:
    """Return the event that an instance entered a state."""
    return {"instance-id": instance_id, "state": state.value}, STATE_CHANGE, [arn]


def fleet_event(event: LocalFleetEvent, *, arn: str) -> Event:
    """Return the event of one entry in a fleet's history."""
    detail: dict[str, Any] = {"sub-type": event.sub_type}
    if event.instance_id:
        detail["instance-id"] = event.instance_id
    if event.description:
        detail["description"] = event.description
    return detail, _FLEET_DETAIL_TYPES[event.event_type], [arn]


def instance_description(instance: LocalInstance) -> str:
    """Return the description of an instance in a fleet's history, which is JSON in a text."""
    return json.dumps(
        {
            "instanceType": instance.instance_type,
            "image": instance.image_id,
            "productDescription": "Linux/UNIX",
            "availabilityZone": instance.zone,
        }
    )
