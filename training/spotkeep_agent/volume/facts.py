"""What EC2's Describe calls show, as far as the protocol needs it, and what an action came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

GONE_STATES = ("terminated", "stopped")
"""A gone instance writes nothing any more; one that is shutting down may."""


@dataclass(frozen=True)
class Attachment:
    """A volume at an instance.

    Attributes:
        instance: Its id.
        state: `attaching`, `attached`, `detaching` or `busy`.
    """

    instance: str
    state: str


@dataclass(frozen=True)
class Volume:
    """A volume as DescribeVolumes shows it.

    Attributes:
        id: Its id.
        zone: Where it is.
        state: `creating`, `available`, `in-use`, `deleting`, `deleted` or `error`.
        size_gb: GiB.
        attachments: Where it is attached.
        snapshot: What it was made from.
        operation: Which operation of the run made it; None when none did.
        multi_attach: Whether several instances may attach it at once.
    """

    id: str
    zone: str
    state: str
    size_gb: int
    attachments: tuple[Attachment, ...] = ()
    snapshot: str | None = None
    operation: int | None = None
    multi_attach: bool = False

    def attachment_to(self, instance: str) -> Attachment | None:
        """Give its attachment to an instance, if there is one."""
        return next((found for found in self.attachments if found.instance == instance), None)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as DescribeSnapshots shows it.

    Attributes:
        id: Its id.
        state: `pending`, `completed` or `error`.
        volume: What it was made of.
        size_gb: The size of the volume, in GiB.
        operation: Which operation of the run made it.
        progress: For people, for example `37%`.
        full_bytes: All that was written to the volume when it was taken; None where EC2 does not say (yet).
    """

    id: str
    state: str
    volume: str
    size_gb: int
    operation: int | None = None
    progress: str = ""
    full_bytes: int | None = None


@dataclass(frozen=True)
class MachineVolumes:
    """What this machine has of the volumes.

    Attributes:
        mounted: The volume that is mounted.
        devices: The volumes whose devices are there.
    """

    mounted: str | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """An action took effect.

    Attributes:
        value: What it gave: facts, an id, a record.
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
    """It is not known whether an action took effect: a throttle, a fault, silence. It is decided anew.

    Attributes:
        message: For people.
    """

    message: str = ""


Result = Union[Done, Refused, Unavailable]
