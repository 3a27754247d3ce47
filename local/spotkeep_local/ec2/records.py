"""What there is in the local EC2: values, and what can be said of each from its own fields and the time.

Times are epoch seconds. A state that only time changes is not stored: it follows from the moment that it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spotkeep_local.hosts.metadata import MetadataSettings


class AttachmentState(StrEnum):
    """Of a volume to an instance."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    BUSY = "busy"


class InstanceState(StrEnum):
    """Of an instance; no instance here is ever stopped."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def code(self) -> int:
        """As `InstanceState.Code`."""
        return {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}[self.value]

    @property
    def live(self) -> bool:
        """Whether it counts towards a fleet's capacity."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING)


class FleetType(StrEnum):
    """What a fleet does once its capacity was launched."""

    MAINTAIN = "maintain"
    INSTANT = "instant"


class FleetState(StrEnum):
    """Of a fleet."""

    ACTIVE = "active"
    MODIFYING = "modifying"
    DELETED_RUNNING = "deleted_running"
    DELETED_TERMINATING = "deleted_terminating"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A volume's place in an instance.

    Attributes:
        due_at: When attaching or detaching is done, if nothing keeps it.
        force: The detach was forced.
    """

    instance_id: str
    device: str
    state: AttachmentState
    requested_at: float
    due_at: float
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class VolumeModification:
    """A change of a volume's size or performance."""

    original: dict[str, Any]
    target: dict[str, Any]
    started_at: float
    ready_at: float


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume.

    Attributes:
        request: The whole CreateVolume request, for the idempotence of its client token.
        ready_at: When it has been created.
    """

    volume_id: str
    zone: str
    size_gib: int
    volume_type: str
    request: dict[str, Any]
    created_at: float
    ready_at: float
    iops: int | None = None
    throughput: int | None = None
    encrypted: bool = False
    kms_key_id: str | None = None
    snapshot_id: str | None = None
    initialization_rate: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    attachment: Attachment | None = None
    modification: VolumeModification | None = None

    def state(self, now: float) -> str:
        """creating, available or in-use."""
        if now < self.ready_at:
            return "creating"
        return "available" if self.attachment is None else "in-use"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot.

    Attributes:
        used_bytes: The data in it.
        ready_at: When all of it has been copied.
        failed: It will not complete; its state is `error` from `ready_at` on.
    """

    snapshot_id: str
    volume_id: str
    volume_size_gib: int
    used_bytes: int
    started_at: float
    ready_at: float
    description: str = ""
    encrypted: bool = False
    kms_key_id: str | None = None
    failed: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    def state(self, now: float) -> str:
        """pending, completed or error."""
        if now < self.ready_at:
            return "pending"
        return "error" if self.failed else "completed"

    def progress_percent(self, now: float) -> int:
        """How much has been copied."""
        if now >= self.ready_at:
            return 100
        return int(100 * max(0.0, now - self.started_at) / (self.ready_at - self.started_at))


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """A spot instance's end, announced.

    Attributes:
        notice_at: From when the instance's metadata says so.
        at: When it says that the instance is taken away.
        takes_place: Whether it then is.
    """

    notice_at: float
    at: float
    takes_place: bool = True


@dataclass(frozen=True, kw_only=True)
class LaunchSource:
    """The launch template version an instance was made from, as CreateFleet's answers name it."""

    template_id: str
    version: str
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InstanceProfile:
    """The profile of an instance, and the role in it."""

    arn: str
    profile_id: str
    role: str


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance.

    Attributes:
        due_at: While pending: when it runs.
        weight: How many units of its fleet's capacity it is.
        spot_price_usd: An hour, when it was launched; None on demand.
        reason_code: Why it ended, as `StateReason.Code`.
        host_process: The first process of its host and when that began, to end what a dead server left.
        replaced: A fleet has launched another in its place, because a rebalance was recommended.
        terminate_at: When a fleet that rebalances ends it.
    """

    instance_id: str
    reservation_id: str
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
    fleet_id: str | None = None
    weight: float = 1.0
    spot_price_usd: float | None = None
    source: LaunchSource | None = None
    profile: InstanceProfile | None = None
    settings: MetadataSettings = field(default_factory=MetadataSettings)
    user_data: str = ""
    security_group_ids: tuple[str, ...] = ()
    client_token: str = ""
    request: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    interruption: Interruption | None = None
    rebalance_at: float | None = None
    replaced: bool = False
    terminate_at: float | None = None
    running_at: float | None = None
    ended_at: float | None = None
    reason_code: str = ""
    reason: str = ""
    host_process: tuple[int, str] | None = None
    user_data_exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class FleetEvent:
    """One line of a fleet's history: `fleet-change`, `instance-change`, `service-error` or `information`."""

    at: float
    event_type: str
    sub_type: str
    description: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet.

    Attributes:
        request: The CreateFleet request, with what ModifyFleet changed in it since.
        created_from: The CreateFleet request as it came, for the idempotence of its client token.
        errors: Of an instant fleet: what could not be launched, as CreateFleet answers it.
        launched: Of an instant fleet: what was, as CreateFleet answers it.
        problem: Why capacity is missing; said once in the history, and again when it changes.
        try_at: Not before then it launches again.
    """

    fleet_id: str
    fleet_type: FleetType
    state: FleetState
    request: dict[str, Any]
    created_from: dict[str, Any]
    created_at: float
    tags: dict[str, str] = field(default_factory=dict)
    history: tuple[FleetEvent, ...] = ()
    errors: tuple[dict[str, Any], ...] = ()
    launched: tuple[dict[str, Any], ...] = ()
    problem: str = ""
    try_at: float = 0.0

    @property
    def target(self) -> dict[str, Any]:
        """The TargetCapacitySpecification."""
        specification: dict[str, Any] = self.request["TargetCapacitySpecification"]
        return specification

    def with_event(self, event: FleetEvent) -> Fleet:
        """The fleet with one more line of history."""
        return replace(self, history=(*self.history, event))
