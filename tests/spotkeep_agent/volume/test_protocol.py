"""Single rules of the protocol: what is lost, damaged, refused or not ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotkeep_agent.ebs import EbsVolume
from spotkeep_agent.volume import actions as do
from spotkeep_agent.volume import protocol
from spotkeep_agent.volume.actions import Done, MachineVolumes, Refused
from spotkeep_agent.volume.protocol import Situation, absorb, decide
from spotkeep_fleet.record import (
    LEASE_SECONDS,
    CurrentVolume,
    FleetRecord,
    Lease,
    TrainingReport,
    VolumeMove,
    new_record,
)

from .protocol_model import JOB

NOW = 1000.0
LEASE = Lease("i-1", 3, NOW + LEASE_SECONDS)
VOLUME = CurrentVolume("vol-1", "a", 8)
FACT = EbsVolume("vol-1", "a", "available", 8, operation=1)


def record(**changes: Any) -> FleetRecord:
    return replace(new_record(run="run", volume=VOLUME), lease=LEASE, fence=3, operations=1, **changes)


def situation(**changes: Any) -> Situation:
    return Situation(
        instance="i-1", zone="a", job=JOB, fence=3, **{"here": MachineVolumes(), "record": record(), **changes}
    )


def until(s: Situation, kind: type, *, answers: dict[type, Any], most: int = 60) -> tuple[Situation, Any]:
    """Go on, with these answers, until such an action is decided."""
    for _ in range(most):
        action = decide(s, now=NOW)
        if isinstance(action, kind):
            return s, action
        result = answers.get(type(action), Done())
        s = absorb(s, action, result if isinstance(result, (Done, Refused)) else Done(result))
    raise AssertionError(f"{kind.__name__} is never decided; the last action was {action}")


def test_a_volume_that_is_missing_is_waited_for_and_then_replaced() -> None:
    s, action = until(situation(), do.WriteRecord, answers={do.DescribeVolumes: ()})
    assert s.waited_s >= protocol.MISSING_SECONDS
    assert action.record.volume is None
    assert action.record.kept == ("vol-1",), "should it turn up again, no agent deletes it"


def test_a_lost_volume_is_replaced_only_when_s3_has_what_was_on_it() -> None:
    trained = situation(record=record(training=TrainingReport(durable_step=7)))
    answers: dict[type, Any] = {do.DescribeVolumes: (), do.ReadSecondTier: False}
    _, action = until(trained, do.GiveUp, answers=answers)
    assert "no checkpoint in S3" in action.why
    assert action.failed
    _, action = until(trained, do.WriteRecord, answers={**answers, do.ReadSecondTier: True})
    assert action.record.volume is None


def test_a_volume_that_is_lost_while_its_snapshot_is_there_is_moved_from_it() -> None:
    move = VolumeMove(operation=2, zone="a", source="volume", source_id="vol-1", snapshot="snap-1")
    s = situation(record=record(move=move), volumes=())
    assert decide(s, now=NOW) == do.DescribeSnapshots(id="snap-1")


def test_damage_is_recorded_and_ends_the_attempt_loudly() -> None:
    attached: dict[type, Any] = {
        do.DescribeVolumes: (FACT,),
        do.Inspect: "ext4",
        do.Check: Refused("Damaged", "bad superblock"),
    }
    s, action = until(situation(), do.Check, answers=attached)
    s, action = until(s, do.WriteRecord, answers=attached)
    assert action.record.volume.damage == "bad superblock"
    s = absorb(s, action, Done())
    _, action = until(s, do.Leave, answers=attached)
    assert action.failed
    assert "is damaged" in action.why


def test_a_damaged_volume_is_kept_and_replaced_by_the_next_agent() -> None:
    s = situation(record=record(volume=replace(VOLUME, damage="bad superblock")), volumes=(FACT,))
    action = decide(s, now=NOW)
    assert isinstance(action, do.WriteRecord)
    assert action.record.volume is None
    assert action.record.kept == ("vol-1",)


def test_a_current_volume_without_a_file_system_is_not_formatted() -> None:
    answers: dict[type, Any] = {do.DescribeVolumes: (FACT,), do.Inspect: ""}
    _, action = until(situation(), do.GiveUp, answers=answers)
    assert "it has no file system" in action.why


@pytest.mark.parametrize("step", [do.Inspect, do.Mount])
def test_a_mount_that_fails_ends_the_attempt(step: type) -> None:
    """Ignored, the training would go to the root disk (trap 5)."""
    answers: dict[type, Any] = {do.DescribeVolumes: (FACT,), do.Inspect: "ext4", step: Refused("Volume", "I/O error")}
    s, action = until(situation(), step, answers=answers)
    s = absorb(s, action, answers[step])
    _, action = until(s, do.Leave, answers=answers)
    assert action.failed
    assert "I/O error" in action.why


def test_multi_attach_is_refused() -> None:
    action = decide(situation(volumes=(replace(FACT, multi_attach=True),)), now=NOW)
    assert isinstance(action, do.GiveUp)
    assert "Multi-Attach" in action.why


def test_a_volume_that_a_user_brought_is_kept_when_the_run_has_moved_on() -> None:
    move = VolumeMove(operation=2, zone="b", source="volume", source_id="vol-1", snapshot="snap-2", successor="vol-2")
    brought = replace(FACT, operation=None)
    s = situation(volumes=(brought,), record=record(move=move))
    after = protocol._promoted(s.record, move, EbsVolume("vol-2", "b", "in-use", 8), s)  # type: ignore[arg-type]
    assert after.kept == ("vol-1",)
    assert [found.id for found in after.retired] == ["snap-2"]


def test_a_token_that_stands_for_other_parameters_is_not_used_again() -> None:
    move = VolumeMove(operation=2, zone="a", source="blank")
    s = situation(record=record(volume=None, move=move), volumes=())
    s = absorb(s, do.CreateVolume("a", 2, 8), Refused("IdempotentParameterMismatch"))
    action = decide(s, now=NOW)
    assert isinstance(action, do.WriteRecord)
    assert action.record.move is not None
    assert action.record.move.operation == 2


def test_what_is_refused_again_and_again_is_given_up() -> None:
    answers: dict[type, Any] = {do.DescribeVolumes: (FACT,), do.Attach: Refused("UnsupportedOperation", "no")}
    _, action = until(situation(), do.GiveUp, answers=answers, most=300)
    assert "UnsupportedOperation" in action.why


def test_a_move_is_begun_so_often_and_no_more() -> None:
    move = VolumeMove(operation=4, zone="a", source="blank", failures=protocol.MOST_FAILURES)
    assert isinstance(decide(situation(record=record(volume=None, move=move), volumes=()), now=NOW), do.GiveUp)


def test_a_stopped_run_is_left() -> None:
    s, action = until(situation(record=record(stop_requested=True)), do.WriteRecord, answers={})
    assert action.record.lease is None
    _, action = until(absorb(s, action, Done()), do.Leave, answers={})
    assert not action.failed


def test_a_volume_is_not_detached_while_it_cannot_be_unmounted() -> None:
    s = situation(here=MachineVolumes(mounted="vol-1", devices=("vol-1",)), leaving=protocol.Leaving("notice"))
    action = decide(s, now=NOW)
    assert action == do.Unmount("vol-1")
    action = decide(absorb(s, action, Refused("Volume", "busy")), now=NOW)
    assert isinstance(action, do.Leave)
    assert action.failed


def test_a_lease_is_renewed_before_it_runs_out() -> None:
    action = decide(situation(volumes=(FACT,)), now=NOW + LEASE_SECONDS * 0.6)
    assert isinstance(action, do.WriteRecord)
    assert action.why == "renew the lease"


def test_each_lease_has_a_higher_fencing_token_than_all_before() -> None:
    """An agent that was started again on the same instance is not taken for the one before."""
    action = decide(replace(situation(record=replace(record(), lease=None)), fence=None), now=NOW)
    assert isinstance(action, do.WriteRecord)
    assert (action.record.fence, action.record.lease) == (4, Lease("i-1", 4, NOW + LEASE_SECONDS))
