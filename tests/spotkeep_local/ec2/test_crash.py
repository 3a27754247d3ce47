"""The server is killed: its hosts end with it. It is stopped: its resources come back, its fleets go on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_local import lifecycle
from spotkeep_local.hosts import process_identity
from spotkeep_local.options import ServerOptions
from tests.discarding import discard

from .conftest import Ec2, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.long


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], lifecycle.LocalAws]]:
    """Starts a local AWS of the test's own; again after it has ended."""
    port = lifecycle.free_port()
    yield lambda: lifecycle.start(tmp_path, port=port, options=ServerOptions.fast())
    if (left := lifecycle.status(tmp_path)) is not None:
        discard(left)


def test_a_server_that_is_stopped_or_killed_leaves_nothing_running(start: Callable[[], lifecycle.LocalAws]) -> None:
    """That a host without namespaces of its own ends with a server that is killed: `training/test_job_host.py`."""
    local = start()
    ec2 = Ec2(local)
    fleet = ec2.fleet(ec2.template(), zones=["us-east-1a"])
    first = ec2.running(fleet)
    volume = ec2.volume(TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "run", "Value": "7"}]}])
    ec2.attach(volume, first)
    has_ended = ending(ec2, first)
    lifecycle.stop(local.state_dir)
    wait_until(lambda: has_ended() and volume not in _loop_devices())

    local = start()
    ec2 = Ec2(local)
    assert ec2.state(first) == "terminated"
    assert not (local.state_dir / "ec2/hosts" / first).exists()
    assert ec2.instance(first)["StateReason"]["Code"] == "Server.InternalError"
    found = ec2.describe_volume(volume)
    assert (found["State"], found["Tags"]) == ("available", [{"Key": "run", "Value": "7"}])
    second = ec2.running(fleet, other_than=[first])
    ec2.attach(volume, second)
    assert ec2.history(fleet) == ["submitted", "active", "launched", "terminated", "launched"]
    has_ended = ending(ec2, second)
    os.kill(local.pid, signal.SIGKILL)
    wait_until(lambda: has_ended() and volume not in _loop_devices())


def ending(ec2: Ec2, instance: str) -> Callable[[], bool]:
    """Tells whether the process of an instance that runs its user data has ended."""
    process = ec2.control.instance_facts(instance).process_id
    assert process is not None
    started = process_identity.start_time(process)
    # What the user data wrote shows that it ran.
    ec2.wait_for_line(instance, "READY")
    return lambda: not process_identity.is_same_process(process, started)


def _loop_devices() -> str:
    if not Path("/dev/loop-control").exists():
        return ""
    return subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False).stdout
