"""A run of several nodes: its place has the most of them, its record those that train, and its money is for all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spotkeep_jobs.backends.backend import CostSoFar, JobPhase, JobView, PhaseChange
from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.record import Nodes, RunChange
from spotkeep_jobs.record.states import EndReason, NotificationKind, TimelineKind
from spotkeep_jobs.runs.ending import request_of
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.rules import JobFacts
from spotkeep_jobs.runs.transition import decide
from tests.models.control_plane import ControlPlane

DOCUMENT = {
    "name": "first", "run": "first", "command": "python train.py", "backend": "ec2", "distributed": "torchrun",
    "instance_types": ["g5.xlarge"], "nodes": {"min": 2, "max": 4}, "max_run": "20h",
}  # fmt: skip
LOST = "i-0a1b2c3d4e5f60718, g5.xlarge in us-east-1a"


@pytest.fixture
def launched() -> ControlPlane:
    plane = ControlPlane(has_fleets=True)
    notify = ["interrupted", "resumed"]
    Launcher(plane.launcher).launch({**DOCUMENT, "max_cost": 10.0, "notify": notify}, default_token="token-1")
    return plane


def decided(plane: ControlPlane, *phases: tuple[JobPhase, int, str], **of_job: Any) -> list[RunChange]:
    run = plane.record.runs.get("first")
    assert run is not None
    attempt = plane.record.runs.attempts("first")[-1]
    assert attempt.job_id is not None
    at = [attempt.created_at + timedelta(minutes=minutes) for _, minutes, _ in phases]
    job = JobView(
        name=attempt.job_name,
        job_id=attempt.job_id,
        phase=phases[-1][0],
        created_at=attempt.created_at,
        transitions=tuple(
            PhaseChange(phase=phase, started_at=begun, ended_at=ended, text="", detail=detail)
            for (phase, _, detail), begun, ended in zip(phases, at, [*at[1:], None], strict=True)
        ),
        environment={},
        **of_job,
    )
    facts = JobFacts(
        run=run,
        request=request_of(run),
        attempt=attempt,
        deployment=DeploymentPolicy(name="spotkeep", prices={"g5.xlarge": 1.0}),
        now=attempt.created_at + timedelta(hours=1),
        job=job,
        log=JobLog(),
    )
    return decide(facts)


TRAINS = ((JobPhase.WAITING, 0, ""), (JobPhase.LOADING, 2, LOST), (JobPhase.TRAINING, 4, LOST))


def test_its_place_has_the_most_nodes(launched: ControlPlane) -> None:
    run = launched.record.runs.get("first")
    assert run is not None
    assert (run.place.instance_count, run.node_range, run.instances) == (4, (2, 4), "2 to 4")


def test_its_record_has_the_nodes_that_train(launched: ControlPlane) -> None:
    nodes = Nodes(connected=4, in_world=3)
    [change] = decided(launched, *TRAINS, nodes=nodes)
    assert change.run.nodes == nodes


def test_a_lost_node_is_named_and_the_others_train_again(launched: ControlPlane) -> None:
    lost = (JobPhase.INTERRUPTED, 10, LOST)
    [change] = decided(launched, *TRAINS, lost, (JobPhase.TRAINING, 11, ""), nodes=Nodes(connected=3, in_world=3))
    first, second = change.notifications
    assert (first.kind, second.kind) == (NotificationKind.INTERRUPTED, NotificationKind.RESUMED)
    assert "lost a node" in first.subject
    assert LOST in " ".join(first.body.split())
    assert change.run.interruptions == 1


@pytest.mark.parametrize(("spent_usd", "ends"), [(8.9, False), (8.94, True)])
def test_the_end_of_all_nodes_is_kept_of_max_cost(launched: ControlPlane, spent_usd: float, ends: bool) -> None:
    """Four nodes at one US dollar an hour cost 1.07 in the 16 minutes until a fleet is gone."""
    [change] = decided(launched, *TRAINS, cost_so_far=CostSoFar(usd=spent_usd))
    assert change.attempt is not None
    asked = change.attempt.asked_to_end
    assert (asked is not None and asked.reason is EndReason.MAX_COST) is ends
    said = [entry.text for entry in change.timeline if entry.kind is TimelineKind.MAX_COST]
    assert any(text.endswith("Its nodes save first") for text in said) is ends
