"""A notice that nothing follows, and a time without any capacity: a fleet on hosts of the local EC2.

Both kinds of interruption, in both zones, are in `tests/end_to_end/test_rehearsal.py`, on the deployed app.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import FINISHED
from spotkeep_local import lifecycle
from spotkeep_local.ec2.market import SpotPoolChange
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.options import ServerOptions
from tests.models.ec2 import instance_job
from tests.models.fleet_site import ZONES, Site

pytestmark = pytest.mark.long
# Stays in a step until it was interrupted twice.
SCRIPT = """
import os, time
from spotkeep import Checkpointer

state = {"total": 0, "lives": 0}
with Checkpointer(state, every_steps=2) as checkpointer:
    state["lives"] += 1
    held_at = checkpointer.step + 4 if state["lives"] < 3 else 20
    for step in checkpointer.steps(20):
        state["total"] += step
        while step >= held_at and not checkpointer.interrupted:
            time.sleep(0.01)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


def job(site: Site) -> InstanceJob:
    return instance_job(
        command=("python3", "-c", textwrap.dedent(SCRIPT)),
        volume=VolumeSpec(size_gb=1),
        environment={"SPOTKEEP_PROGRESS_SECONDS": "0"},
        log_group=site.group,
        event_bus="default",
        checkpoint_uri=f"s3://{site.bucket}/runs/{site.run}/checkpoints/",
        output_uri=f"s3://{site.bucket}/runs/{site.run}/output/",
    )


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Site]:
    """Hosts that are process groups, with directories for volumes: what a machine without root has."""
    options = replace(ServerOptions.fast(), isolation=Isolation.RELOCATED)
    local = lifecycle.start(tmp_path / "aws", port=lifecycle.free_port(), options=options)
    hosts = Site(local)
    yield hosts
    hosts.close()
    lifecycle.stop(tmp_path / "aws")


def test_a_notice_that_nothing_follows_and_a_time_without_any_capacity(hosts: Site) -> None:
    """A warned instance that is not taken ends by itself; a run that no host has room for waits, and loses nothing."""
    fleet = hosts.launch(job(hosts))
    first = hosts.instance(fleet)
    hosts.wait_for(first, "saved")
    hosts.control.warn_of("i-0123456789abcdef0")
    hosts.control.interrupt(first["InstanceId"], notice_seconds=20, takes_place=False)
    second = hosts.instance(fleet, other_than=(first["InstanceId"],))
    hosts.wait_for(second, "resume")
    assert "left: notice" in hosts.console(first)
    assert hosts.control.instance_facts(first["InstanceId"]).reason_code == "Client.InstanceInitiatedShutdown"
    hosts.wait_for(second, "saved")

    for zone in ZONES:
        hosts.control.change_pool(SpotPoolChange(zone=zone, capacity=0, notice=False))
    hosts.wait(lambda: not hosts.ec2.describe_fleet_instances(FleetId=fleet)["ActiveInstances"], "no instance")
    waiting = hosts.record
    assert waiting.volume is not None
    assert not waiting.training.over
    for zone in ZONES:
        hosts.fill(zone, room=-1)
    third = hosts.instance(fleet, other_than=(first["InstanceId"], second["InstanceId"]))
    hosts.wait(lambda: hosts.record.training.state == FINISHED, "the end", lambda: hosts.console(third))
    assert hosts.record.training.interruptions == 1
    assert hosts.record.volume is not None
    assert [volume["VolumeId"] for volume in hosts.volumes()] == [hosts.record.volume.id]
