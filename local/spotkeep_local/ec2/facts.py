"""The facts about instances, as the control plane gives them."""

from __future__ import annotations

from dataclasses import dataclass

from spotkeep_local.ec2.records import AnnouncedInterruption
from spotkeep_local.json_document import JsonDocument


@dataclass(frozen=True, kw_only=True)
class InstanceFacts(JsonDocument):
    """The facts about an instance, as the local AWS knows them. Times are epoch seconds.

    Attributes:
        running_at: When its user data began.
        reason_code: Why it ended, as `StateReason.Code`.
        interruption: What was announced; None when nothing was.
        process_id: Its first process on this machine; None when it has none any more.
        user_data_exit_code: None while the user data runs, or when it was killed.
        console: The file with what the user data printed.
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
    """What instances are on this machine.

    Attributes:
        isolation: `namespace`: hosts with a network, processes and mounts of their own, and volumes that are loop
            devices. `relocated`: process groups with directories for volumes.
        reason: Why not namespaces; None with them.
    """

    isolation: str
    reason: str | None
