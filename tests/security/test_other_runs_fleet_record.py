"""Who: a training script of one run, with the role of its instance. With what: the fleet record of another run.

The fleet record held command, environment and source of the run's next instance, so a script of run A ran what it
liked as run B: with its data, its source's credentials, its place in S3. And a record names volumes, snapshots and an
output, which functions delete, print and hand on: of a run of the same deployment, or of a stranger's bucket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.record import FINISHED, SNAPSHOT, VOLUME, CurrentVolume, Retired, VolumeMove, new_record
from spotkeep_jobs.record.states import RunState
from tests.models.ec2 import changed, instance_job
from tests.spotkeep_agent.cloud import RUN, Cloud
from tests.spotkeep_jobs.backends.ec2.world import World, asked, run_item, snapshot, volume

from .policies import Policies

OWN_OUTPUT = "s3://bucket/runs/count/output/count-1/output/"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.close()


def test_no_instance_writes_what_is_executed_or_what_functions_keep(policies: Policies) -> None:
    table = policies.arn("AWS::DynamoDB::Table")

    def may(role: str, action: str, partition: str) -> bool:
        keys = {"dynamodb:LeadingKeys": [partition], "aws:PrincipalTag/run": "run"}
        return policies.allows(role, f"dynamodb:{action}", table, keys)

    assert may("RunRole", "GetItem", "fleet-job#run"), "an instance reads its job"
    for partition in ("fleet-job#victim", "run#victim", "checkpoint-lock#s3://b/c/", "token#t"):
        for action in ("PutItem", "UpdateItem", "DeleteItem"):
            assert not any(may(role, action, partition) for role in ("InstanceRole", "RunRole")), (partition, action)


def test_a_job_that_is_written_into_a_record_is_not_executed(cloud: Cloud) -> None:
    """The next instance of the victim boots with a record that names another command, environment and source."""
    mine = instance_job(command=("python", "-c", "print('the launched command')"), volume=VolumeSpec(size_gb=8))
    theirs = changed(mine, command=("python", "-c", "print('the smuggled command')"), environment={"KEY": "stolen"})
    cloud.open(new_record(run=RUN), job=mine)
    document = json.loads(cloud.record_item["record"]["S"])
    smuggled = {**document, "job": theirs.document(), "command": list(theirs.training.command)}
    cloud.record_item["record"] = {"S": json.dumps(smuggled)}
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    assert "the launched command" in instance.lines
    assert "the smuggled command" not in instance.lines
    assert cloud.record.training.state == FINISHED


def test_the_next_attempt_executes_what_the_launcher_asked_for(world: World) -> None:
    world.jobs.create(asked())
    world.change_record(ended=True, problem="command=['evil']")
    world.jobs.create(asked(2))
    job = world.records.job("count")
    assert job is not None
    assert (job.attempt, job.training.command) == (2, ("true",))


@pytest.mark.parametrize("named", ["retired", "current", "in the making"])
def test_a_volume_of_another_run_is_not_deleted_because_a_record_names_it(world: World, named: str) -> None:
    """Nor is a snapshot. Functions delete what carries the run's own tag, whatever its record says is its own."""
    says: dict[str, Any] = {
        "retired": {"retired": (Retired(VOLUME, "vol-victim"), Retired(SNAPSHOT, "snap-victim"))},
        "current": {"volume": CurrentVolume(id="vol-victim", zone="us-east-1a", size_gb=1)},
        "in the making": {"move": VolumeMove(1, "us-east-1a", VOLUME, snapshot="snap-victim", successor="vol-victim")},
    }[named]
    world.jobs.create(asked())
    world.change_record(ended=True, operations=2**40, **says)
    world.stores(volume("vol-victim", run="victim"), snapshot("snap-victim", run="victim"))
    removed = world.orphans(run_item(RunState.COMPLETED, days_ago=30)).remove_all()
    assert (removed.storage, world.stored) == ([], ["vol-victim", "snap-victim"])


@pytest.mark.parametrize(
    "uri",
    [
        "s3://attackers-bucket/model.tar.gz",
        "s3://bucket/runs/victim/output/victim-1/output/model.tar.gz",
        OWN_OUTPUT + "../../../victim/output/model.tar.gz",
        "https://attacker.example/model.tar.gz",
    ],
)
def test_an_output_outside_the_attempts_own_prefix_is_not_handed_on(world: World, uri: str) -> None:
    """Who downloads what `spotkeep describe` prints would load a model, which is code, of the attacker's."""
    world.jobs.create(asked())
    world.instance("a")
    world.report(state=FINISHED, exit_code=0, output_uri=uri)
    job = world.jobs.settle("count-1")
    assert job is not None
    assert job.model_uri is None
    world.report(output_uri=OWN_OUTPUT + "model.tar.gz")
    job = world.jobs.observe("count-1")
    assert job is not None
    assert job.model_uri == OWN_OUTPUT + "model.tar.gz"
