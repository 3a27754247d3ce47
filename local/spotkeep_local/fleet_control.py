"""The client of the local EC2's control plane: interruptions, capacity, prices, and facts about instances."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from spotkeep_local.control_connection import ControlConnection
from spotkeep_local.ec2.facts import InstanceFacts, Platform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotkeep_local.ec2.market import SpotPoolChange
    from spotkeep_local.lifecycle import LocalAws


class FleetControl:
    """Talks to the control plane of a local AWS's EC2. Every method raises ControlError when that refuses.

    Args:
        local: The local AWS, as `lifecycle.status` finds it.
    """

    def __init__(self, local: LocalAws) -> None:
        self._connection = ControlConnection(local)

    def interrupt(
        self, instance_id: str, *, notice: bool = True, notice_seconds: float | None = None, takes_place: bool = True
    ) -> float:
        """Interrupt a spot instance.

        Args:
            instance_id: The instance's id.
            notice: Whether it gets a notice. Without, its power is cut now.
            notice_seconds: The time from the notice to the end; None for two minutes, divided by the time scale.
            takes_place: False for a notice that no interruption follows.

        Returns:
            When it is gone, epoch seconds.
        """
        document = {"notice": notice, "notice_seconds": notice_seconds, "takes_place": takes_place}
        return float(
            self._connection.call("InterruptInstance", {"instance_id": instance_id, **document})["interrupted_at"]
        )

    def warn_of(self, instance_id: str) -> None:
        """Send the event of an interruption notice for any instance id, which may belong to no instance here."""
        self._connection.call("WarnOfInstance", {"instance_id": instance_id})

    def change_pool(self, change: SpotPoolChange) -> None:
        """Change a zone's capacity or price from now on. Spot instances without room are interrupted."""
        self._connection.call("ChangePool", asdict(change))

    def script_market(self, changes: Sequence[SpotPoolChange]) -> None:
        """Replace the script of the whole spot market by one that begins now."""
        self._connection.call("ScriptMarket", {"changes": [asdict(change) for change in changes]})

    def unseen_for(self, seconds: float) -> None:
        """Hide fleets, instances and versions of launch templates from requests for so long after they are made."""
        self._connection.call("Consistency", {"unseen_seconds": seconds})

    def instance_facts(self, instance_id: str) -> InstanceFacts:
        """Return the facts about an instance."""
        return InstanceFacts.from_document(self._connection.call("InstanceFacts", {"instance_id": instance_id}))

    def platform(self) -> Platform:
        """Return what instances are on this machine."""
        return Platform.from_document(self._connection.call("Platform", {}))
