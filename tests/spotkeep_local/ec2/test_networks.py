"""Instances of one VPC: they reach each other as their groups say, are replaced, cut off and healed."""

from __future__ import annotations

import errno
import functools
import ipaddress
import json
import shutil
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_local import lifecycle
from spotkeep_local.control import ControlError
from spotkeep_local.hosts import boot
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.options import ServerOptions

from .conftest import Ec2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [pytest.mark.long, pytest.mark.enable_socket]
LOST_AFTER_SECONDS = 0.5
PORT, CLOSED_PORT = 7779, 8080
ANSWER = r"""
import os, socket, sys, threading
def answer(port):
    server = socket.create_server((sys.argv[1], port))
    os.write(1, f"LISTENS {port}\n".encode())
    while True:
        client, peer = server.accept()
        with client:
            client.sendall(peer[0].encode())
for port in map(int, sys.argv[2:]):
    threading.Thread(target=answer, args=(port,)).start()
"""


def listener(ec2: Ec2) -> str:
    """User data that answers at its own address, which it has from the metadata."""
    return (
        f"#!/bin/bash\n{ec2.metadata}\ncat > answer.py << 'END'\n{ANSWER}\nEND\n"
        f'exec python3 answer.py "$(metadata local-ipv4)" {PORT} {CLOSED_PORT}\n'
    )


class Peers:
    """Instances of one fleet in one subnet, whose group lets them talk at some ports."""

    def __init__(self, ec2: Ec2, count: int) -> None:
        self.ec2 = ec2
        self.group = ec2.client.create_security_group(GroupName=f"peers-{uuid.uuid4().hex[:8]}", Description="peers")[
            "GroupId"
        ]
        self.rule = {
            "IpProtocol": "tcp",
            "FromPort": 7777,
            "ToPort": PORT,
            "UserIdGroupPairs": [{"GroupId": self.group}],
        }
        ec2.client.authorize_security_group_ingress(GroupId=self.group, IpPermissions=[self.rule])
        template = ec2.template(listener(ec2), SecurityGroupIds=[self.group])
        self.fleet = ec2.fleet(template, zones=ec2.zones[:1], target=count)
        self.instances = self.listening(count)

    def listening(self, count: int, *, other_than: Sequence[str] = ()) -> list[str]:
        """Wait until so many instances answer."""
        found: list[str] = []
        for _ in range(count):
            found.append(self.ec2.running(self.fleet, other_than=[*other_than, *found]))
        for instance in found:
            self.ec2.wait_for_line(instance, f"LISTENS {PORT}")
            self.ec2.wait_for_line(instance, f"LISTENS {CLOSED_PORT}")
        return found

    def address(self, instance: str) -> str:
        return str(self.ec2.instance(instance)["PrivateIpAddress"])

    def reaches(self, source: str, target: str, port: int = PORT) -> bool:
        """Return whether a connection from one instance to another is answered. One that is refused is an error."""
        process = self.ec2.control.instance_facts(source).process_id
        address = (self.address(target), port)

        def connect() -> bool:
            boot.enter_network(f"/proc/{process}/ns/net")
            with socket.socket() as sender:
                sender.settimeout(LOST_AFTER_SECONDS)
                code = sender.connect_ex(address)
                if code == 0:
                    sender.settimeout(60)
                    assert sender.recv(100).decode() == self.address(source)
            assert code in (0, errno.EAGAIN), errno.errorcode[code]
            return code == 0

        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(connect).result()

    def all_reach_each_other(self, instances: Sequence[str]) -> bool:
        return all(self.reaches(one, other) for one in instances for other in instances if one != other)


@pytest.fixture
def networked(hosts: Ec2) -> Ec2:
    platform = hosts.control.platform()
    if platform.network_refusal is not None:
        pytest.skip(f"instances have no networks here: {platform.network_refusal}")
    return hosts


