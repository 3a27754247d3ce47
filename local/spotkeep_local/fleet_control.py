"""The client of what only a local AWS has, for EC2: interruptions, capacity, prices, faults, what really happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from spotkeep_local.control_connection import ControlConnection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotkeep_local.capacity import EventFaults
    from spotkeep_local.ec2.market import PoolChange
    from spotkeep_local.hosts.metadata_service import MetadataFault
    from spotkeep_local.lifecycle import LocalAws


@dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """What really happened to an instance. Times are epoch seconds.

    Attributes:
        fleet_id: None for one that no fleet launched.
        running_at: When its user data began.
        reason_code: Why it ended, as `StateReason.Code`.
        interruption: `notice_at`, `at` and `takes_place` of what was announced; None when nothing was.
        process_id: Its first process on this machine; None when it has none any more.
        user_data_exit_code: None while the user data runs, or when it was killed.
        console: The file with what the user data printed.
    """

    instance_id: str
    fleet_id: str | None
    zone: str
    spot: bool
    state: str
    launched_at: float
    running_at: float | None
    ended_at: float | None
    reason_code: str
    interruption: Mapping[str, Any] | None
    process_id: int | None
    user_data_exit_code: int | None
    console: str

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Reads what the control plane answered."""
        return cls(**document)


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What instances are on this machine.

    Attributes:
        isolation: `namespace`: hosts with a network, processes and mounts of their own, and volumes that are loop
            devices. `relocated`: process groups with directories for volumes.
        reason: Why not namespaces; None with them.
    """

    isolation: str
    reason: str | None


class FleetControl:
    """Talks to the control plane of a local AWS's EC2. Every method raises ControlError when that refuses.

    Args:
        local: The local AWS, as `lifecycle.status` finds it.
    """

    def __init__(self, local: LocalAws) -> None:
        self._connection = ControlConnection(local, prefix="SpotkeepLocalEc2")

    def interrupt(
        self, instance_id: str, *, notice: bool = True, notice_seconds: float | None = None, takes_place: bool = True
    ) -> float:
        """Takes a spot instance away.

        Args:
            instance_id: Which.
            notice: Whether it is told before. Without, its power is cut now.
            notice_seconds: How long before; None for two minutes, divided by the time scale.
            takes_place: False for a notice that nothing follows.

        Returns:
            When it is gone, epoch seconds.
        """
        document = {"notice": notice, "notice_seconds": notice_seconds, "takes_place": takes_place}
        return float(
            self._connection.call("InterruptInstance", {"instance_id": instance_id, **document})["interrupted_at"]
        )

    def recommend_rebalance(self, instance_id: str) -> None:
        """Tells a spot instance that it is at elevated risk."""
        self._connection.call("RecommendRebalance", {"instance_id": instance_id})

    def warn_of(self, instance_id: str) -> None:
        """Sends an interruption warning for any instance id, somebody else's for example, and does nothing else."""
        self._connection.call("WarnOfInstance", {"instance_id": instance_id})

    def change_pool(self, change: PoolChange) -> None:
        """Changes a zone's capacity or price from now on. Spot instances without room are taken away."""
        self._connection.call("ChangePool", asdict(change))

    def script_market(self, changes: Sequence[PoolChange]) -> None:
        """Puts the whole spot market under a script that begins now; an earlier one is forgotten."""
        self._connection.call("ScriptMarket", {"changes": [asdict(change) for change in changes]})

    def metadata_fault(self, instance_id: str, fault: MetadataFault) -> None:
        """Breaks or mends an instance's metadata service."""
        self._connection.call("InstanceFaults", {"instance_id": instance_id, "metadata": fault.value})

    def volume_faults(self, *, stuck_detaching: Sequence[str] = (), failing_snapshots: int = 0) -> None:
        """Lets volumes stay `detaching`, and the next snapshots end in `error`; what is not named here is mended."""
        document = {"stuck_detaching": list(stuck_detaching), "failing_snapshots": failing_snapshots}
        self._connection.call("VolumeFaults", document)

    def throttle(self, refusals: Mapping[str, int]) -> None:
        """Refuses each operation named as often as said, with RequestLimitExceeded; the others not at all."""
        self._connection.call("ApiFaults", {"throttled": dict(refusals)})

    def unseen_for(self, seconds: float) -> None:
        """Lets fleets, instances and versions of launch templates be NotFound for so long after they are made."""
        self._connection.call("Consistency", {"unseen_seconds": seconds})

    def spell_history(self, *, as_in_examples: bool) -> None:
        """Spells the event types of DescribeFleetHistory as AWS's example answers do, or as its model does."""
        self._connection.call("FleetHistory", {"as_in_examples": as_in_examples})

    def event_faults(self, faults: EventFaults) -> None:
        """What goes wrong with EC2's events from now on; `EventFaults()` ends all faults."""
        self._connection.call("EventFaults", faults.to_document())

    def instance_facts(self, instance_id: str) -> InstanceFacts:
        """What really happened to an instance."""
        return InstanceFacts.from_document(self._connection.call("InstanceFacts", {"instance_id": instance_id}))

    def platform(self) -> Platform:
        """What instances are on this machine."""
        return Platform(**self._connection.call("Platform", {}))
