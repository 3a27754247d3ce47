"""The server is killed: its hosts end with it. It is stopped: its resources come back, its fleets go on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_local import lifecycle, process_identity
from spotkeep_local.isolation import Isolation
from spotkeep_local.options import ServerOptions
from tests.discarding import discard

from .conftest import Ec2, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.long


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Isolation], lifecycle.LocalAws]]:
    """Starts a local AWS of the test's own; again after it was killed."""
    port = lifecycle.free_port()

    def begin(isolation: Isolation) -> lifecycle.LocalAws:
        options = ServerOptions(**{**ServerOptions.fast().__dict__, "isolation": isolation})
        return lifecycle.start(tmp_path, port=port, options=options)

    yield begin
    if (left := lifecycle.status(tmp_path)) is not None:
        discard(left)


# Who ends it and what a host is are two things: each of both once.
@pytest.mark.parametrize(("isolation", "end"), [(Isolation.AUTO, "stop"), (Isolation.RELOCATED, "kill")])
def test_a_server_that_ends_leaves_nothing_running(
    start: Callable[[Isolation], lifecycle.LocalAws], isolation: Isolation, end: str
) -> None:
    local = start(isolation)
    ec2 = Ec2(local)
    fleet = ec2.fleet(ec2.template(), zones=["us-east-1a"])
    first = ec2.running(fleet)
    volume = ec2.volume(TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "run", "Value": "7"}]}])
    ec2.attach(volume, first)
    process = ec2.control.instance_facts(first).process_id
    assert process is not None
    started = process_identity.start_time(process)
    # What the user data wrote shows that it ran.
    ec2.wait_for_line(first, "READY")
    if end == "stop":
        lifecycle.stop(local.state_dir)
    else:
        os.kill(local.pid, signal.SIGKILL)
    wait_until(lambda: not process_identity.is_same_process(process, started))
    wait_until(lambda: volume not in _loop_devices())

    if end == "kill":
        return
    again = Ec2(start(isolation))
    assert again.state(first) == "terminated"
    assert not (local.state_dir / "ec2/hosts" / first).exists()
    assert again.instance(first)["StateReason"]["Code"] == "Server.InternalError"
    found = again.describe_volume(volume)
    assert (found["State"], found["Tags"]) == ("available", [{"Key": "run", "Value": "7"}])
    second = again.running(fleet, other_than=[first])
    again.attach(volume, second)
    assert again.history(fleet) == ["submitted", "active", "launched", "terminated", "launched"]


def _loop_devices() -> str:
    if not Path("/dev/loop-control").exists():
        return ""
    return subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False).stdout
