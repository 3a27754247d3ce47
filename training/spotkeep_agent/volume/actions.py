"""The actions of the protocol. Each is one call to AWS, or one change of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

from spotkeep_fleet.record import FleetRecord


@dataclass(frozen=True)
class MachineVolumes:
    """The run's volumes on this machine.

    Attributes:
        mounted: The volume that is mounted.
        devices: The volumes with a device on this machine.
    """

    mounted: str | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """An action took effect.

    Attributes:
        value: The result, such as facts, an id or a record.
    """

    value: Any = None


@dataclass(frozen=True)
class Refused:
    """An action was refused, and will be until something changes.

    Attributes:
        code: EC2's error code, or a word of ours.
        message: For people.
    """

    code: str
    message: str = ""


@dataclass(frozen=True)
class Unavailable:
    """The effect of an action is unknown after a throttle, a fault or silence. The protocol decides anew.

    Attributes:
        message: For people.
    """

    message: str = ""


Result = Union[Done, Refused, Unavailable]


@dataclass(frozen=True)
class ReadJob:
    """Read the job of the run's instances. Gives an InstanceJob."""


@dataclass(frozen=True)
class ReadRecord:
    """Read the fleet record. Gives a FleetRecord."""


@dataclass(frozen=True)
class WriteRecord:
    """Write the record over the version that was read. Refused (`Conflict`) after another write.

    Attributes:
        record: With the version that was read.
        why: For people, and for the timeline.
    """

    record: FleetRecord
    why: str


@dataclass(frozen=True)
class SurveyMachine:
    """List mounts and devices, and end the processes of an earlier agent. Gives MachineVolumes."""


@dataclass(frozen=True)
class DescribeVolumes:
    """Describe all volumes of the run and those named. Gives a tuple of Volume."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class DescribeSnapshots:
    """Describe one snapshot by its id, or those of an operation. Gives a tuple of Snapshot."""

    id: str | None = None
    operation: int | None = None


@dataclass(frozen=True)
class DescribeInstances:
    """Describe instances. Gives a tuple of (id, state), without instances that no longer exist."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class ReadSecondTier:
    """Find out whether S3 holds a whole checkpoint of the run. Gives a bool."""


@dataclass(frozen=True)
class CreateSnapshot:
    """Make a snapshot, tagged with the operation. Gives its id."""

    volume: str
    operation: int


@dataclass(frozen=True)
class CreateVolume:
    """Make a volume, with the operation as idempotency token and tag. Gives its id."""

    zone: str
    operation: int
    size_gb: int
    snapshot: str | None = None


@dataclass(frozen=True)
class Attach:
    """Attach a volume to this instance."""

    volume: str


@dataclass(frozen=True)
class Detach:
    """Detach a volume, by force only from an instance that is gone."""

    volume: str
    instance: str
    force: bool = False


@dataclass(frozen=True)
class DeleteVolume:
    """Delete a retired volume."""

    volume: str


@dataclass(frozen=True)
class DeleteSnapshot:
    """Delete a retired snapshot."""

    snapshot: str


@dataclass(frozen=True)
class Inspect:
    """Wait for the device of an attached volume. Gives the type of its file system, empty when it has none."""

    volume: str


@dataclass(frozen=True)
class Format:
    """Make a file system on a volume that has none."""

    volume: str


@dataclass(frozen=True)
class Check:
    """Check the file system and make safe repairs. Refused (`Damaged`) when it needs more."""

    volume: str


@dataclass(frozen=True)
class Mount:
    """Mount the file system, grow it to its volume, and see to its owner."""

    volume: str


@dataclass(frozen=True)
class Unmount:
    """End whatever uses the file system, flush it, unmount it."""

    volume: str


@dataclass(frozen=True)
class Wait:
    """Wait, then decide anew.

    Attributes:
        seconds: The length of the wait.
        reason: The reason. Waits with the same reason add up.
    """

    seconds: float
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Begin to leave. It changes nothing by itself. Processes on the volume are ended before the next action.

    Attributes:
        why: For people.
        failed: True when a person should check a fault.
    """

    why: str
    failed: bool = True


@dataclass(frozen=True)
class Ready:
    """The volume is current, verified and mounted. Train."""

    volume: str


@dataclass(frozen=True)
class Idle:
    """There is nothing to do."""


@dataclass(frozen=True)
class Leave:
    """Go. Nothing of the run is held by this instance any more, or nothing more can be done about it.

    Attributes:
        why: For people.
        failed: True when a person should check a fault.
    """

    why: str
    failed: bool = False


Action = Union[
    ReadJob,
    ReadRecord,
    WriteRecord,
    SurveyMachine,
    DescribeVolumes,
    DescribeSnapshots,
    DescribeInstances,
    ReadSecondTier,
    CreateSnapshot,
    CreateVolume,
    Attach,
    Detach,
    DeleteVolume,
    DeleteSnapshot,
    Inspect,
    Format,
    Check,
    Mount,
    Unmount,
    Wait,
    GiveUp,
    Ready,
    Idle,
    Leave,
]
