"""The scenario of `spotkeep rehearse-fleet`. A run on a spot fleet loses its instance twice.

The run is left alone once, to compare with. Then EC2 takes its capacity with a notice. Only other zones have room then,
so its volume must move. Later EC2 takes the capacity without a notice. Only the volume's zone has room then, so the
next instance takes the same volume. Instances boot the deployed user data. The local EC2 is faster than AWS's. The
training is not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from spotkeep_cli.rehearsal.deployment import QUICK_SYNC
from spotkeep_cli.rehearsal.engine import WHOLE_TRAINING, Rehearsal, Scenario
from spotkeep_cli.rehearsal.fleet_verdict import (
    FleetEvidence,
    RehearsedInstance,
    ResourcesOfRun,
    instance_life,
    judge_fleet,
    printed_events,
    training_began_at,
)
from spotkeep_cli.rehearsal.gathering import evidence_of_run
from spotkeep_cli.rehearsal.report import FleetReport
from spotkeep_cli.rehearsal.spot import CHECK_AND_LAUNCH, report_of_interruptions
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_fleet.tags import RUN_TAG
from spotkeep_jobs.record.record import Run
from spotkeep_local.control import FleetControl
from spotkeep_local.ec2.market import SpotPoolChange
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.hosts.written_files import read_end

NOTICE_SECONDS = 20.0
"""Seconds that remain of two minutes for an agent that asks the metadata every five seconds."""
_MOST_CONSOLE_BYTES = 8 * 1024 * 1024


TIME_SCALE = 20.0
_FIRST, _SECOND = 0.35, 0.70
_POLL_SECONDS = 0.2
_GONE_SECONDS = 60.0
_ENDED_BEFORE = "the run ended before that"


class FleetOnEc2:
    """The fleet of a run.

    Args:
        run: The run's id.
        ec2: A boto3 client.
        control: The control of the local EC2, which takes instances away.

    Attributes:
        seconds_alone: Training time in seconds of a run left alone whose script reports no steps. None where it reports
            them.
    """

    def __init__(self, run: str, *, ec2: Any, control: FleetControl) -> None:
        self.run = run
        self._ec2, self._control = ec2, control
        self._own = {"Filters": [{"Name": f"tag:{RUN_TAG}", "Values": [run]}]}
        self._volumes: dict[str, str] = {}
        self.seconds_alone: float | None = None

    def _instances(self) -> list[dict[str, Any]]:
        pages = self._ec2.get_paginator("describe_instances").paginate(**self._own)
        found = [instance for page in pages for group in page["Reservations"] for instance in group["Instances"]]
        return sorted(found, key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))

    def id(self, number: int) -> str:
        """Return the id of its first, second, ... instance."""
        return str(self._instances()[number - 1]["InstanceId"])

    def zone(self, number: int) -> str:
        """Return the Availability Zone of its first, second, ... instance."""
        return str(self._instances()[number - 1]["Placement"]["AvailabilityZone"])

    def _events(self, instance_id: str) -> list[Mapping[str, Any]]:
        return printed_events(self._end_of_console(instance_id))

    def _end_of_console(self, instance_id: str) -> str:
        """Return the last megabytes that an instance printed, which are thousands of lines for any script."""
        console = Path(self._control.instance_facts(instance_id).console)
        if not console.is_file():
            return ""
        return read_end(console, most_bytes=_MOST_CONSOLE_BYTES).decode("utf-8", errors="replace")

    def trains(self, *, number: int) -> bool:
        """Return True if so many instances have come, and the last of them trains."""
        instances = self._instances()
        if len(instances) < number:
            return False
        instance_id = instances[-1]["InstanceId"]
        begins = "instance-training" if self.seconds_alone else "instance-first-step"
        if not any(event["event"] == begins for event in self._events(instance_id)):
            return False
        self._note_volume(instance_id)
        return True

    def _note_volume(self, instance_id: str) -> None:
        for volume in self._described_volumes():
            if any(attachment["InstanceId"] == instance_id for attachment in volume["Attachments"]):
                self._volumes[instance_id] = volume["VolumeId"]

    def resumed(self, number: int) -> int | None:
        """Return the step from which its first, second, ... instance went on."""
        return self.lives()[number - 1].process.resumed_from_step

    def steps(self) -> tuple[int, int | None]:
        """Return the number of completed steps, and of all steps (None where that is unknown)."""
        instances = self._instances()
        if not instances:
            return 0, None
        reports = [event for event in self._events(instances[-1]["InstanceId"]) if event["event"] == "progress"]
        return (reports[-1]["step"], reports[-1].get("total_steps")) if reports else (0, None)

    def share(self) -> float:
        """Return the completed share of its steps, or of its time where its script reports none."""
        if self.seconds_alone:
            return self._seconds_trained() / self.seconds_alone
        done, total = self.steps()
        return done / total if total else 0.0

    def seconds_without_steps(self) -> float | None:
        """Return the training time of an ended run whose script reports no steps. None where it reports them."""
        reports = any(life.process.last_step is not None for life in self.lives())
        return None if reports else self._seconds_trained() or None

    def _seconds_trained(self) -> float:
        trained, now = 0.0, time.time()
        for instance in self._instances():
            instance_id = instance["InstanceId"]
            began_at = training_began_at(self._events(instance_id))
            if began_at is not None:
                trained += max((self._control.instance_facts(instance_id).ended_at or now) - began_at, 0.0)
        return trained

    def take(self, *, notice: bool) -> None:
        """Take the instance away. With a notice there is room in the other zones only, else in its own only."""
        instance = self._instances()[-1]
        here = instance["Placement"]["AvailabilityZone"]
        if notice:
            self._control.interrupt(instance["InstanceId"], notice_seconds=NOTICE_SECONDS)
            self._room({zone: 0 if zone == here else -1 for zone in self._zones()})
        else:
            self._room({zone: -1 if zone == here else 0 for zone in self._zones()})
            self._control.interrupt(instance["InstanceId"], notice=False)

    @contextlib.contextmanager
    def market_as_it_was(self) -> Iterator[None]:
        """Give every zone its room back afterwards."""
        try:
            yield
        finally:
            self._room(dict.fromkeys(self._zones(), -1))

    def _zones(self) -> list[str]:
        return [zone["ZoneName"] for zone in self._ec2.describe_availability_zones()["AvailabilityZones"]]

    def _room(self, by_zone: Mapping[str, int]) -> None:
        for zone, capacity in by_zone.items():
            self._control.change_pool(SpotPoolChange(zone=zone, capacity=capacity))

    def lives(self) -> list[RehearsedInstance]:
        """Return its instances, oldest first. Those that never booted are left out."""
        facts = [self._control.instance_facts(instance["InstanceId"]) for instance in self._instances()]
        return [
            instance_life(
                each,
                volume_id=self._volumes.get(each.instance_id),
                events=self._events(each.instance_id),
                now=time.time(),
            )
            for each in facts
            if each.running_at is not None
        ]

    def resources(self) -> ResourcesOfRun:
        """Return the run's resources that are alive in EC2."""
        fleets = {
            fleet["FleetId"]: fleet["FleetState"]
            for fleet in self._ec2.describe_fleets()["Fleets"]
            if fleet["FleetState"] != "deleted"
            and any(tag["Key"] == RUN_TAG and tag["Value"] == self.run for tag in fleet.get("Tags", []))
        }
        states = {instance["InstanceId"]: instance["State"]["Name"] for instance in self._instances()}
        return ResourcesOfRun(
            fleets=fleets,
            instances={id_: state for id_, state in states.items() if state != "terminated"},
            volumes={volume["VolumeId"]: volume["AvailabilityZone"] for volume in self._described_volumes()},
            snapshots={
                snapshot["SnapshotId"]: snapshot["State"]
                for snapshot in self._ec2.describe_snapshots(OwnerIds=["self"], **self._own)["Snapshots"]
            },
        )

    def _described_volumes(self) -> list[dict[str, Any]]:
        return list(self._ec2.describe_volumes(**self._own)["Volumes"])

    def standing(self, run: Run) -> str:
        """Return the state of the run, for the error of a run that does not go on."""
        instances = self._instances()
        if not instances:
            return f"{run.state.value}, without an instance"
        lines = self._end_of_console(instances[-1]["InstanceId"]).splitlines()
        last = f", its last instance said {lines[-1]!r}" if lines else ""
        return f"{run.state.value} with {len(instances)} instances{last}"


