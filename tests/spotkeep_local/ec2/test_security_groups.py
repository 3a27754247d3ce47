"""Security groups: a connection passes when a rule lets it out of its source and a rule lets it into its target."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.ec2.records import InstanceState, LocalInstance, LocalInterface
from spotkeep_local.ec2.security_groups import SecurityGroup, flows, read_group
from spotkeep_local.hosts.network import Flow

OUT = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}], "UserIdGroupPairs": []}
ONE, TWO = "10.0.0.5", "10.0.1.6"
GROUPS = ("sg-a", "sg-b", "sg-c")


def permission(**fields: Any) -> dict[str, Any]:
    return {"IpProtocol": "-1", "IpRanges": [], "UserIdGroupPairs": [], **fields}


def group(name: str, ingress: list[dict[str, Any]], egress: list[dict[str, Any]]) -> SecurityGroup:
    record = {"GroupId": name, "GroupName": name, "VpcId": "vpc-1"}
    return read_group(record | {"IpPermissions": ingress, "IpPermissionsEgress": egress})


def instance(address: str, *groups: str) -> LocalInstance:
    return LocalInstance(
        instance_id=f"i-{address}",
        fleet_id="fleet-1",
        instance_type="m5.large",
        zone="us-east-1a",
        subnet_id="subnet-1",
        vpc_id="vpc-1",
        private_ip=address,
        image_id="ami-1",
        spot=True,
        state=InstanceState.RUNNING,
        launched_at=0.0,
        due_at=0.0,
        interfaces=(LocalInterface(groups=groups),),
    )


def found(ingress: list[dict[str, Any]], egress: list[dict[str, Any]] | None = None, **options: Any) -> set[Flow]:
    groups = {"sg-a": group("sg-a", ingress, [OUT] if egress is None else egress)}
    return set(flows([instance(ONE, "sg-a"), instance(TWO, "sg-a")], groups, **options))


def test_a_group_that_names_itself_lets_its_instances_talk() -> None:
    both = {Flow(source=ONE, target=TWO), Flow(source=TWO, target=ONE)}
    assert found([permission(UserIdGroupPairs=[{"GroupId": "sg-a", "UserId": "0"}])]) == both
    assert found([permission(UserIdGroupPairs=[{"GroupId": "sg-b"}])]) == set()
    assert found([]) == set()


def test_an_instance_of_a_group_that_is_gone_is_reached_by_nothing() -> None:
    assert set(flows([instance(ONE, "sg-a"), instance(TWO, "sg-a")], {})) == set()


@pytest.mark.parametrize(
    ("ingress", "protocol", "ports"),
    [
        ({"IpProtocol": "tcp", "FromPort": 7777, "ToPort": 7779}, "tcp", (7777, 7779)),
        ({"IpProtocol": "6", "FromPort": "22", "ToPort": "22"}, "tcp", (22, 22)),
        ({"IpProtocol": "udp", "FromPort": 0, "ToPort": 65535}, "udp", None),
        ({"IpProtocol": "tcp", "FromPort": -1, "ToPort": -1}, "tcp", None),
        ({"IpProtocol": "icmp", "FromPort": 8, "ToPort": 0}, "icmp", None),
        ({"IpProtocol": "icmpv6"}, "58", None),
        ({"IpProtocol": "-1"}, None, None),
    ],
)
def test_a_rule_names_a_protocol_and_ports(
    ingress: dict[str, Any], protocol: str | None, ports: tuple[int, int] | None
) -> None:
    only_one = permission(IpRanges=[{"CidrIp": "10.0.0.0/24"}], **ingress)
    assert found([only_one]) == {Flow(source=ONE, target=TWO, protocol=protocol, ports=ports)}


def test_what_is_cut_does_not_pass() -> None:
    everything = [permission(IpRanges=[{"CidrIp": "0.0.0.0/0"}])]
    from_one = found(everything, is_cut=lambda source, _: source.private_ip == ONE)
    assert from_one == {Flow(source=TWO, target=ONE)}


RULES = st.lists(
    st.builds(
        lambda protocol, ports, groups, networks: permission(
            IpProtocol=protocol,
            FromPort=min(ports),
            ToPort=max(ports),
            UserIdGroupPairs=[{"GroupId": name} for name in groups],
            IpRanges=[{"CidrIp": network} for network in networks],
        ),
        st.sampled_from(["tcp", "udp", "-1"]),
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
        st.sets(st.sampled_from(GROUPS), max_size=2),
        st.sets(st.sampled_from(["10.0.0.0/24", "10.0.1.6/32", "0.0.0.0/0"]), max_size=1),
    ),
    max_size=3,
)
MEMBERS = st.sets(st.sampled_from(GROUPS), min_size=1, max_size=2)


@given(st.tuples(*(st.tuples(RULES, RULES) for _ in GROUPS)), MEMBERS, MEMBERS)
def test_a_packet_passes_if_a_rule_lets_it_out_and_a_rule_lets_it_in(
    rules: tuple[tuple[list[dict[str, Any]], list[dict[str, Any]]], ...], source: set[str], target: set[str]
) -> None:
    said = dict(zip(GROUPS, rules, strict=True))
    groups = {name: group(name, *both) for name, both in said.items()}
    one, two = instance(ONE, *source), instance(TWO, *target)
    allowed = [flow for flow in flows([one, two], groups) if flow.source == ONE]
    for protocol in ("tcp", "udp"):
        for port in range(11):
            out = any(_lets(rule, protocol, port, target, TWO) for name in source for rule in said[name][1])
            into = any(_lets(rule, protocol, port, source, ONE) for name in target for rule in said[name][0])
            passes = any(
                flow.protocol in (None, protocol) and (flow.ports is None or flow.ports[0] <= port <= flow.ports[1])
                for flow in allowed
            )
            assert passes == (out and into)


def _lets(rule: dict[str, Any], protocol: str, port: int, groups: set[str], address: str) -> bool:
    covers = bool({pair["GroupId"] for pair in rule["UserIdGroupPairs"]} & groups) or any(
        network["CidrIp"] in ("0.0.0.0/0", "10.0.0.0/24" if address == ONE else "10.0.1.6/32")
        for network in rule["IpRanges"]
    )
    every = rule["IpProtocol"] == "-1"
    return covers and (every or (rule["IpProtocol"] == protocol and rule["FromPort"] <= port <= rule["ToPort"]))
