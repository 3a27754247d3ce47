"""The main paths on real hosts: the deployed user data, real devices and mounts, an own user, a fleet.

Instances have network, mount and process namespaces of their own; their volumes are loop devices that live in one zone.
"""

from __future__ import annotations

import io
import tarfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import FINISHED
from spotkeep_local import lifecycle
from spotkeep_local.ec2.market import PoolChange
from spotkeep_local.fleet_control import FleetControl
from spotkeep_local.isolation import Isolation
from spotkeep_local.options import ServerOptions
from tests.models.fleet_site import ZONES, Site

pytestmark = pytest.mark.long
# Slow until it was interrupted twice, so that there is time to do it.
SCRIPT = """
import getpass, os, sys, time
from spotkeep import Checkpointer

print("trained by", getpass.getuser(), flush=True)
state = {"total": 0, "lives": 0}
with Checkpointer(state, every_steps=2) as checkpointer:
    state["lives"] += 1
    pause = float(os.environ["PAUSE"]) if state["lives"] < 3 else 0.0
    for step in checkpointer.steps(150):
        state["total"] += step
        time.sleep(pause)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


def job(site: Site, *, pause_s: float) -> InstanceJob:
    return InstanceJob(
        command=("python3", "-c", textwrap.dedent(SCRIPT)),
        volume=VolumeSpec(size_gb=1),
        environment={"PAUSE": str(pause_s), "SPOTKEEP_PROGRESS_SECONDS": "0"},
        log_group=site.group,
        event_bus="default",
        checkpoint_uri=f"s3://{site.bucket}/runs/{site.run}/checkpoints/",
        output_uri=f"s3://{site.bucket}/runs/{site.run}/output/",
    )


@pytest.fixture
def hosts(local_aws: Any) -> Iterator[Site]:
    """Hosts with namespaces and block devices."""
    platform = FleetControl(local_aws).platform()
    if platform.isolation != "namespace":
        pytest.skip(f"no hosts with block devices here: {platform.reason}")
    hosts = Site(local_aws)
    yield hosts
    hosts.close()


@pytest.fixture
def relocated_hosts(tmp_path: Path) -> Iterator[Site]:
    """Hosts that are process groups, with directories for volumes: what a machine without root has."""
    options = replace(ServerOptions.fast(), isolation=Isolation.RELOCATED)
    local = lifecycle.start(tmp_path / "aws", port=lifecycle.free_port(), options=options)
    hosts = Site(local)
    yield hosts
    hosts.close()
    lifecycle.stop(tmp_path / "aws")


def test_a_run_goes_through_both_kinds_of_interruption_and_both_zones(hosts: Site) -> None:
    fleet = hosts.launch(job(hosts, pause_s=0.1))
    first = hosts.instance(fleet)
    hosts.wait_for(first, "saved")
    zone = first["Placement"]["AvailabilityZone"]
    other = next(found for found in ZONES if found != zone)

    # With a notice, and no capacity left here: the volume goes to the other zone through a snapshot.
    hosts.control.interrupt(first["InstanceId"], notice=True, notice_seconds=60)
    hosts.control.change_pool(PoolChange(zone=zone, capacity=0))
    hosts.wait(lambda: "waiting for it" in hosts.console(first), "the wait for EC2", lambda: hosts.console(first))
    hosts.control.interrupt(first["InstanceId"], notice=False)  # sooner than announced
    second = hosts.instance(fleet, other_than=(first["InstanceId"],))
    assert second["Placement"]["AvailabilityZone"] == other
    hosts.wait_for(second, "resume")
    hosts.wait_for(second, "saved")
    assert "left: notice" in hosts.console(first)

    # Without a notice: the next one takes the same volume.
    hosts.control.interrupt(second["InstanceId"], notice=False)
    third = hosts.instance(fleet, other_than=(first["InstanceId"], second["InstanceId"]))
    hosts.wait_for(third, "resume")
    hosts.wait(lambda: hosts.record.training.state == FINISHED, "the end", lambda: hosts.console(third))
    record = hosts.record
    assert record.training.exit_code == 0
    assert record.training.interruptions == 1
    assert record.volume is not None
    assert [volume["VolumeId"] for volume in hosts.volumes()] == [record.volume.id]
    assert record.volume.zone == other
    model = (
        hosts.session.client("s3")
        .get_object(Bucket=hosts.bucket, Key=f"runs/{hosts.run}/output/model.tar.gz")["Body"]
        .read()
    )
    with tarfile.open(fileobj=io.BytesIO(model)) as archive:
        found = archive.extractfile("./total")
        assert found is not None
        assert found.read().decode() == str(sum(range(150)))
    assert any("trained by spotkeep" in line for line in hosts.log())


def test_a_notice_that_nothing_follows_and_a_time_without_any_capacity(relocated_hosts: Site) -> None:
    """A warned instance that is not taken ends by itself; a run that no host has room for waits, and loses nothing."""
    hosts = relocated_hosts
    fleet = hosts.launch(job(hosts, pause_s=0.05))
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
        hosts.control.change_pool(PoolChange(zone=zone, capacity=0, notice=False))
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
