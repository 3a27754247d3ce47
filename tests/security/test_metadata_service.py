"""The script that trains wants the instance's role, which the metadata service hands to all who ask it.

Who: any code of a run on EC2, and any container on the instance. With what: two requests to 169.254.169.254, as every
SDK makes them. What it would gain: what the instance may do (its bundle, the credentials of its run).
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep_agent.errors import MetadataOpenError
from spotkeep_agent.training import metadata_door
from spotkeep_agent.training.metadata_door import close_metadata
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.record import FINISHED
from spotkeep_local.control import FleetControl
from spotkeep_local.ec2.catalog import PYTORCH
from tests.infrastructure.conftest import SharedDirectory, templates_of
from tests.models.ec2 import instance_job
from tests.models.fleet_site import Site

SCRIPT = """
import http.client, os, subprocess, sys

def ask(method, path, **headers):
    connection = http.client.HTTPConnection("169.254.169.254", timeout=60)
    named = {f"X-aws-ec2-metadata-token{name}": value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    return connection.getresponse().read().decode()

def attack(who):
    try:
        token = ask("PUT", "/latest/api/token", **{"-ttl-seconds": "60"})
        role = ask("GET", "/latest/meta-data/iam/security-credentials/", **{"": token})
        print(who, "has the credentials of", role, flush=True)
    except OSError as error:
        print(who, "was refused:", type(error).__name__, flush=True)

attack("the script")
sys.stdout.flush()
child = os.fork()
if child == 0:
    attack("a worker")
    os._exit(0)
os.waitpid(child, 0)
print("the SDKs see:", os.environ.get("AWS_EC2_METADATA_DISABLED"), flush=True)
"""


@pytest.fixture
def hosts(local_aws: Any) -> Iterator[Site]:
    """Hosts with a network of their own."""
    platform = FleetControl(local_aws).platform()
    if platform.isolation != "namespace":
        pytest.skip(f"no hosts with a network of their own here: {platform.reason}")
    hosts = Site(local_aws)
    yield hosts
    hosts.close()


def what_it_says(hosts: Site, **fields: Any) -> list[str]:
    job = instance_job(
        command=("python3", "-c", textwrap.dedent(SCRIPT)),
        volume=VolumeSpec(size_gb=1),
        log_group=hosts.group,
        event_bus="default",
        **fields,
    )
    instance = hosts.instance(hosts.launch(job, ami=PYTORCH.image_id))
    hosts.wait(lambda: hosts.record.training.over, "the end", lambda: hosts.console(instance))
    assert hosts.record.training.state == FINISHED, hosts.console(instance)
    return hosts.console(instance).splitlines()


@pytest.mark.long
@pytest.mark.parametrize("image", [None, "python:3.12"], ids=["on the instance", "in a container"])
def test_the_script_and_its_workers_are_refused_the_roles_credentials(hosts: Site, image: str | None) -> None:
    """A container has the instance's network and the user that trains: the very rule that closes it holds there."""
    said = what_it_says(hosts, image=image)
    assert "the script was refused: PermissionError" in said
    assert "a worker was refused: PermissionError" in said
    assert "the SDKs see: true" in said


@pytest.mark.long
def test_a_job_that_asks_for_it_has_them(hosts: Site) -> None:
    said = what_it_says(hosts, instance_metadata="open")
    assert f"the script has the credentials of {hosts.run}" in said


def test_the_answers_of_the_service_go_no_further_than_the_instance(shared_directory: SharedDirectory) -> None:
    """What a container sends through its bridge is one hop away: the answer does not come back to it."""
    data = templates_of(shared_directory, "default").only("AWS::EC2::LaunchTemplate")
    options = data["LaunchTemplateData"]["MetadataOptions"]
    assert (options["HttpPutResponseHopLimit"], options["HttpTokens"]) == (1, "required")


class Door:
    """The user's attempts to reach the service, and the commands that are to prevent them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, before: int, after: int, on_path: bool = True) -> None:
        self.rules: list[list[str]] = []
        self._numbers = (before, after)
        monkeypatch.setattr(metadata_door.shutil, "which", lambda name, path: f"/usr/sbin/{name}" if on_path else None)
        monkeypatch.setattr(metadata_door.subprocess, "run", self._add)

    def perform(self, name: str, address: str, port: int, seconds: float) -> int:
        assert (name, port) == ("try_to_connect", 80)
        assert seconds < 10
        return self._numbers[any(address in rule for rule in self.rules)]

    def _add(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        del options
        self.rules.append(command)
        return subprocess.CompletedProcess(command, 2, "", "RTNETLINK answers: Operation not permitted")


@pytest.mark.parametrize("after", [0, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTUNREACH])
def test_what_is_not_shown_to_be_closed_counts_as_open(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """That nothing answers now is no proof: the service may be slow, and answer the script."""
    door = Door(monkeypatch, before=0, after=after)
    with pytest.raises(MetadataOpenError, match=r"not permitted.*instance_metadata: open"):
        close_metadata(door.perform)


def test_without_the_command_it_counts_as_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MetadataOpenError, match="no command ip"):
        close_metadata(Door(monkeypatch, before=0, after=0, on_path=False).perform)


def test_a_user_whose_attempt_cannot_be_made_counts_as_let_in() -> None:
    def perform(*arguments: Any) -> int:
        raise OSError(errno.EIO, "the process has been killed")

    with pytest.raises(MetadataOpenError, match="cannot be tried"):
        close_metadata(perform)


def test_both_addresses_are_closed_to_all_but_root_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch, before=0, after=errno.EACCES)
    close_metadata(door.perform)
    close_metadata(door.perform)
    assert [rule[rule.index("to") + 1] for rule in door.rules] == ["169.254.169.254", "fd00:ec2::254"]
    assert all(rule[rule.index("uidrange") + 1] == "1-4294967294" for rule in door.rules)


_IN_A_NETWORK_OF_ITS_OWN = """
import socket, subprocess, sys
for command in ("link set lo up", "addr add 169.254.169.254/32 dev lo", "rule add pref 1000 lookup local",
                "rule del pref 0 lookup local"):
    subprocess.run(["ip", *command.split()], check=True)
service = socket.create_server(("169.254.169.254", 80))
from spotkeep_agent.as_user.process import UserProcess
from spotkeep_agent.training.metadata_door import close_metadata
user, other = UserProcess(uid=60001, gid=60001), UserProcess(uid=60002, gid=60002)
print([each.perform("try_to_connect", "169.254.169.254", 80, 2.0) for each in (user, other)])
close_metadata(user.perform)
print([each.perform("try_to_connect", address, 80, 2.0) for each in (user, other)
       for address in ("169.254.169.254", "::ffff:169.254.169.254")])
socket.create_connection(("169.254.169.254", 80), 2).close()
print("root reaches it")
for each in (user, other):
    each.close()
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None,
    reason="a network of its own needs root, unshare and ip",
)
def test_the_kernel_refuses_every_user_but_root() -> None:
    sources = Path(__file__).parents[2] / "training"
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", _IN_A_NETWORK_OF_ITS_OWN],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(sources)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0, 0]", str([errno.EACCES] * 4), "root reaches it"]
