"""Security groups, and the connections that they let instances of a VPC open to each other. Pure functions.

A connection needs a rule of a group of its source that lets it out, and one of a group of its target that lets it in.

Source: "Security group rules" in Amazon VPC's user guide.
"""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_local.hosts.network import Flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spotkeep_local.ec2.records import LocalInstance

_ALL = "-1"
_NAMES = {"1": "icmp", "6": "tcp", "17": "udp", "icmpv6": "58"}
_WITH_PORTS = ("tcp", "udp")
_EVERY_PORT = (0, 65535)


@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """What one rule of a group lets in or out.

    Attributes:
        protocol: The IP protocol by its name or number. None for every protocol.
        ports: The first and the last port. None for every port.
        groups: The groups of the instances on the other side.
        networks: The addresses on the other side.
    """

    protocol: str | None
    ports: tuple[int, int] | None
    groups: frozenset[str]
    networks: tuple[str, ...]

    def covers(self, other: LocalInstance) -> bool:
        """Return whether the rule is about an instance on the other side."""
        address = ipaddress.ip_address(other.private_ip)
        return not self.groups.isdisjoint(other.security_groups) or any(
            address in ipaddress.ip_network(network, strict=False) for network in self.networks
        )


@dataclass(frozen=True, kw_only=True)
class SecurityGroup:
    """A security group of a VPC, with its rules."""

    group_id: str
    name: str
    vpc_id: str
    ingress: tuple[GroupRule, ...]
    egress: tuple[GroupRule, ...]


def read_group(record: Mapping[str, Any]) -> SecurityGroup:
    """Read a group as DescribeSecurityGroups has it. Prefix lists, IPv6 and groups of other accounts are passed over.

    Args:
        record: The group, with IpPermissions and IpPermissionsEgress.
    """
    return SecurityGroup(
        group_id=record["GroupId"],
        name=record["GroupName"],
        vpc_id=record["VpcId"],
        ingress=tuple(map(_read_rule, record["IpPermissions"])),
        egress=tuple(map(_read_rule, record["IpPermissionsEgress"])),
    )


def flows(
    instances: Iterable[LocalInstance],
    groups: Mapping[str, SecurityGroup],
    *,
    is_cut: Callable[[LocalInstance, LocalInstance], bool] = lambda *_: False,
) -> Iterator[Flow]:
    """Yield what instances of one VPC may open to each other.

    Args:
        instances: The instances of the VPC that have an address.
        groups: The groups of the account, by id.
        is_cut: Returns whether nothing passes between two instances, whatever their groups say.
    """
    for source, target in itertools.permutations(instances, 2):
        if is_cut(source, target):
            continue
        outward = [rule for group in _groups_of(source, groups) for rule in group.egress if rule.covers(target)]
        inward = [rule for group in _groups_of(target, groups) for rule in group.ingress if rule.covers(source)]
        for pair in itertools.product(outward, inward):
            yield from _common(*pair, source=source.private_ip, target=target.private_ip)


def _groups_of(instance: LocalInstance, groups: Mapping[str, SecurityGroup]) -> list[SecurityGroup]:
    # ministack deletes a group that an instance is in. EC2 refuses that.
    return [groups[group_id] for group_id in instance.security_groups if group_id in groups]


def _read_rule(permission: Mapping[str, Any]) -> GroupRule:
    said = str(permission["IpProtocol"]).lower()
    protocol = None if said == _ALL else _NAMES.get(said, said)
    ports = None
    if protocol in _WITH_PORTS:
        ports = (int(permission.get("FromPort", -1)), int(permission.get("ToPort", -1)))
    return GroupRule(
        protocol=protocol,
        ports=None if ports in ((-1, -1), _EVERY_PORT) else ports,
        groups=frozenset(pair["GroupId"] for pair in permission["UserIdGroupPairs"] if "GroupId" in pair),
        networks=tuple(each["CidrIp"] for each in permission["IpRanges"]),
    )


def _common(outward: GroupRule, inward: GroupRule, *, source: str, target: str) -> Iterator[Flow]:
    protocols = {rule.protocol for rule in (outward, inward)} - {None}
    ranges = [rule.ports for rule in (outward, inward) if rule.ports is not None]
    first, last = max((low for low, _ in ranges), default=0), min((high for _, high in ranges), default=0)
    if len(protocols) < 2 and first <= last:
        yield Flow(
            source=source,
            target=target,
            protocol=next(iter(protocols), None),
            ports=(first, last) if ranges else None,
        )
