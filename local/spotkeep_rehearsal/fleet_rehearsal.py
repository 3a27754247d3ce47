"""Rehearses a run on an EC2 spot fleet from an empty machine to a verdict.

The run is left alone once, to compare with. Then its capacity is taken with a notice, and there is room in other zones
only, so that its volume must move; then without one, and there is room in that zone only, so that the same volume is
taken by the next instance. Instances boot the deployed user data; EC2 is faster than it is, the training is not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from spotkeep_fleet.tags import RUN_TAG
from spotkeep_jobs.facts.record import Run
from spotkeep_local.bounded_reading import read_end
from spotkeep_local.ec2.instances import INTERRUPTED
from spotkeep_local.ec2.market import PoolChange
from spotkeep_local.fleet_control import FleetControl
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.options import Isolation
from spotkeep_rehearsal.earlier_rehearsal import replace_earlier
from spotkeep_rehearsal.errors import RehearsalTimeoutError
from spotkeep_rehearsal.evidence import Check, RunEvidence
from spotkeep_rehearsal.fleet_evidence import FleetEvidence, InstanceLife, Surroundings, instance_life, told_events
from spotkeep_rehearsal.fleet_verdict import judge_fleet
from spotkeep_rehearsal.gathering import model_files_of
from spotkeep_rehearsal.model_comparison import compare_models
from spotkeep_rehearsal.rehearsed_runs import Runs, collect_notifications, head_of, none_left_behind
from spotkeep_rehearsal.report import Report
from spotkeep_rehearsal.report_file import WrittenReport
from spotkeep_rehearsal.staging import QUICK_SYNC, Observer, Stage, Staging
from spotkeep_rehearsal.subscriber import Subscriber
from spotkeep_rehearsal.verdict import judge

TIME_SCALE = 20.0
NOTICE_SECONDS = 20.0
"""What is left of two minutes where an agent still asks the metadata every five seconds."""
_FIRST, _SECOND = 0.35, 0.70
_POLL_SECONDS = 0.2
_GONE_SECONDS = 60.0
_MOST_CONSOLE_BYTES = 8 * 1024 * 1024


class Deployment(Protocol):
    """The deployed app, as a user of it sees it."""

    @property
    def runs(self) -> Runs:
        """The run table."""

    @property
    def notification_topic_arn(self) -> str:
        """Where notifications are published."""

    def launch(self, *, run: str) -> None:
        """Launch the rehearsed job as a run of this id, the way a user would; raises when it is refused."""

    def stop(self, *, run: str) -> None:
        """Ask a run to end, the way a user would."""


@dataclass(frozen=True, kw_only=True)
class FleetRehearsalPlan:
    """What to rehearse.

    Attributes:
        project_dir: The checkout whose app is deployed.
        state_dir: Where the local AWS lives; it is started there unless it already runs.
        deployment: The name it is deployed under.
        name: The job's name; run ids are made from it.
        isolation: What instances are: hosts with block devices, or process groups with directories.
        timeout_seconds: The longest each stage may take.
        keep_running: Leave the local AWS up afterwards, even if the rehearsal started it.
    """

    project_dir: Path
    state_dir: Path
    name: str
    deployment: str = "spotkeep"
    isolation: Isolation = Isolation.AUTO
    timeout_seconds: float = 300.0
    keep_running: bool = False


@dataclass(frozen=True, kw_only=True)
class FleetReport(WrittenReport):
    """Everything a rehearsal on a fleet found.

    Attributes:
        of_the_run: What is said of any run: interruptions, model, notifications, bill.
        checks: What a fleet is for.
        evidence: What those were judged by.
    """

    of_the_run: Report
    checks: Sequence[Check]
    evidence: FleetEvidence

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the run, and every check passed."""
        return self.of_the_run.passed and all(check.passed for check in self.checks)

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return self.of_the_run.missing_module

    def to_document(self) -> dict[str, Any]:
        """Return the report as the JSON document that programs read."""
        evidence = self.evidence
        alive = {"before": evidence.before, "trained": evidence.trained, "after": evidence.after}
        return {
            **self.of_the_run.to_document(),
            "verdict": "not judged" if self.missing_module else "pass" if self.passed else "fail",
            "checks": [asdict(check) for check in self.checks],
            "instances_are": evidence.isolation,
            "instances": [_instance_document(life) for life in evidence.lives],
            "zones": [life.zone for life in evidence.lives],
            **{
                what: {when: dict(getattr(found, what)) for when, found in alive.items()}
                for what in ("fleets", "volumes", "snapshots")
            },
        }


