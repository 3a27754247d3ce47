"""Agents that run as real processes: a cloud for each test, trainings for them, and what became of these."""

from __future__ import annotations

import json
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.training.checkpoint_copies import CheckpointCopies
from spotkeep_agent.training.script_files import SCAN_SECONDS
from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import FINISHED, new_record
from tests.models.ec2 import changed, instance_job

from .cloud import RUN, Cloud, Instance

STEPS: Final = 6
HELD: Final = {"held_at": 4}
"""For a training that is interrupted: it is quick to its fifth step, and stays in it, or a later one, until then."""
SCRIPT: Final = """
import os, time
from spotkeep import Checkpointer

state = {"total": 0, "weights": bytearray(int(os.environ["WEIGHTS"]))}
with Checkpointer(state, every_steps=2) as checkpointer:
    for step in checkpointer.steps(int(os.environ["STEPS"])):
        state["total"] += step
        time.sleep(float(os.environ["PAUSE"]))
        while step >= int(os.environ["HELD_AT"]) and not checkpointer.interrupted:
            time.sleep(0.01)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.close()


def launch(cloud: Cloud, **changes: Any) -> None:
    """What the launcher writes for a run's first attempt."""
    cloud.open(new_record(run=RUN), job=job(**changes))


def job(
    *,
    steps: int = STEPS,
    held_at: int | None = None,
    pause: float = 0.0,
    weights: int = 1,
    script: str = SCRIPT,
    **changes: Any,
) -> InstanceJob:
    numbers = {"STEPS": steps, "HELD_AT": steps if held_at is None else held_at, "PAUSE": pause, "WEIGHTS": weights}
    whole = instance_job(
        command=("python", "-c", textwrap.dedent(script)),
        volume=VolumeSpec(size_gb=8, initialization_rate_mib_s=200),
        environment={name: str(number) for name, number in numbers.items()},
        log_group="/spotkeep/instances",
        event_bus="default",
        checkpoint_uri="s3://bucket/runs/run/checkpoints/",
        output_uri="s3://bucket/runs/run/output/",
    )
    return changed(whole, **changes)


def copies_of(
    volume: Path,
    calls: AwsCalls,
    uri: str,
    *,
    on_uploaded: Callable[[int], None] = lambda step: None,
    break_off: Callable[[], None] = lambda: None,
    scan_seconds: float = SCAN_SECONDS,
) -> CheckpointCopies:
    """The copies in S3 of what a volume holds, as the agent makes them."""
    return CheckpointCopies(
        uri,
        UserFiles(volume),
        kept=volume,
        calls=calls,
        fetching=calls,
        cancelled=threading.Event(),
        break_off=break_off,
        on_uploaded=on_uploaded,
        scan_seconds=scan_seconds,
    )


def total(cloud: Cloud) -> str:
    """What the training computed: the model on the current volume."""
    volume = cloud.record.volume
    assert volume is not None
    return (cloud.path(volume.id) / "model/total").read_text()


def ends_well(cloud: Cloud, instance: Instance, *, steps: int = STEPS) -> None:
    """The training on an instance ends where an uninterrupted one ends."""
    assert instance.finish() == 0
    assert cloud.record.training.state == FINISHED
    assert total(cloud) == str(sum(range(steps)))


def one_volume(cloud: Cloud) -> None:
    """The run's volume is all that is left in EC2."""
    assert cloud.record.volume is not None
    assert list(cloud.ec2.volumes) == [cloud.record.volume.id]
    assert not cloud.ec2.snapshots
    assert not cloud.record.retired


def events_of(instance: Instance) -> list[dict[str, Any]]:
    """The events that the agent and the library printed."""
    mark = "spotkeep-event: "
    return [json.loads(line.partition(mark)[2]) for line in instance.lines if mark in line]


def steps_of(instance: Instance, event: str) -> list[int]:
    """The steps of an instance's events of one kind."""
    return [found["step"] for found in events_of(instance) if found["event"] == event]