def fleet_scenario(*, isolation: Isolation) -> Scenario:
    """Return the scenario in which a run on a fleet loses its instance, first with a notice and then without.

    Args:
        isolation: The kind of instances. They are hosts with block devices, or process groups with directories.
    """
    return Scenario(
        command="rehearse-fleet",
        introduction=(
            "Rehearsing {job_file} on a spot fleet on this machine: the real app, the real user data, nothing billed.\n"
        ),
        job_fields={**WHOLE_TRAINING, "backend": "ec2"},
        server=replace(QUICK_SYNC, time_scale=TIME_SCALE, isolation=isolation),
        perform=_perform,
        report_name="fleet-report.json",
        failed_hint="how it should go: spotkeep help volume-protocol; a script's part: spotkeep help training-scripts",
        next_steps=CHECK_AND_LAUNCH,
    )


def _perform(rehearsal: Rehearsal) -> FleetReport:
    control, ec2 = FleetControl(rehearsal.local), rehearsal.session.client("ec2")
    fleet, untouched = (FleetOnEc2(name, ec2=ec2, control=control) for name in (rehearsal.first, rehearsal.second))
    with fleet.market_as_it_was():
        with rehearsal.view.stage(Stage.LEFT_ALONE) as outcome:
            rehearsal.deployment.launch(run=untouched.run)
            ended = follow(rehearsal, untouched)
            outcome.append(f"{untouched.run}: {ended.state.value.lower()}")
        fleet.seconds_alone = untouched.seconds_without_steps()
        before = fleet.resources()
        trained = _taken_twice(rehearsal, fleet)
        complete(rehearsal, fleet)
        rehearsal.collect_endings(Stage.NOTIFICATIONS)
    evidence = FleetEvidence(
        lives=fleet.lives(),
        before=before,
        trained=trained,
        after=fleet.resources(),
        isolation=control.platform().isolation,
    )
    run, reference = (
        evidence_of_run(rehearsal, each.run, lives=[life.process for life in each.lives()])
        for each in (fleet, untouched)
    )
    found = report_of_interruptions(rehearsal, run, reference, planned_interruptions=2)
    return FleetReport(**{**vars(found), "checks": judge_fleet(evidence)}, evidence=evidence)


