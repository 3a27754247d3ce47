"""An instance's life: EC2's word on when and why, its own on the steps."""

from __future__ import annotations

import json
from typing import Any

from spotkeep_cli.rehearsal.evidence import ProcessEnding
from spotkeep_cli.rehearsal.fleet_evidence import RehearsedInstance, instance_life, printed_events, training_began_at
from spotkeep_local.ec2.facts import InstanceFacts
from spotkeep_local.ec2.instances import INTERRUPTED
from spotkeep_local.ec2.records import AnnouncedInterruption


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
