"""Capacity is taken in every phase of an instance's life: shortly after it began, in its middle, near its end.

One run lives through all of it, one instance after the other, and ends where an uninterrupted one ends. A minute is
half a second here. The phases are held open from outside, so that the moment is met.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import os
import random
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import FINISHED, new_record
from spotkeep_fleet.training_spec import JobSource

from .cloud import RUN, Cloud, Instance
from .conftest import SCRIPT, job, one_volume, total

pytestmark = pytest.mark.long

ZONE, OTHER_ZONE = "us-east-1a", "us-east-1b"
STEPS = 12
SECONDS = 1 / 120
SOURCE, CHECKPOINTS, MODEL = "bucket/source.tar.gz", "/checkpoints/", "/output/"


@dataclass(frozen=True)
class Interruption:
    """How an instance is taken: so many (scaled) seconds into the phase, with a notice that it can follow or not."""

    after_s: float
    notice: bool

    def strike(self, instance: Instance) -> None:
        time.sleep(self.after_s * SECONDS)
        if self.notice:
            instance.announce(120)
            assert instance.finish() == 0
            assert instance.cloud.record.training.noticed[-1].instance == instance.id, "EC2 takes it"
        instance.power_off()


@pytest.fixture
def cloud(cloud: Cloud) -> Cloud:
    cloud.objects[SOURCE] = (packed_script(), {})
    cloud.open(new_record(run=RUN), job=from_source(held_at=4))
    return cloud


@functools.cache
def packed_script() -> bytes:
    packed, script = io.BytesIO(), SCRIPT.encode()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("train.py")
        entry.size = len(script)
        archive.addfile(entry, io.BytesIO(script))
    return packed.getvalue()


def from_source(**changes: Any) -> InstanceJob:
    source = JobSource(uri=f"s3://{SOURCE}", sha256=hashlib.sha256(packed_script()).hexdigest())
    return job(steps=STEPS, command=("python", "train.py"), source=source, **changes)


# The phases. Each boots an instance, interrupts it there, and leaves the run to the next one.


def while_it_asks_who_it_is(cloud: Cloud, interruption: Interruption) -> None:
    instance = cloud.boot(ZONE, held_metadata=True)
    replace(interruption, notice=False).strike(instance)  # no notice comes from metadata that are silent
    instance.hanging = False
    assert not cloud.ec2.volumes


def while_its_first_volume_is_made(cloud: Cloud, interruption: Interruption) -> None:
    cloud.ec2.volume_state = "creating"
    instance = cloud.boot(ZONE)
    instance.wait_for("the new volume")
    interruption.strike(instance)
    cloud.ec2.completes()


def while_it_fetches_the_source(cloud: Cloud, interruption: Interruption) -> None:
    cloud.held.add(("GET", SOURCE))
    instance = cloud.boot(ZONE)
    instance.wait_for("volume: Ready")
    interruption.strike(instance)
    cloud.held.clear()


def while_it_trains(cloud: Cloud, interruption: Interruption) -> None:
    instance = cloud.boot(ZONE)
    instance.wait_for('"event":"saved"')
    interruption.strike(instance)


def while_it_is_about_to_attach(cloud: Cloud, interruption: Interruption) -> None:
    with cloud.throttling("AttachVolume"):
        instance = cloud.boot(ZONE)
        instance.wait_for("the lease")
        interruption.strike(instance)


def while_a_snapshot_is_made(cloud: Cloud, interruption: Interruption) -> None:
    cloud.ec2.snapshot_state = "pending"
    instance = cloud.boot(OTHER_ZONE)
    instance.wait_for("the snapshot")
    interruption.strike(instance)
    cloud.ec2.completes()


def while_the_volume_is_made_of_it(cloud: Cloud, interruption: Interruption) -> None:
    cloud.ec2.volume_state = "creating"
    instance = cloud.boot(OTHER_ZONE)
    instance.wait_for("the new volume")
    interruption.strike(instance)
    cloud.ec2.completes()


def while_it_says_goodbye(cloud: Cloud, interruption: Interruption) -> None:
    """The notice was there; the power goes before the checkpoint is in S3, or before the volume is let go."""
    cloud.held.add(("PUT", CHECKPOINTS))
    instance = cloud.boot(OTHER_ZONE)
    instance.wait_for('"event":"resume"')
    instance.announce(60)
    instance.wait_for('"event":"instance-leaving"')
    replace(interruption, notice=False).strike(instance)
    cloud.held.clear()


def while_it_sends_the_model(cloud: Cloud, interruption: Interruption) -> None:
    cloud.new_job(from_source())
    cloud.held.add(("PUT", MODEL))
    instance = cloud.boot(OTHER_ZONE)
    instance.wait_for(f'"step":{STEPS}')
    replace(interruption, notice=False).strike(instance)
    assert not cloud.record.training.over
    cloud.held.clear()


PHASES: tuple[Callable[[Cloud, Interruption], None], ...] = (
    while_it_asks_who_it_is,
    while_its_first_volume_is_made,
    while_it_fetches_the_source,
    while_it_trains,
    while_it_is_about_to_attach,
    while_a_snapshot_is_made,
    while_the_volume_is_made_of_it,
    while_it_says_goodbye,
    while_it_sends_the_model,
)
ALL = os.environ.get("SPOTKEEP_EXPLORE") == "all"
AFTER_S = [1, 30, 119]


@pytest.mark.parametrize("after_s", AFTER_S if ALL else [None])
@pytest.mark.parametrize("notice", [True, False] if ALL else [None])
def test_a_run_that_is_interrupted_in_every_phase_ends_as_if_it_were_not(
    cloud: Cloud, after_s: float | None, notice: bool | None
) -> None:
    """Every other instance has a notice: which ones, and when it comes, is drawn each time."""
    chance = random.Random(seed := random.randrange(2**32))  # noqa: S311 - not secret
    print(f"drawn with random.Random({seed})")
    with_notice = itertools.cycle(chance.choice([[True, False], [False, True]]) if notice is None else [notice])
    for phase in PHASES:
        before = len(cloud.instances)
        phase(cloud, Interruption(chance.choice(AFTER_S) if after_s is None else after_s, next(with_notice)))
        assert len(cloud.instances) == before + 1
        assert (cloud.record.setbacks, cloud.record.training.over) == (0, False)
    assert cloud.boot(OTHER_ZONE).finish() == 0
    record = cloud.record
    assert record.training.state == FINISHED
    assert record.training.script_failures == 0
    assert record.volume is not None
    assert total(cloud) == str(sum(range(STEPS)))
    one_volume(cloud)
    assert (record.lease, record.move) == (None, None)
    assert cloud.calls["CreateSnapshot"] == 1, "the next instance goes on with that of the one before"
