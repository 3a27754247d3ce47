"""What speaks against a rehearsed fleet: each check fails for its own reason and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsedProcess
from spotkeep_cli.rehearsal.fleet_verdict import (
    FleetEvidence,
    RehearsedInstance,
    ResourcesOfRun,
    instance_life,
    judge_fleet,
    printed_events,
    training_began_at,
)
from spotkeep_local.ec2.instances import INTERRUPTED
from spotkeep_local.ec2.records import AnnouncedInterruption, InstanceFacts

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


def line(event: str, time: float, **fields: Any) -> str:
    return "spotkeep-event: " + json.dumps({"event": event, "time": time, **fields})


PHASES = {"volume": 2.0, "restore": 1.5}
CONSOLE = "\n".join(
    [
        "volume: Ready(volume=vol-1)",
        line("resume", 104.5, step=50),
        line(
            "instance-first-step", 105.0, step=51, phases={"volume": 2.0, "restore": 1.5}, calls={"ec2:AttachVolume": 1}
        ),
        line("progress", 105.0, step=51, total_steps=200),
        line("saved", 106.0, step=75),
        line("progress", 107.0, step=80, total_steps=200),
        'spotkeep-event: {"event": "progr',
    ]
)


def life(console: str = CONSOLE, *, taken: bool = False, noticed: bool = False) -> RehearsedInstance:
    facts = InstanceFacts(
        instance_id="i-1", fleet_id="fleet-1", zone="a", spot=True, state="terminated", launched_at=99.0,
        running_at=100.0, ended_at=110.0, reason_code=INTERRUPTED[0] if taken else "Client.InstanceInitiatedShutdown",
        interruption=AnnouncedInterruption(notice_at=105.0, at=107.0) if noticed else None,
        process_id=None, user_data_exit_code=None, console="",
    )  # fmt: skip
    return instance_life(facts, volume_id="vol-1", events=printed_events(console), now=120.0)


def test_a_line_that_a_power_cut_cut_off_is_no_event() -> None:
    assert [event["event"] for event in printed_events(CONSOLE)] == [
        "resume", "instance-first-step", "progress", "saved", "progress",
    ]  # fmt: skip


def test_steps_are_those_that_it_reported_and_the_boot_is_what_is_left_of_the_time_until_the_first_step() -> None:
    found = life()
    assert (found.process.resumed_from_step, found.process.last_step, found.process.saved_steps) == (50, 80, (75,))
    assert found.process.durable_step == 75, "what is saved is on the volume, which outlives the instance"
    assert found.process.started_at == 105.0
    assert found.phases_s == {"boot": 1.5, "volume": 2.0, "restore": 1.5}
    assert found.calls == {"ec2:AttachVolume": 1}


def test_how_it_lost_its_capacity_is_ec2s_word() -> None:
    assert life().process.ending is ProcessEnding.EXITED
    assert life(noticed=True).process.ending is ProcessEnding.NOTICE
    assert life(taken=True).process.ending is ProcessEnding.NO_NOTICE


def test_of_a_script_that_reports_no_steps_the_start_is_known_and_no_step() -> None:
    begun = line("instance-training", 103.0, phases={"volume": 2.0}, calls={"ec2:CreateSnapshot": 1})
    found = life(f"{begun}\nepoch 3\n", noticed=True)
    assert (found.process.started_at, found.calls) == (103.0, {"ec2:CreateSnapshot": 1})
    assert found.phases_s == {"boot": 1.0, "volume": 2.0}
    assert (found.process.resumed_from_step, found.process.last_step) == (None, None)
    assert training_began_at(printed_events(begun)) == 103.0


def test_an_instance_that_never_trained_has_no_phases() -> None:
    silent = life("hello\n")
    assert (silent.phases_s, silent.calls) == ({}, {})
    assert silent.process.resumed_from_step is None