def _instance_document(life: InstanceLife) -> dict[str, Any]:
    return {
        "instance": life.instance_id,
        "zone": life.zone,
        "ending": life.ending.value,
        "volume": life.volume_id,
        "recovery_s": {phase: round(seconds, 3) for phase, seconds in life.phases_s.items()},
        "calls": dict(life.calls),
        "resumed_from_step": life.process.resumed_from_step,
        "last_step": life.process.last_step,
    }


def rehearse_fleet(
    plan: FleetRehearsalPlan, *, connect: Callable[[LocalAws], Deployment], observer: Observer
) -> FleetReport:
    """Deploy, launch, take the capacity away twice, and judge.

    Args:
        plan: What to rehearse.
        connect: Finds the deployed app on the local AWS.
        observer: Is told what goes on.

    Raises:
        RehearsalTimeoutError: Something did not happen in time, so there is no verdict. The runs are stopped.
        spotkeep_local.errors.LocalAwsError: The local AWS or the CDK CLI failed.
    """
    return _FleetRehearsal(plan, observer=observer).run(connect)


class _FleetRehearsal:
    def __init__(self, plan: FleetRehearsalPlan, *, observer: Observer) -> None:
        self._plan, self._observer = plan, observer
        self._staging = Staging(
            project_dir=plan.project_dir,
            state_dir=plan.state_dir,
            deployment=plan.deployment,
            keep_running=plan.keep_running,
            observer=observer,
            options=replace(QUICK_SYNC, time_scale=TIME_SCALE, isolation=plan.isolation),
        )
        stamp = time.strftime("%m%d-%H%M%S")
        self._run = f"{plan.name[:28].rstrip('-')}-{stamp}"
        self._reference = f"{self._run}-untouched"

    def run(self, connect: Callable[[LocalAws], Deployment]) -> FleetReport:
        started = time.monotonic()
        names = (self._run, self._reference)
        with self._staging.local_aws() as local:
            self._staging.deploy(local)
            deployment = connect(local)
            replace_earlier(local, deployment.runs, names=names)
            session = local.session()
            control, s3 = FleetControl(local), session.client("s3")
            run, reference = (_Fleet(name, ec2=session.client("ec2"), control=control) for name in names)
            subscriber = Subscriber.subscribe(
                sns=session.client("sns"),
                sqs=session.client("sqs"),
                topic_arn=deployment.notification_topic_arn,
                queue_name=f"{self._run}-notifications",
            )
            unfinished = none_left_behind(deployment, names, stage=Stage.TRAINING, observer=self._observer)
            with contextlib.closing(subscriber), unfinished, run.market_as_it_was():
                self._left_alone(deployment, reference)
                before = run.surroundings()
                trained = self._taken_twice(deployment, run)
                self._complete(deployment, run)
                with self._staging.stage(Stage.NOTIFICATIONS) as outcome:
                    notifications = collect_notifications(subscriber, names, observer=self._observer)
                    outcome.append(f"{len(notifications)} received")
            evidence = FleetEvidence(
                lives=run.lives(),
                before=before,
                trained=trained,
                after=run.surroundings(),
                isolation=control.platform().isolation,
            )
            of_runs = [self._evidence(deployment.runs, fleet, s3) for fleet in (run, reference)]
            heads = {name: head_of(deployment.runs, name) for name in names}
            compared = compare_models(*of_runs, heads=heads, s3=s3)
        of_the_run = Report(
            verdict=judge(
                planned_interruptions=2,
                run=of_runs[0],
                reference=of_runs[1],
                notifications=notifications,
                compared=compared,
            ),
            run=of_runs[0],
            reference=of_runs[1],
            notifications=notifications,
            compared=compared,
            head=heads[self._run],
            seconds={**self._staging.seconds, "total": time.monotonic() - started},
        )
        return FleetReport(of_the_run=of_the_run, checks=judge_fleet(evidence), evidence=evidence)

    def _left_alone(self, deployment: Deployment, reference: _Fleet) -> None:
        with self._staging.stage(Stage.LEFT_ALONE) as outcome:
            deployment.launch(run=reference.run)
            head = self._until(deployment, reference, lambda: None)
            outcome.append(f"{reference.run}: {head.state.value.lower()}")

    def _taken_twice(self, deployment: Deployment, run: _Fleet) -> Surroundings:
        with self._staging.stage(Stage.LAUNCH) as outcome:
            deployment.launch(run=run.run)
            self._until(deployment, run, lambda: run.trains(number=1))
            outcome.append(f"{run.run} trains in {run.zone(1)}")
        with self._staging.stage(Stage.MOVE) as outcome:
            self._until(deployment, run, lambda: run.share() >= _FIRST)
            self._observer.stage_note(Stage.MOVE, f"notice for {run.id(1)}, and no room in {run.zone(1)} any more")
            run.take(notice=True)
            self._until(deployment, run, lambda: run.trains(number=2))
            outcome.append(f"goes on in {run.zone(2)}, from step {run.resumed(2)}")
        with self._staging.stage(Stage.RETURN) as outcome:
            self._until(deployment, run, lambda: run.share() >= _SECOND)
            self._observer.stage_note(Stage.RETURN, f"{run.id(2)} is gone without notice; room in {run.zone(2)} only")
            run.take(notice=False)
            self._until(deployment, run, lambda: run.trains(number=3))
            outcome.append(f"goes on in {run.zone(3)}, from step {run.resumed(3)}")
            return run.surroundings()

    def _complete(self, deployment: Deployment, run: _Fleet) -> None:
        with self._staging.stage(Stage.COMPLETION) as outcome:
            head = self._until(deployment, run, lambda: None)
            deadline = time.monotonic() + _GONE_SECONDS
            while run.surroundings().fleets or run.surroundings().instances:
                if time.monotonic() > deadline:
                    break  # the verdict says it
                time.sleep(_POLL_SECONDS)
            fleets = run.surroundings().fleets
            outcome.append(f"{head.state.value.lower()}; the fleet is {'still there' if fleets else 'gone'}")

    def _until(self, deployment: Deployment, fleet: _Fleet, happened: Callable[[], object]) -> Run:
        """Wait until something happened, or the run has ended. Gives its head."""
        deadline = time.monotonic() + self._plan.timeout_seconds
        while True:
            head = head_of(deployment.runs, fleet.run)
            if head.state.ended or happened():
                return head
            if time.monotonic() > deadline:
                raise RehearsalTimeoutError(seconds=self._plan.timeout_seconds, states={fleet.run: fleet.story(head)})
            done, total = fleet.steps()
            stage = Stage.TRAINING
            self._observer.stage_progress(stage, done=done, total=total, text=head.state.value.lower())
            time.sleep(_POLL_SECONDS)

    def _evidence(self, runs: Runs, fleet: _Fleet, s3: Any) -> RunEvidence:
        head = head_of(runs, fleet.run)
        return RunEvidence(
            run=fleet.run,
            state=head.state.value,
            failure=head.failure_reason,
            attempts=len(runs.attempts(fleet.run)),
            lives=tuple(life.process for life in fleet.lives()),
            model_files=model_files_of(head.output_uri, s3),
        )


