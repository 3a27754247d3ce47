"""The scenario of `spotkeep rehearse` for a job on several EC2 instances (`nodes`).

The run is left alone once, to compare with. Both runs begin with all nodes. Once both have saved one step, a node is
taken after a notice, and later the one with the lease without notice. Each time another one comes. Then one more is
taken, and there is no room for another one, so the others go on without it, or wait where the job needs all. At last
there is room again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from spotkeep.disk.manifest import parse_manifest
from spotkeep.disk.writers import parse_folder
from spotkeep_cli.rehearsal.deployment import QUICK_SYNC
from spotkeep_cli.rehearsal.engine import WHOLE_TRAINING, Rehearsal, Scenario
from spotkeep_cli.rehearsal.fleet import NOTICE_SECONDS, TIME_SCALE, FleetOnEc2, complete, follow
from spotkeep_cli.rehearsal.gathering import evidence_of_run
from spotkeep_cli.rehearsal.model_comparison import read_model_file
from spotkeep_cli.rehearsal.nodes_verdict import (
    SAMPLES_FILE,
    NodesEvidence,
    RehearsedWorld,
    StoredCheckpoint,
    TakenNode,
    compare_checkpoints,
    has_virtual_ranks,
    judge_nodes,
    sample_counts,
    with_other_sums,
    worlds_of,
)
from spotkeep_cli.rehearsal.report import NodesReport
from spotkeep_cli.rehearsal.spot import CHECK_AND_LAUNCH, report_of_interruptions
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_cli.rendering.quantities import counted
from spotkeep_local.control import FleetControl

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from spotkeep_local.hosts.isolation import Isolation

_SHARES: Final = (0.15, 0.35, 0.55)
"""The shares of the steps after which a node is taken."""
_STEPS_WITH_FEWER: Final = 5
_WAITING_SECONDS: Final = 5.0
"""How long nodes that wait for a missing one are watched."""

_MANIFEST: Final = "/manifest.json"


def trains_on_nodes(fields: Mapping[str, Any]) -> bool:
    """Return True for the job file of a run on several EC2 instances."""
    return fields.get("backend") == "ec2" and most_nodes(fields) > 1


def least_nodes(fields: Mapping[str, Any]) -> int:
    """Return the fewest nodes that train together, by the fields of a job file."""
    nodes = fields.get("nodes") or 1
    return int(nodes.get("min", 1) if isinstance(nodes, Mapping) else nodes)


def most_nodes(fields: Mapping[str, Any]) -> int:
    """Return the most nodes that train together, by the fields of a job file."""
    nodes = fields.get("nodes") or 1
    return int(nodes.get("max", 1) if isinstance(nodes, Mapping) else nodes)


class NodesOnEc2(FleetOnEc2):
    """The nodes of a run.

    Args:
        run: The run's id.
        ec2: A boto3 client.
        control: The control of the local EC2, which takes instances away.

    Attributes:
        taken: The nodes that were taken, in order.
    """

    def __init__(self, run: str, *, ec2: Any, control: FleetControl) -> None:
        super().__init__(run, ec2=ec2, control=control)
        self.taken: list[TakenNode] = []

    def events(self) -> list[Mapping[str, Any]]:
        """Return what all of its instances printed."""
        return [event for instance in self._instances() for event in self._events(instance["InstanceId"])]

    def worlds(self, *, stored: Sequence[StoredCheckpoint] = ()) -> list[RehearsedWorld]:
        """Return its worlds until now, oldest first.

        Args:
            stored: The checkpoints that came to S3.
        """
        return worlds_of(self.events(), taken=self.taken, stored=stored, ended_at=time.time())

    def steps(self) -> tuple[int, int | None]:
        """Return the number of completed steps, and of all steps (None where that is unknown)."""
        reports = [event for event in self.events() if event["event"] == "progress"]
        last = max(reports, key=lambda event: float(event["time"]), default=None)
        return (0, None) if last is None else (last["step"], last.get("total_steps"))

    def stored_steps(self) -> set[int]:
        """Return the steps whose checkpoints came to S3."""
        return {event["step"] for event in self.events() if event["event"] == "uploaded"}

    def trains_with(self, nodes: int, *, steps: int = 1) -> bool:
        """Return True if the last world has so many nodes, and has done so many steps since the last loss."""
        worlds = self.worlds()
        if not worlds or len(worlds[-1].nodes) != nodes:
            return False
        world, lost_at = worlds[-1], self.taken[-1].at if self.taken else 0.0
        done = (world.process.last_step or 0) - (world.process.resumed_from_step or 0)
        return world.began_at > lost_at and done >= steps

    def is_gone(self, instance_id: str) -> bool:
        """Return True if EC2 has terminated an instance."""
        return self._control.instance_facts(instance_id).ended_at is not None

    def take_node(self, *, notice: bool, held_lease: bool, fewer: bool = False) -> TakenNode:
        """Take a node of the last world away.

        Args:
            notice: True if it gets a notice.
            held_lease: True for the node with the lease, False for the last of the others.
            fewer: True to leave no room for another one.
        """
        world = self.worlds()[-1]
        instance_id = world.nodes[0 if held_lease else -1]
        found = next(each for each in self._instances() if each["InstanceId"] == instance_id)
        here = found["Placement"]["AvailabilityZone"]
        taken = TakenNode(instance_id=instance_id, at=time.time(), notice=notice, held_lease=held_lease, fewer=fewer)
        if fewer:
            # Room for one more would be filled at once, so the notice comes first.
            self._control.interrupt(instance_id, notice_seconds=NOTICE_SECONDS)
            others = len(world.nodes) - 1
            self._room({zone: others if zone == here else 0 for zone in self._zones()})
        else:
            self._control.interrupt(instance_id, notice=notice, notice_seconds=NOTICE_SECONDS if notice else None)
        self.taken.append(taken)
        return taken

    def has_room(self) -> None:
        """Give every zone its room back."""
        self._room(dict.fromkeys(self._zones(), -1))

    @contextlib.contextmanager
    def all_at_first(self, *, within_seconds: float) -> Iterator[None]:
        """Let the runs that are launched meanwhile begin with all nodes, however late the last one comes.

        Args:
            within_seconds: The longest wait. After it a run begins with fewer, as on AWS after half a minute.
        """
        self._control.first_worlds_wait(within_seconds)
        try:
            yield
        finally:
            self._control.first_worlds_wait(None)


def nodes_scenario(*, isolation: Isolation) -> Scenario:
    """Return the scenario in which a run on several instances loses some of them.

    Args:
        isolation: The kind of instances. They are hosts with networks, or process groups with addresses of their own.
    """
    return Scenario(
        command="rehearse",
        introduction=(
            "Rehearsing {job_file} on instances of this machine: the real app, the real user data, nothing billed.\n"
        ),
        job_fields={**WHOLE_TRAINING, "backend": "ec2"},
        server=replace(QUICK_SYNC, time_scale=TIME_SCALE, isolation=isolation),
        perform=_perform,
        report_name="nodes-report.json",
        failed_hint="how it should go, and a script's part: spotkeep help distributed-training",
        next_steps=CHECK_AND_LAUNCH,
    )


def _perform(rehearsal: Rehearsal) -> NodesReport:
    control, ec2 = FleetControl(rehearsal.local), rehearsal.session.client("ec2")
    nodes, untouched = (NodesOnEc2(name, ec2=ec2, control=control) for name in (rehearsal.first, rehearsal.second))
    with nodes.market_as_it_was(), nodes.all_at_first(within_seconds=rehearsal.timeout_seconds):
        take_nodes(rehearsal, nodes, untouched)
        complete(rehearsal, nodes)
        rehearsal.collect_endings(Stage.NOTIFICATIONS)
    stored, of_other = (
        stored_checkpoints(rehearsal.run(each.run).checkpoint_uri, rehearsal.s3) for each in (nodes, untouched)
    )
    worlds, others = nodes.worlds(stored=stored), untouched.worlds(stored=of_other)
    run, reference = (
        evidence_of_run(rehearsal, each.run, lives=[world.process for world in found])
        for each, found in ((nodes, worlds), (untouched, others))
    )
    samples = [
        read_model_file(rehearsal.run(each.run).output_uri, SAMPLES_FILE, rehearsal.s3)
        for each in (run, reference)
        if SAMPLES_FILE in each.model_files
    ]
    evidence = NodesEvidence(
        at_least=least_nodes(rehearsal.deployment.job),
        at_most=most_nodes(rehearsal.deployment.job),
        worlds=worlds,
        taken=nodes.taken,
        compared=compare_checkpoints(stored, of_other),
        samples=sample_counts(*samples) if len(samples) == 2 else None,
        equal_on_any_world=any(has_virtual_ranks(each.manifest) for each in stored),
        after=nodes.resources(),
        isolation=control.platform().isolation,
    )
    found = report_of_interruptions(rehearsal, run, reference, planned_interruptions=len(_SHARES))
    judged = {"verdict": with_other_sums(found.verdict, evidence), "checks": judge_nodes(evidence)}
    return NodesReport(**{**vars(found), **judged}, evidence=evidence)


def take_nodes(rehearsal: Rehearsal, nodes: NodesOnEc2, untouched: NodesOnEc2) -> None:
    """Take three nodes away, one after the other, and leave no room for a fourth one for a while.

    A run may end before that. It is not interrupted again, and the verdict names the missing part.

    Args:
        rehearsal: The rehearsal.
        nodes: The run to interrupt.
        untouched: The run to leave alone.
    """
    least, most = (number(rehearsal.deployment.job) for number in (least_nodes, most_nodes))
    comes_to = partial(_comes_to, rehearsal, nodes)

    def stage(name: Stage, act: Callable[[], bool], goes_on: Callable[[], object]) -> bool:
        with rehearsal.view.stage(name) as outcome:
            came = act() and comes_to(goes_on)
            waits = name is Stage.FEWER and least == most
            standing = "the others wait for another node" if waits else _standing(nodes)
            outcome.append(standing if came else "the run ended before that")
            return came

    def launch() -> bool:
        for each in (untouched, nodes):
            rehearsal.deployment.launch(run=each.run)
        return True

    first, second, third = _SHARES

    def is_comparable() -> bool:
        # The number of ranks may change with the first loss. A script that saves by the clock may never save one step
        # in both runs.
        return nodes.share() >= second or not nodes.stored_steps().isdisjoint(untouched.stored_steps())

    def take(*, after: float, notice: bool, held_lease: bool, fewer: bool = False) -> bool:
        if not comes_to(lambda: nodes.share() >= after and is_comparable()):
            return False
        taken = nodes.take_node(notice=notice, held_lease=held_lease, fewer=fewer)
        first = ", to which the others connect," if held_lease else ""
        room = ", and no room is left for another" if fewer else ""
        rehearsal.view.note(
            f"{taken.instance_id}{first} {'gets a notice' if notice else 'is gone without notice'}{room}"
        )
        return True

    def leave_alone() -> bool:
        # It needs its room until its end.
        follow(rehearsal, untouched)
        return True

    def make_room() -> bool:
        nodes.has_room()
        return True

    whole = partial(nodes.trains_with, most)
    fewer = partial(_waits, nodes) if least == most else partial(nodes.trains_with, most - 1, steps=_STEPS_WITH_FEWER)
    for name, act, goes_on in (
        (Stage.LAUNCH, launch, whole),
        (Stage.NODE_NOTICED, partial(take, after=first, notice=True, held_lease=False), whole),
        (Stage.NODE_LOST, partial(take, after=second, notice=False, held_lease=True), whole),
        (Stage.LEFT_ALONE, leave_alone, whole),
        (Stage.FEWER, partial(take, after=third, notice=True, held_lease=False, fewer=True), fewer),
        (Stage.WHOLE_AGAIN, make_room, whole),
    ):
        if not stage(name, act, goes_on):
            break


def _waits(nodes: NodesOnEc2) -> bool:
    """Return True if the node that was taken last is gone, and no world has begun for some seconds after that."""
    taken = nodes.taken[-1]
    if not nodes.is_gone(taken.instance_id):
        return False
    time.sleep(_WAITING_SECONDS)
    return True


def _comes_to(rehearsal: Rehearsal, nodes: NodesOnEc2, happens: Callable[[], object]) -> bool:
    return not follow(rehearsal, nodes, happens).state.ended


def _standing(nodes: NodesOnEc2) -> str:
    world = nodes.worlds()[-1]
    return f"{counted(len(world.nodes), 'node')}, from step {world.process.resumed_from_step or 0}"


def stored_checkpoints(checkpoint_uri: str, s3: S3Client) -> list[StoredCheckpoint]:
    """Return the checkpoints that were ever whole in S3, whose bucket keeps what was deleted, oldest first.

    Args:
        checkpoint_uri: The checkpoint prefix of the run.
        s3: A client of the S3 that holds it.
    """
    address = urlsplit(checkpoint_uri)
    bucket, prefix = address.netloc, f"{address.path.strip('/')}/"
    found = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for version in page.get("Versions", ()):
            folder = version["Key"].removeprefix(prefix).removesuffix(_MANIFEST)
            named = parse_folder(folder) if version["Key"].endswith(_MANIFEST) else None
            if named is not None:
                raw = s3.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
                token, at = named[1], version["LastModified"].timestamp()
                manifest = parse_manifest(raw)
                fence = None if token is None else token.lease
                found.append(StoredCheckpoint(manifest=manifest, fence=fence, at=at))
    return sorted(found, key=lambda each: (each.at, each.manifest.step))
