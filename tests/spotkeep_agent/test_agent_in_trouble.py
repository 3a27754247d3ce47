"""Agents whose metadata, disk, volume or notice is not what it should be: real processes, a cloud that takes orders."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spotkeep_agent.volume.volume_directory import MARK
from spotkeep_fleet.instance_job import JobSource
from spotkeep_fleet.record import FAILED, FINISHED, MOST_SETBACKS

from .cloud import Cloud
from .conftest import SLOW, STEPS, ends_well, job

pytestmark = pytest.mark.long

MIB = 2**20
TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"


def train_on(cloud: Cloud) -> None:
    """From now on without pauses."""
    cloud.new_job(job(steps=STEPS))


# Notices


def test_a_notice_that_nothing_follows_costs_one_recovery_and_no_more(
    cloud: Cloud, launch: Callable[..., None]
) -> None:
    """The instance lives on without the volume: the next agent need not wait for its end."""
    launch(**SLOW)
    first = cloud.boot("us-east-1a")
    first.wait_for('"event":"saved"')
    first.announce(30)
    assert first.finish() == 0
    assert first.ec2.state == "running"
    train_on(cloud)
    ends_well(cloud, cloud.boot("us-east-1a"))
    assert cloud.record.training.interruptions == 1


def test_a_notice_while_the_source_is_fetched_is_not_kept_waiting_by_the_network(
    cloud: Cloud, launch: Callable[..., None]
) -> None:
    launch(**SLOW, source=JobSource(uri="s3://bucket/source.tar.gz", sha256="0" * 64))
    cloud.held.add(("GET", "source.tar.gz"))
    instance = cloud.boot("us-east-1a")
    instance.wait_for("volume: Ready")
    instance.announce(60)
    assert instance.finish() == 0
    assert cloud.record.lease is None
    assert cloud.record.setbacks == 0
    assert {volume.state for volume in cloud.ec2.volumes.values()} == {"available"}


def test_a_notice_while_a_checkpoint_comes_back_from_s3_is_not_kept_waiting_either(
    cloud: Cloud, launch: Callable[..., None]
) -> None:
    launch(**SLOW)
    first = cloud.boot("us-east-1a")
    first.wait_for('"event":"uploaded"')
    first.announce(30)
    assert first.finish() == 0
    cloud.change(lambda record: replace(record, volume=None, training=replace(record.training, uploaded_step=None)))
    cloud.held.add(("GET", "/checkpoints/step"))
    second = cloud.boot("us-east-1b")
    second.wait_for("volume: Ready")
    second.announce(60)
    assert second.finish() == 0
    cloud.held.clear()
    train_on(cloud)
    ends_well(cloud, cloud.boot("us-east-1b"))


# Metadata


def test_metadata_that_are_broken_at_the_boot_are_asked_again(cloud: Cloud, launch: Callable[..., None]) -> None:
    launch(steps=STEPS)
    instance = cloud.boot("us-east-1a", metadata={TOKEN: (401, "")})
    time.sleep(1.5)
    assert not cloud.ec2.volumes
    del instance.metadata[TOKEN]
    ends_well(cloud, instance)


def test_metadata_that_hang_at_the_boot_are_asked_again(cloud: Cloud, launch: Callable[..., None]) -> None:
    launch(steps=STEPS)
    instance = cloud.boot("us-east-1a", held_metadata=True)
    time.sleep(1.5)
    instance.hanging = False
    ends_well(cloud, instance)


def test_metadata_that_break_during_the_training_do_not_slow_it_down(cloud: Cloud, launch: Callable[..., None]) -> None:
    """A naive client waits for a new token before each batch: 150 s each (trap 4)."""
    launch(steps=STEPS)
    instance = cloud.boot("us-east-1a")
    instance.wait_for("volume: Ready")
    instance.metadata[TOKEN] = instance.metadata[ACTION] = (401, "")
    ends_well(cloud, instance)
    assert cloud.record.training.interruptions == 0


def test_a_notice_after_metadata_were_broken_is_heard(cloud: Cloud, launch: Callable[..., None]) -> None:
    """The naive way takes any answer but 404 for a notice (trap 4); `spotkeep.notices` has the other wrong ones."""
    launch(**SLOW)
    instance = cloud.boot("us-east-1a", metadata={ACTION: (500, "fault")})
    instance.wait_for('"event":"saved"')
    instance.announce(60)
    assert instance.finish() == 0
    assert cloud.record.training.interruptions == 1


# Volumes


def test_a_damaged_file_system_costs_the_volume_and_not_the_run(cloud: Cloud, launch: Callable[..., None]) -> None:
    """It is recorded, kept for a person, and the next instance goes on from S3 on a new one."""
    launch(**SLOW)
    first = cloud.boot("us-east-1a")
    first.wait_for('"event":"uploaded"')
    first.announce(30)
    assert first.finish() == 0
    assert cloud.record.volume is not None
    damaged = cloud.record.volume.id
    (cloud.path(damaged) / MARK).write_text("half")
    second = cloud.boot("us-east-1a")
    assert second.finish() == 3
    assert cloud.record.volume is not None
    assert "damaged" in (cloud.record.volume.damage or "")
    assert cloud.record.lease is None
    train_on(cloud)
    third = cloud.boot("us-east-1a")
    ends_well(cloud, third)
    third.wait_for('"event":"downloaded"')
    assert cloud.record.kept == (damaged,)
    assert damaged in cloud.ec2.volumes
    assert cloud.record.volume.id != damaged


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
    cloud: Cloud, launch: Callable[..., None]
) -> None:
    cloud.ec2.volume_bytes = 16 * MIB
    launch(weights=7 * MIB, steps=STEPS, checkpoint_uri=None)
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    training = cloud.record.training
    assert training.state == FINISHED
    assert "give the job a larger volume" in (cloud.record.problem or "")
    assert training.durable_step is not None
    assert training.durable_step < STEPS
    volume = next(iter(cloud.ec2.volumes.values()))
    whole = [manifest.parent.name for manifest in (cloud.path(volume.id) / "checkpoints").glob("step-*/manifest.json")]
    assert training.durable_step in {int(name.partition("-")[2]) for name in whole}


@small_volumes
def test_a_volume_that_is_too_small_for_the_data_ends_the_run_and_not_the_budget(
    cloud: Cloud, launch: Callable[..., None]
) -> None:
    """Each instance fails the same way, and the fleet replaces each: the last of so many ends it."""
    cloud.ec2.volume_bytes = 2 * MIB
    cloud.objects["bucket/data/large"] = (bytes(4 * MIB), {})
    launch(**SLOW, channels={"train": "s3://bucket/data/"})
    cloud.change(lambda record: replace(record, setbacks=MOST_SETBACKS - 2))
    first = cloud.boot("us-east-1a")
    assert first.finish() == 3
    assert not cloud.record.training.over
    assert "No space left on device" in (cloud.record.problem or "")
    second = cloud.boot("us-east-1a")
    assert second.finish() == 3
    assert cloud.record.training.state == FAILED
    assert "No space left on device" in (cloud.record.training.failure or "")
    assert {volume.state for volume in cloud.ec2.volumes.values()} == {"available"}


def test_a_source_that_is_not_there_ends_the_run_and_not_the_budget(cloud: Cloud, launch: Callable[..., None]) -> None:
    launch(**SLOW, source=JobSource(uri="s3://bucket/nothing.tar.gz", sha256="0" * 64))
    cloud.change(lambda record: replace(record, setbacks=MOST_SETBACKS - 1))
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 3
    assert cloud.record.training.state == FAILED
    assert "nothing.tar.gz" in (cloud.record.training.failure or "")


def test_a_training_that_gets_going_forgets_earlier_setbacks(cloud: Cloud, launch: Callable[..., None]) -> None:
    launch(steps=STEPS)
    cloud.change(lambda record: replace(record, setbacks=MOST_SETBACKS - 1))
    ends_well(cloud, cloud.boot("us-east-1a"))
    assert cloud.record.setbacks == 0


# The source


def test_a_commit_that_the_repository_lacks_is_reported(
    cloud: Cloud, launch: Callable[..., None], tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    launch(**SLOW, source=JobSource(git_url=f"file://{repository}", git_commit="0" * 40))
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    training = cloud.record.training
    assert training.state == FAILED
    assert "0" * 40 in (training.failure or "")