class _Fleet:
    """The fleet of a run, as EC2 and its instances tell of it."""

    def __init__(self, run: str, *, ec2: Any, control: FleetControl) -> None:
        self.run = run
        self._ec2, self._control = ec2, control
        self._volumes: dict[str, str] = {}

    def _instances(self) -> list[dict[str, Any]]:
        filters = [{"Name": f"tag:{RUN_TAG}", "Values": [self.run]}]
        pages = self._ec2.get_paginator("describe_instances").paginate(Filters=filters)
        found = [instance for page in pages for group in page["Reservations"] for instance in group["Instances"]]
        return sorted(found, key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))

    def id(self, number: int) -> str:
        return str(self._instances()[number - 1]["InstanceId"])

    def zone(self, number: int) -> str:
        return str(self._instances()[number - 1]["Placement"]["AvailabilityZone"])

    def _events(self, instance_id: str) -> list[Mapping[str, Any]]:
        console = Path(self._control.instance_facts(instance_id).console)
        return told_events(_end_of(console))

    def trains(self, *, number: int) -> bool:
        """Whether so many instances have come, and the last of them trains."""
        instances = self._instances()
        if len(instances) < number:
            return False
        instance_id = instances[-1]["InstanceId"]
        if not any(event["event"] == "instance-first-step" for event in self._events(instance_id)):
            return False
        self._note_volume(instance_id)
        return True

    def _note_volume(self, instance_id: str) -> None:
        for volume in self._described_volumes():
            if any(attachment["InstanceId"] == instance_id for attachment in volume["Attachments"]):
                self._volumes[instance_id] = volume["VolumeId"]

    def resumed(self, number: int) -> int | None:
        return self.lives()[number - 1].process.resumed_from_step

    def steps(self) -> tuple[int, int | None]:
        """How far the training is, and of how many steps."""
        instances = self._instances()
        told = (
            [event for event in self._events(instances[-1]["InstanceId"]) if event["event"] == "progress"]
            if instances
            else []
        )
        return (told[-1]["step"], told[-1].get("total_steps")) if told else (0, None)

    def share(self) -> float:
        done, total = self.steps()
        return done / total if total else 0.0

    def take(self, *, notice: bool) -> None:
        """Take the instance away; with a notice there is room in the other zones only, else in its own only."""
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
            self._control.change_pool(PoolChange(zone=zone, capacity=capacity))

    def lives(self) -> list[InstanceLife]:
        """Its instances, oldest first; such as never booted are left out."""
        found = []
        for instance in self._instances():
            facts = self._control.instance_facts(instance["InstanceId"])
            if facts.running_at is None:
                continue
            life = instance_life(
                instance_id=facts.instance_id,
                zone=facts.zone,
                running_at=facts.running_at,
                ended_at=facts.ended_at or time.time(),
                taken=facts.reason_code == INTERRUPTED[0],
                noticed=facts.interruption is not None and facts.interruption.get("notice_at") is not None,
                volume_id=self._volumes.get(facts.instance_id),
                events=self._events(facts.instance_id),
            )
            found.append(life)
        return found

    def surroundings(self) -> Surroundings:
        """What is alive of the run."""
        owned = {"Filters": [{"Name": f"tag:{RUN_TAG}", "Values": [self.run]}]}
        fleets = {
            fleet["FleetId"]: fleet["FleetState"]
            for fleet in self._ec2.describe_fleets()["Fleets"]
            if fleet["FleetState"] != "deleted"
            and any(tag["Key"] == RUN_TAG and tag["Value"] == self.run for tag in fleet.get("Tags", []))
        }
        states = {instance["InstanceId"]: instance["State"]["Name"] for instance in self._instances()}
        return Surroundings(
            fleets=fleets,
            instances={id_: state for id_, state in states.items() if state != "terminated"},
            volumes={volume["VolumeId"]: volume["AvailabilityZone"] for volume in self._described_volumes()},
            snapshots={
                snapshot["SnapshotId"]: snapshot["State"]
                for snapshot in self._ec2.describe_snapshots(OwnerIds=["self"], **owned)["Snapshots"]
            },
        )

    def _described_volumes(self) -> list[dict[str, Any]]:
        filters = [{"Name": f"tag:{RUN_TAG}", "Values": [self.run]}]
        return list(self._ec2.describe_volumes(Filters=filters)["Volumes"])

    def story(self, head: Run) -> str:
        """Where it stands, for whoever must find out why it does not go on."""
        instances = self._instances()
        if not instances:
            return f"{head.state.value}, without an instance"
        console = Path(self._control.instance_facts(instances[-1]["InstanceId"]).console)
        lines = _end_of(console).splitlines()
        last = f", its last instance said {lines[-1]!r}" if lines else ""
        return f"{head.state.value} with {len(instances)} instances{last}"


def _end_of(console: Path) -> str:
    """The last megabytes that an instance printed: thousands of lines, whatever its script says."""
    if not console.is_file():
        return ""
    return read_end(console, most_bytes=_MOST_CONSOLE_BYTES).decode("utf-8", errors="replace")
