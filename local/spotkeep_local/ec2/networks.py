"""The networks of VPCs, with what security groups let through, and the cuts in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.ec2.security_groups import flows
from spotkeep_local.hosts.network import HostsNetwork

if TYPE_CHECKING:
    from collections.abc import Collection

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.records import LocalInstance


class Networks:
    """The networks that instances have interfaces to, one for each VPC. The lock of the cloud is held by all callers.

    Args:
        cloud: The local EC2.
    """

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._of_vpc: dict[str, HostsNetwork] = {}
        self._cut: dict[str, Collection[str] | None] = {}

    def of(self, instance: LocalInstance) -> HostsNetwork | None:
        """Return the network of an instance's VPC. None where this machine has none for instances.

        Raises:
            HostRefusedError: The machine allowed networks before, and refuses this one.
        """
        if self._cloud.platform.network_refusal is not None:
            return None
        if instance.vpc_id not in self._of_vpc:
            self._of_vpc[instance.vpc_id] = HostsNetwork(self._cloud.surroundings.vpc_addresses(instance.vpc_id))
            self.settle()
        return self._of_vpc[instance.vpc_id]

    def settle(self) -> None:
        """Let through what the groups allow now, and nothing that is cut.

        Raises:
            HostRefusedError: The machine refuses a rule.
        """
        groups = self._cloud.surroundings.security_groups() if self._of_vpc else {}
        for vpc_id, network in self._of_vpc.items():
            there = [each for each in self._cloud.instances if each.vpc_id == vpc_id and each.ended_at is None]
            network.allow(flows(there, groups, is_cut=self._is_cut))

    def cut(self, instance_id: str, others: Collection[str] | None) -> None:
        """Let nothing pass between an instance and others. What was cut before passes again.

        Args:
            instance_id: The instance's id.
            others: The ids of the others. None for every instance.

        Raises:
            HostRefusedError: The machine refuses a rule.
        """
        self._cut[instance_id] = others
        self.settle()

    def close(self) -> None:
        """Let go of all networks."""
        for network in self._of_vpc.values():
            network.close()
        self._of_vpc.clear()

    def _is_cut(self, one: LocalInstance, other: LocalInstance) -> bool:
        return any(
            (others := self._cut.get(each, ())) is None or partner in others
            for each, partner in ((one.instance_id, other.instance_id), (other.instance_id, one.instance_id))
        )