def test_instances_reach_each_other_as_their_groups_say_and_a_replacement_does(networked: Ec2) -> None:
    peers = Peers(networked, 2)
    one, two = peers.instances
    assert peers.all_reach_each_other([one, two])
    assert not peers.reaches(one, two, CLOSED_PORT)
    stranger = networked.run(listener(networked))
    networked.wait_for_line(stranger, f"LISTENS {PORT}")
    assert not peers.reaches(stranger, one)
    assert not peers.reaches(one, stranger)

    networked.control.interrupt(one, notice=False)
    (third,) = peers.listening(1, other_than=[one, two])
    assert peers.all_reach_each_other([two, third])

    client = networked.client
    client.authorize_security_group_ingress(
        GroupId=peers.group, IpPermissions=[peers.rule | {"FromPort": CLOSED_PORT, "ToPort": CLOSED_PORT}]
    )
    networked.wait_until(lambda: peers.reaches(two, third, CLOSED_PORT))
    client.revoke_security_group_ingress(GroupId=peers.group, IpPermissions=[peers.rule])
    networked.wait_until(lambda: not peers.reaches(two, third))


def test_an_instance_is_cut_off_from_the_others_and_healed(networked: Ec2) -> None:
    peers = Peers(networked, 3)
    one, two, three = peers.instances
    networked.control.cut_off(one)
    assert not any((peers.reaches(one, two), peers.reaches(two, one), peers.reaches(three, one)))
    assert peers.reaches(two, three)
    networked.control.cut_off(one, instances=[two])
    assert peers.reaches(one, three)
    assert not peers.reaches(two, one)
    networked.control.heal(one)
    assert peers.all_reach_each_other(peers.instances)


def test_an_instance_is_cut_off_from_the_local_aws_and_its_call_goes_on_when_it_is_healed(networked: Ec2) -> None:
    ask = 'curl -s -o /dev/null "$AWS_ENDPOINT_URL/" && echo ANSWERED'
    body = f"until [ -e /tmp/go ]; do sleep 0.05; done; ({ask}) & metadata instance-id; echo; exec sleep 600\n"
    instance = networked.run(f"#!/bin/bash\n{networked.metadata}\n{body}")
    process = networked.control.instance_facts(instance).process_id
    networked.control.cut_off(instance, instances=[], aws=True)
    Path(f"/proc/{process}/root/tmp/go").touch()
    networked.wait_for_line(instance, instance)  # The metadata service answers.
    time.sleep(LOST_AFTER_SECONDS)
    assert "ANSWERED" not in networked.console(instance)
    networked.control.heal(instance)
    networked.wait_for_line(instance, "ANSWERED")


@pytest.mark.skipif(shutil.which("cc") is None, reason="a wrong clock needs a C compiler")
def test_instances_that_boot_from_now_on_have_a_wrong_clock(ec2: Ec2) -> None:
    ec2.control.set_clock(-3600)
    try:
        instance = ec2.run(f'#!/bin/sh\n[ "$(date +%s)" -lt {time.time():.0f} ] && echo BEHIND; exec sleep 600\n')
        ec2.wait_for_line(instance, "BEHIND")
    finally:
        ec2.control.set_clock(0)


@pytest.fixture
def relocated(tmp_path: Path) -> Iterator[Ec2]:
    """Instances that are process groups."""
    options = replace(ServerOptions.fast(), isolation=Isolation.RELOCATED)
    local = lifecycle.start(tmp_path / "aws", port=lifecycle.free_port(), options=options)
    yield Ec2(local)
    lifecycle.stop(tmp_path / "aws")


def test_without_namespaces_each_instance_has_an_address_of_loopback(relocated: Ec2) -> None:
    platform = relocated.control.platform()
    assert platform.network_refusal == "instances share this machine's network"
    peers = Peers(relocated, 2)
    addresses = {peers.address(instance) for instance in peers.instances}
    assert len(addresses) == 2
    for address in addresses:
        assert ipaddress.ip_address(address) in ipaddress.ip_network("127.64.0.0/10")
        with socket.create_connection((address, PORT)) as client:
            assert client.recv(100)
    with pytest.raises(ControlError, match="cannot be cut off: instances share this machine's network"):
        relocated.control.cut_off(peers.instances[0])


