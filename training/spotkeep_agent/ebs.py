"""Volumes and snapshots of EBS as EC2 describes them, as far as the volume protocol needs them."""

from __future__ import annotations

from dataclasses import dataclass

GONE_STATES = ("terminated", "stopped")
"""A gone instance writes nothing any more. One that is shutting down may."""


@dataclass(frozen=True)
class EbsAttachment:
    """A volume at an instance.

    Attributes:
        instance: Its id.
        state: `attaching`, `attached`, `detaching` or `busy`.
    """

    instance: str
    state: str


@dataclass(frozen=True)
class EbsVolume:
    """A volume as DescribeVolumes shows it.

    Attributes:
        id: Its id.
        zone: Its availability zone.
        state: `creating`, `available`, `in-use`, `deleting`, `deleted` or `error`.
        size_gb: Its size in GiB.
        attachments: Its attachments to instances.
        snapshot: The snapshot that it was made from.
        operation: The number of the run's operation that made it, or None when none did.
        multi_attach: True when several instances may attach it at once.
    """

    id: str
    zone: str
    state: str
    size_gb: int
    attachments: tuple[EbsAttachment, ...] = ()
    snapshot: str | None = None
    operation: int | None = None
    multi_attach: bool = False

    def attachment_to(self, instance: str) -> EbsAttachment | None:
        """Return its attachment to an instance, if there is one."""
        return next((found for found in self.attachments if found.instance == instance), None)


@dataclass(frozen=True)
class EbsSnapshot:
    """A snapshot as DescribeSnapshots shows it.

    Attributes:
        id: Its id.
        state: `pending`, `completed` or `error`.
        volume: The volume that it was made of.
        size_gb: The size of the volume, in GiB.
        operation: The number of the run's operation that made it, or None when none did.
        progress: For people, for example `37%`.
        full_bytes: All bytes written to the volume at the time of the snapshot, or None where EC2 does not say (yet).
    """

    id: str
    state: str
    volume: str
    size_gb: int
    operation: int | None = None
    progress: str = ""
    full_bytes: int | None = None
