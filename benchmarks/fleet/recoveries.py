"""Interruptions of instances, with measures of recoveries, of the floor to compare them with, and of notices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.training_spec import TrainingSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.models.fleet_site import Site

_EVENT: Final = "spotkeep-event: "
_TRAINING: Final = Path(__file__).parents[2] / "training"
_STEPS, _EVERY_STEPS = 1_000_000, 10
_NOTICE_SECONDS = 60.0
SCRIPT: Final = """
import os, time
from spotkeep import Checkpointer

state = {"weights": bytearray(os.urandom(1 << 20) * int(os.environ["STATE_MIB"]))}
with Checkpointer(state, every_steps=int(os.environ["EVERY_STEPS"])) as checkpointer:
    pause = 0.0  # the first step takes no time: it only shows that the training goes on
    for step in checkpointer.steps(int(os.environ["STEPS"])):
        time.sleep(pause)
        pause = 0.2
"""


@dataclass(frozen=True, kw_only=True)
class InstanceRecovery:
    """The time of an instance from the start of its user data to the first step of the training.

    Attributes:
        migrated: True when the volume came from another zone.
        phases_s: Seconds of each phase, in their order.
        calls: AWS calls by `service:Action`, those of user data among them.
    """

    migrated: bool
    phases_s: Mapping[str, float]
    calls: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """All phases."""
        return sum(self.phases_s.values())


@dataclass(frozen=True, kw_only=True)
class Goodbye:
    """The steps of an instance after a notice, in seconds from the moment that the metadata showed it.

    Attributes:
        heard_s: Until the agent passed the notice to the training.
        durable_s: Until the last step was in a checkpoint on the volume.
        uploaded_s: Until that checkpoint was in S3, or None when it did not get there.
        left_s: Until the volume and the lease were given back.
        steps_lost: Number of completed steps that are not in the checkpoint.
    """

    heard_s: float
    durable_s: float
    uploaded_s: float | None
    left_s: float
    steps_lost: int


class MeasuredFleet:
    """The fleet of a run, with instances that are interrupted one after the other.

    Args:
        site: The local AWS that it runs on.
        state_mib: Size of the training's state in MiB.
    """

    def __init__(self, site: Site, *, state_mib: int) -> None:
        self._site = site
        self._gone: tuple[str, ...] = ()
        self._fleet = site.launch(_job(site, state_mib=state_mib))
        self.instance = site.instance(self._fleet)
        self._until_it_saved()

    def lose(self) -> InstanceRecovery:
        """Cut the power, and measure the recovery."""
        self._site.control.interrupt(self.instance["InstanceId"], notice=False)
        return self._next()

    def notice(self, *, elsewhere: bool = False) -> tuple[Goodbye, InstanceRecovery]:
        """Give notice, and measure goodbye and recovery.

        Args:
            elsewhere: True when the zone has no more capacity, so that the volume must move.
        """
        noticed_at = time.time()
        self._site.control.interrupt(self.instance["InstanceId"], notice_seconds=_NOTICE_SECONDS)
        zone = self.instance["Placement"]["AvailabilityZone"]
        if elsewhere:
            self._site.fill(zone)
        left = self._site.wait_for(self.instance, "instance-left")
        # It waits for EC2 now: what is left of the notice is nothing to measure.
        self._site.control.interrupt(self.instance["InstanceId"], notice=False)
        events = list(self._site.events(self.instance))
        leaving = next(event for event in events if event["event"] == "instance-leaving")
        saved = [event for event in events if event["event"] == "saved"][-1]
        uploaded = [event for event in events if event["event"] == "uploaded" and event["step"] == saved["step"]]
        stepped = max(event["step"] for event in events if event["event"] == "progress")
        heard = next((event["time"] for event in events if event["event"] == "notice"), leaving["time"])
        goodbye = Goodbye(
            heard_s=round(heard - noticed_at, 3),
            durable_s=round(saved["time"] - noticed_at, 3),
            uploaded_s=round(uploaded[0]["time"] - noticed_at, 3) if uploaded else None,
            left_s=round(left["time"] - noticed_at, 3),
            steps_lost=stepped - saved["step"],
        )
        recovery = self._next()
        if elsewhere:
            self._site.fill(zone, room=-1)
        return goodbye, recovery

    def _next(self) -> InstanceRecovery:
        site, before = self._site, self.instance
        self._gone = (*self._gone, before["InstanceId"])
        self.instance = site.instance(self._fleet, other_than=self._gone)
        first_step = site.wait_for(self.instance, "instance-first-step")
        facts = site.control.instance_facts(self.instance["InstanceId"])
        boot_s = first_step["time"] - sum(first_step["phases"].values()) - (facts.running_at or 0.0)
        self._until_it_saved()
        return InstanceRecovery(
            migrated=self.instance["Placement"]["AvailabilityZone"] != before["Placement"]["AvailabilityZone"],
            phases_s={"boot": round(boot_s, 3), **first_step["phases"]},
            calls={"s3:GetObject (user data)": 1, **first_step["calls"]},
        )

    def _until_it_saved(self) -> None:
        self._site.wait_for(self.instance, "saved")


class Floor:
    """The least work of each recovery, in which the process starts and gets its checkpoint.

    Args:
        folder: The folder for its checkpoint.
        state_mib: Size of the training's state in MiB.
    """

    def __init__(self, folder: Path, *, state_mib: int) -> None:
        self._folder = folder
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
            "PYTHONPATH": str(_TRAINING),
            "SPOTKEEP_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "SPOTKEEP_EVENTS": "stdout",
            "SPOTKEEP_PROGRESS_SECONDS": "0",
            **_script_environment(state_mib),
        }
        self._until("saved")

    def seconds(self) -> float:
        """Time from the start of the process to its first step after the restore."""
        began = time.time()
        return round(float(self._until("progress")["time"]) - began, 3)

    def clear(self) -> None:
        """Remove the checkpoint."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _until(self, event: str) -> dict[str, Any]:
        command = ["python3", "-c", SCRIPT]
        with subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stdout or ():
                    found: dict[str, Any] = json.loads(line[len(_EVENT) :]) if line.startswith(_EVENT) else {}
                    if found.get("event") == event:
                        return found
            finally:
                process.kill()
        raise AssertionError(f"the training ended before it reported {event}")


def _job(site: Site, *, state_mib: int) -> InstanceJob:
    return InstanceJob(
        training=TrainingSpec(
            command=("python3", "-c", SCRIPT),
            environment={**_script_environment(state_mib), "SPOTKEEP_PROGRESS_SECONDS": "0"},
        ),
        volume=VolumeSpec(size_gb=max(4, 4 * state_mib // 1024 + 1)),
        log_group=site.group,
        event_bus="default",
        checkpoint_uri=f"s3://{site.bucket}/runs/{site.run}/checkpoints/",
    )


def _script_environment(state_mib: int) -> dict[str, str]:
    return {"STATE_MIB": str(state_mib), "STEPS": str(_STEPS), "EVERY_STEPS": str(_EVERY_STEPS)}
