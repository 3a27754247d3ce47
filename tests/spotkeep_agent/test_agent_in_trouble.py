"""Agents whose metadata, volume or source is not what it should be: real processes, a cloud that takes orders."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR, MOST_SETBACKS
from spotkeep_fleet.training_spec import JobSource

from .cloud import Cloud, Instance
from .conftest import STEPS, launch

pytestmark = pytest.mark.long

MIB = 2**20
TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"


def ask_twice(instance: Instance, path: str) -> None:
    """Wait until the agent has asked its metadata for this, and again."""
    until = instance.asked[path] + 2
    while instance.asked[path] < until:
        time.sleep(0.02)


def test_metadata_that_are_broken_hold_nothing_up_and_a_notice_afterwards_is_heard(cloud: Cloud) -> None:
    """A naive client waits for a new token before each batch, and takes any answer but 404 for a notice (trap 4)."""
    launch(cloud, steps=12, held_at=10, pause=0.05)
    instance = cloud.boot("us-east-1a", metadata={TOKEN: (401, "")})
    ask_twice(instance, TOKEN)
    assert not cloud.ec2.volumes
    instance.metadata = {ACTION: (500, "fault")}
    instance.wait_for('"event":"saved"')
    instance.hanging = True
    instance.wait_for('"step":10')
    instance.hanging = False
    instance.metadata = {TOKEN: (401, ""), ACTION: (401, "")}
    ask_twice(instance, TOKEN)
    instance.metadata = {}
    assert cloud.record.training.interruptions == 0
    instance.announce(60)
    assert instance.finish() == 0
    assert cloud.record.training.interruptions == 1


def _why_no_small_volumes() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a volume that is small needs root on Linux"
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
        subprocess.run(["umount", "--quiet", folder], check=False)
    return None if made.returncode == 0 else "nothing can be mounted here"


WHY_NO_SMALL_VOLUMES = _why_no_small_volumes()
small_volumes = pytest.mark.skipif(WHY_NO_SMALL_VOLUMES is not None, reason=str(WHY_NO_SMALL_VOLUMES))


@small_volumes
def test_a_volume_that_is_full_is_reported_and_costs_neither_the_training_nor_a_checkpoint_that_was_there(
    cloud: Cloud,
) -> None:
    cloud.ec2.volume_bytes = 16 * MIB
    launch(cloud, weights=7 * MIB, checkpoint_uri=None)
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    training = cloud.record.training
    assert training.state == FINISHED
    assert "give the job a larger volume" in (cloud.record.problem or "")
    assert training.durable_step is not None
    assert training.durable_step < STEPS
    volume = next(iter(cloud.ec2.volumes.values()))
    assert training.durable_step in CheckpointDirectory(cloud.path(volume.id) / "checkpoints").steps()


@small_volumes
def test_a_volume_that_is_too_small_for_the_data_ends_the_run_on_its_first_instance(cloud: Cloud) -> None:
    """Each instance would fail the same way, and the fleet would replace each."""
    cloud.ec2.volume_bytes = 2 * MIB
    cloud.objects["bucket/data/large"] = (bytes(4 * MIB), {})
    launch(cloud, channels={"train": "s3://bucket/data/"})
    assert cloud.boot("us-east-1a").finish() == 0
    assert cloud.record.training.state == INPUT_ERROR
    assert "Launch the run with a larger volume" in (cloud.record.training.failure or "")
    assert {volume.state for volume in cloud.ec2.volumes.values()} == {"available"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": JobSource(uri="s3://bucket/nothing.tar.gz", sha256="0" * 64)}, "nothing.tar.gz"),
        ({"channels": {"train": "s3://bucket/date/"}}, "channel train: s3://bucket/date/ holds no data"),
    ],
)
def test_what_is_not_there_ends_the_run_on_its_first_instance(cloud: Cloud, changes: dict[str, Any], says: str) -> None:
    launch(cloud, **changes)
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    training = cloud.record.training
    assert (training.state, training.exit_code, cloud.record.setbacks) == (INPUT_ERROR, None, 0)
    assert says in (training.failure or "")
    assert [event["failure"] for event in cloud.events if event.get("event") == "failed"] == [training.failure]


def test_data_that_cannot_be_had_now_are_a_setback_and_the_last_of_so_many_ends_the_run(cloud: Cloud) -> None:
    launch(cloud, channels={"train": "s3://bucket/data/"})
    cloud.refusing["bucket/"] = "RequestTimeTooSkewed"
    cloud.change(lambda record: replace(record, setbacks=MOST_SETBACKS - 1))
    assert cloud.boot("us-east-1a").finish() == 3
    training = cloud.record.training
    assert (training.state, training.exit_code) == (INPUT_ERROR, None)
    assert "RequestTimeTooSkewed" in (training.failure or "")


def test_a_commit_that_the_repository_lacks_is_reported(cloud: Cloud, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    launch(cloud, source=JobSource(git_url=f"file://{repository}", git_commit="0" * 40))
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    training = cloud.record.training
    assert training.state == FAILED
    assert "0" * 40 in (training.failure or "")


def test_a_command_that_nothing_can_read_ends_the_run_at_once_and_is_no_script_that_failed(cloud: Cloud) -> None:
    launch(cloud, command="echo begins\nif true\n", max_script_retries=3)
    assert cloud.boot("us-east-1a").finish() == 0
    training = cloud.record.training
    assert (training.state, training.script_failures) == (INPUT_ERROR, 0)
    assert (training.failure or "").startswith("not started: bash cannot read the command: line 3: ")