def test_without_namespaces_the_instances_of_a_fleet_meet_at_a_port_of_their_own(relocated: Ec2) -> None:
    """torch listens at all addresses of the machine, so two fleets cannot meet at one port."""
    template = relocated.template("#!/bin/sh\necho port:$SM_MASTER_PORT\nexec sleep 600\n")
    ports = []
    for target in (2, 1):
        fleet = relocated.fleet(template, zones=relocated.zones[:1], target=target)
        relocated.wait_until(lambda fleet=fleet, target=target: len(relocated.active(fleet)) == target)
        consoles = [functools.partial(relocated.console, instance) for instance in relocated.active(fleet)]
        for console in consoles:
            relocated.wait_until(lambda console=console: "port:" in console())
        [port] = {console().strip() for console in consoles}
        ports.append(port)
    assert ports[0] != ports[1]
    assert all(port.removeprefix("port:").isdecimal() for port in ports)


def test_what_a_template_says_of_network_and_placement_is_the_instances(ec2: Ec2) -> None:
    client = ec2.client
    name = f"cluster-{uuid.uuid4().hex[:8]}"
    client.create_placement_group(GroupName=name, Strategy="cluster")
    group = client.create_security_group(GroupName=f"{name}-efa", Description="EFA")["GroupId"]
    interfaces = [
        {"DeviceIndex": 1, "NetworkCardIndex": 1, "InterfaceType": "efa-only", "Groups": [group]},
        {"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "efa", "Groups": [group]},
    ]
    template = ec2.template(NetworkInterfaces=interfaces)
    versions = client.describe_launch_template_versions(LaunchTemplateId=template)["LaunchTemplateVersions"]
    assert versions[0]["LaunchTemplateData"]["NetworkInterfaces"] == interfaces
    fleet = ec2.fleet(template, zones=ec2.zones[:1], overrides={"Placement": {"GroupName": name}})
    described = ec2.instance(ec2.running(fleet))
    assert described["Placement"]["GroupName"] == name
    assert described["SecurityGroups"] == [{"GroupId": group, "GroupName": f"{name}-efa"}]
    first, second = described["NetworkInterfaces"]
    assert (first["InterfaceType"], first["PrivateIpAddress"]) == ("efa", described["PrivateIpAddress"])
    assert (second["InterfaceType"], second["Attachment"]["NetworkCardIndex"]) == ("efa-only", 1)


def test_an_instance_without_groups_is_in_the_default_one(ec2: Ec2) -> None:
    fleet = ec2.fleet(ec2.template())
    groups = ec2.instance(ec2.running(fleet))["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "InterfaceType": "efa"}], "SecurityGroupIds": ["sg-0"]},
            "InvalidParameterCombination: Network interfaces and an instance-level security groups may not be",
        ),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "InterfaceType": "ena"}]}, "Invalid interface type ena"),
        ({"SecurityGroupIds": ["sg-0123"]}, "InvalidGroup.NotFound: The security group 'sg-0123' does not exist"),
        ({"Placement": {"GroupName": "none"}}, "InvalidPlacementGroup.Unknown: The Placement Group 'none' is unknown"),
    ],
)
def test_a_launch_that_cannot_be_is_in_the_history_of_its_fleet(ec2: Ec2, data: dict[str, Any], complaint: str) -> None:
    fleet = ec2.fleet(ec2.template(**data))
    ec2.wait_until(lambda: "spotFleetRequestConfigurationInvalid" in ec2.history(fleet))
    records = ec2.client.describe_fleet_history(FleetId=fleet, StartTime=0)["HistoryRecords"]
    assert complaint in json.dumps(records, default=str)


def test_a_template_with_a_number_that_is_none_is_refused(ec2: Ec2) -> None:
    def break_a_number(params: dict[str, Any], **_: Any) -> None:
        params["body"]["LaunchTemplateData.NetworkInterface.1.DeviceIndex"] = "seven"

    events = ec2.client.meta.events
    events.register("before-call.ec2.CreateLaunchTemplate", break_a_number)
    try:
        with pytest.raises(ClientError, match="must be a integer"):
            ec2.template(NetworkInterfaces=[{"DeviceIndex": 7}])
    finally:
        events.unregister("before-call.ec2.CreateLaunchTemplate", break_a_number)
