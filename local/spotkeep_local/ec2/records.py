"""The resources of the local EC2 and their events, as values and pure functions.

Times are epoch seconds. A state that only time changes is not stored. It follows from the moment at which it ends.

Sources: "EC2 Fleet event types", "Spot Instance interruption notices" and "State change events for your instances" in
Amazon EC2's user guide.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spotkeep_local.capacity import JsonDocument
from spotkeep_local.hosts.metadata import MetadataSettings


class AttachmentState(StrEnum):
    """The state of a volume's attachment to an instance."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    BUSY = "busy"


class InstanceState(StrEnum):
    """The state of an instance. The local EC2 stops none."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def code(self) -> int:
        """`InstanceState.Code` of the API."""
        return {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}[self.value]

    @property
    def live(self) -> bool:
        """True where it counts towards a fleet's capacity."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING)


class FleetState(StrEnum):
    """The state of a fleet."""

    ACTIVE = "active"
    DELETED_RUNNING = "deleted_running"
    DELETED_TERMINATING = "deleted_terminating"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class LocalAttachment:
    """A volume's attachment to an instance.

    Attributes:
        due_at: The time when attaching or detaching is done, if the instance does not keep the volume busy.
        force: The detach was forced.
    """

    instance_id: str
    device: str
    state: AttachmentState
    requested_at: float
    due_at: float
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class LocalVolume:
    """A volume.

    Attributes:
        request: The CreateVolume request, for the idempotence of its client token, and for values that are only
            recorded.
        ready_at: The time when it has been created, in epoch seconds.
    """

    volume_id: str
    zone: str
    size_gib: int
    volume_type: str
    request: dict[str, Any]
    created_at: float
    ready_at: float
    encrypted: bool = False
    snapshot_id: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    attachment: LocalAttachment | None = None

    def state(self, now: float) -> str:
        """Return creating, available or in-use."""
        if now < self.ready_at:
            return "creating"
        return "available" if self.attachment is None else "in-use"


@dataclass(frozen=True, kw_only=True)
class LocalSnapshot:
    """A snapshot.

    Attributes:
        used_bytes: The size of the data in it.
        ready_at: The time when all of it has been copied.
    """

    snapshot_id: str
    volume_id: str
    volume_size_gib: int
    used_bytes: int
    started_at: float
    ready_at: float
    description: str = ""
    encrypted: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    def state(self, now: float) -> str:
        """Return pending or completed."""
        return "pending" if now < self.ready_at else "completed"

    def progress_percent(self, now: float) -> int:
        """Return the copied part, in percent."""
        if now >= self.ready_at:
            return 100
        return int(100 * max(0.0, now - self.started_at) / (self.ready_at - self.started_at))


@dataclass(frozen=True, kw_only=True)
class AnnouncedInterruption:
    """The interruption of a spot instance, as its notice says it.

    Attributes:
        notice_at: The time of its announcement in the metadata.
        at: The time of the interruption in the metadata.
        takes_place: True where it happens.
    """

    notice_at: float
    at: float
    takes_place: bool = True


@dataclass(frozen=True, kw_only=True)
class InstanceProfile:
    """The profile of an instance, and the role in it."""

    arn: str
    profile_id: str
    role: str


@dataclass(frozen=True, kw_only=True)
class LocalInterface:
    """A network interface of an instance, as its launch template specifies it. The first one has the address.

    Attributes:
        kind: `interface`, `efa` or `efa-only`.
        groups: The ids of its security groups.
    """

    device_index: int = 0
    card_index: int = 0
    kind: str = "interface"
    groups: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LocalInstance:
    """An instance. Every instance is launched by a fleet.

    Attributes:
        interfaces: Its network interfaces, the first one first.
        placement_group: The name of the placement group in which it is.
        due_at: While pending: when it runs.
        reason_code: The reason why it ended, as `StateReason.Code`.
    """

    instance_id: str
    fleet_id: str
    instance_type: str
    zone: str
    subnet_id: str
    vpc_id: str
    private_ip: str
    image_id: str
    spot: bool
    state: InstanceState
    launched_at: float
    due_at: float
    profile: InstanceProfile | None = None
    settings: MetadataSettings = field(default_factory=MetadataSettings)
    user_data: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    interruption: AnnouncedInterruption | None = None
    rebalance_at: float | None = None
    running_at: float | None = None
    ended_at: float | None = None
    reason_code: str = ""
    reason: str = ""
    user_data_exit_code: int | None = None
    interfaces: tuple[LocalInterface, ...] = ()
    placement_group: str | None = None

    @property
    def security_groups(self) -> tuple[str, ...]:
        """The ids of the groups that decide about its address."""
        return self.interfaces[0].groups if self.interfaces else ()


@dataclass(frozen=True, kw_only=True)
class LocalFleetEvent:
    """One event of a fleet's history, of type `fleet-change`, `instance-change`, `service-error` or `information`."""

    at: float
    event_type: str
    sub_type: str
    description: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class LocalFleet:
    """A fleet of type maintain.

    Attributes:
        request: The CreateFleet request.
        problem: The reason why capacity is missing. Written to the history once, and again when it changes.
        try_at: The earliest time at which it launches again, in epoch seconds.
    """

    fleet_id: str
    state: FleetState
    request: dict[str, Any]
    created_at: float
    tags: dict[str, str] = field(default_factory=dict)
    history: tuple[LocalFleetEvent, ...] = ()
    problem: str = ""
    try_at: float = 0.0

    @property
    def target(self) -> dict[str, Any]:
        """The TargetCapacitySpecification."""
        specification: dict[str, Any] = self.request["TargetCapacitySpecification"]
        return specification

    def with_event(self, event: LocalFleetEvent) -> LocalFleet:
        """Return the fleet with one more event in its history."""
        return replace(self, history=(*self.history, event))


@dataclass(frozen=True, kw_only=True)
class InstanceFacts(JsonDocument):
    """The facts about an instance, as the local AWS knows them. Times are epoch seconds.

    Attributes:
        running_at: The time when its user data began.
        reason_code: The reason why it ended, as `StateReason.Code`.
        interruption: The announced interruption. None when there was none.
        process_id: Its first process on this machine. None when it has none any more.
        user_data_exit_code: The exit code of the user data. None while the user data runs, or when it was killed.
        console: The file with the output of the user data.
    """

    instance_id: str
    fleet_id: str
    zone: str
    spot: bool
    state: str
    launched_at: float
    running_at: float | None
    ended_at: float | None
    reason_code: str
    interruption: AnnouncedInterruption | None
    process_id: int | None
    user_data_exit_code: int | None
    console: str


@dataclass(frozen=True, kw_only=True)
class Platform(JsonDocument):
    """The kind of hosts that instances are on this machine.

    Attributes:
        isolation: `namespace` or `relocated`. Hosts with `namespace` have a network, processes and mounts of their own,
            and volumes that are loop devices. Hosts with `relocated` are process groups with directories for volumes.
        reason: The reason against namespaces. None with them.
        network_refusal: The reason why instances have no network of their VPC here. None where they have one. With
            `relocated`, each instance has an address of this machine's loopback instead. Then security groups hold
            nothing back, no instance can be cut off, and the connections of one whose power is cut end at once. With
            `namespace`, instances do not reach each other.
    """

    isolation: str
    reason: str | None
    network_refusal: str | None


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
