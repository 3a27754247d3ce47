"""What speaks against a rehearsed fleet: each check fails for its own reason and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsedProcess
from spotkeep_cli.rehearsal.fleet_evidence import FleetEvidence, RehearsedInstance, ResourcesOfRun
from spotkeep_cli.rehearsal.fleet_verdict import judge_fleet

NOTHING = ResourcesOfRun(fleets={}, instances={}, volumes={}, snapshots={})
MOVING = {"ec2:CreateSnapshot": 1, "ec2:CreateVolume": 1}
STAYING = {"dynamodb:PutItem": 3, "ec2:AttachVolume": 1}


def a_life(number: int, zone: str, volume: str, ending: ProcessEnding, **calls: int) -> RehearsedInstance:
    began = 100.0 * number
    process = RehearsedProcess(
        started_at=began + 10, ended_at=began + 90, ending=ending, resumed_from_step=number * 100,
        last_step=number * 100 + 90, saved_steps=(number * 100 + 75,), durable_step=number * 100 + 75,
    )  # fmt: skip
    return RehearsedInstance(
        instance_id=f"i-{number}", zone=zone, volume_id=volume, phases_s={"boot": 1.0}, calls=calls, process=process
    )


LIVES = (
    a_life(0, "a", "vol-1", ProcessEnding.NOTICE),
    a_life(1, "b", "vol-2", ProcessEnding.NO_NOTICE, **MOVING),
    a_life(2, "b", "vol-2", ProcessEnding.EXITED, **STAYING),
)
GOOD = FleetEvidence(
    lives=LIVES,
    before=NOTHING,
    trained=replace(NOTHING, fleets={"fleet-1": "active"}, instances={"i-2": "running"}, volumes={"vol-2": "b"}),
    after=replace(NOTHING, volumes={"vol-2": "b"}),
    isolation="relocated",
)


def failed(evidence: FleetEvidence) -> list[str]:
    return [check.expected for check in judge_fleet(evidence) if not check.passed]


def with_life(number: int, **changes: object) -> Callable[[FleetEvidence], FleetEvidence]:
    def change(evidence: FleetEvidence) -> FleetEvidence:
        lives = list(evidence.lives)
        lives[number] = replace(lives[number], **changes)  # type: ignore[arg-type]
        return replace(evidence, lives=lives)

    return change


def with_after(**changes: dict[str, str]) -> Callable[[FleetEvidence], FleetEvidence]:
    return lambda evidence: replace(evidence, after=replace(evidence.after, **changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_life(1, process=replace(LIVES[1].process, started_at=50.0)), "one after the other"),
        (with_life(1, calls={}), "through a snapshot"),
        (with_life(0, volume_id="vol-2"), "through a snapshot"),
        (with_life(2, volume_id="vol-3"), "took the same volume"),
        (with_life(2, calls=MOVING), "took the same volume"),
        (with_life(2, calls={"ec2:DescribeVolumes": 13}), "at most 13 AWS calls"),
        (with_after(fleets={"fleet-1": "active"}), "the fleet is gone"),
        (with_after(instances={"i-2": "running"}), "the fleet is gone"),
        (with_after(volumes={"vol-1": "a", "vol-2": "b"}), "one volume is left"),
        (with_after(volumes={}), "one volume is left"),
        (with_after(snapshots={"snap-1": "completed"}), "one volume is left"),
    ],
)
def test_each_check_fails_for_its_own_reason(change: Callable[[FleetEvidence], FleetEvidence], reason: str) -> None:
    (expected,) = failed(change(GOOD))
    assert reason in expected


def test_heartbeats_of_a_long_restore_are_no_calls_of_a_recovery() -> None:
    slow = with_life(2, calls={**STAYING, "dynamodb:PutItem": 12}, phases_s={"restore": 43.0})(GOOD)
    assert failed(slow) == []
    assert failed(with_life(2, calls={**STAYING, "dynamodb:PutItem": 14}, phases_s={"restore": 43.0})(GOOD))


@pytest.mark.parametrize("lives", [0, 1, 2])
def test_a_run_that_was_not_taken_twice_is_reported(lives: int) -> None:
    found = failed(replace(GOOD, lives=LIVES[:lives]))
    assert "three instances, one after the other: two were taken, each was replaced" in found