def _taken_twice(rehearsal: Rehearsal, fleet: FleetOnEc2) -> ResourcesOfRun:
    """Take the instance with a notice, then the next one without.

    Return the resources that are alive when the third instance trains. A run may end before that. It is not interrupted
    again, and the verdict names the missing part.
    """
    comes_to = partial(_comes_to, rehearsal, fleet)
    with rehearsal.view.stage(Stage.LAUNCH) as outcome:
        rehearsal.deployment.launch(run=fleet.run)
        trains = comes_to(lambda: fleet.trains(number=1))
        outcome.append(f"{fleet.run} trains in {fleet.zone(1)}" if trains else _ENDED_BEFORE)
    if not trains:
        return fleet.resources()
    with rehearsal.view.stage(Stage.MOVE) as outcome:
        trains = False
        if comes_to(lambda: fleet.share() >= _FIRST):
            rehearsal.view.note(f"notice for {fleet.id(1)}, and no room in {fleet.zone(1)} any more")
            fleet.take(notice=True)
            trains = comes_to(lambda: fleet.trains(number=2))
        outcome.append(_went_on(fleet, number=2) if trains else _ENDED_BEFORE)
    if not trains:
        return fleet.resources()
    with rehearsal.view.stage(Stage.RETURN) as outcome:
        trains = False
        if comes_to(lambda: fleet.share() >= _SECOND):
            rehearsal.view.note(f"{fleet.id(2)} is gone without notice; room in {fleet.zone(2)} only")
            fleet.take(notice=False)
            trains = comes_to(lambda: fleet.trains(number=3))
        outcome.append(_went_on(fleet, number=3) if trains else _ENDED_BEFORE)
        return fleet.resources()


def _comes_to(rehearsal: Rehearsal, fleet: FleetOnEc2, happens: Callable[[], object]) -> bool:
    """Wait for an event of a run, and return True if it came. The run may end before the event."""
    return not follow(rehearsal, fleet, happens).state.ended


def _went_on(fleet: FleetOnEc2, *, number: int) -> str:
    step = fleet.resumed(number)
    return f"goes on in {fleet.zone(number)}" + ("" if step is None else f", from step {step}")


def complete(rehearsal: Rehearsal, fleet: FleetOnEc2) -> None:
    """Wait for the end of a run, and until its fleet and its instances are gone."""
    with rehearsal.view.stage(Stage.COMPLETION) as outcome:
        ended = follow(rehearsal, fleet)
        deadline = time.monotonic() + _GONE_SECONDS
        while fleet.resources().fleets or fleet.resources().instances:
            if time.monotonic() > deadline:
                break  # the verdict says it
            time.sleep(_POLL_SECONDS)
        fleets = fleet.resources().fleets
        outcome.append(f"{ended.state.value.lower()}; the fleet is {'still there' if fleets else 'gone'}")


def follow(rehearsal: Rehearsal, fleet: FleetOnEc2, until: Callable[[], object] = lambda: False) -> Run:
    """Wait until the run has ended, or something else has happened, and show its steps meanwhile."""

    def show(runs: Mapping[str, Run]) -> None:
        done, total = fleet.steps()
        rehearsal.view.progress(done=done, total=total, text=runs[fleet.run].state.value.lower())

    return rehearsal.follow(fleet.run, until=until, meanwhile=show, standing=fleet.standing)[fleet.run]
