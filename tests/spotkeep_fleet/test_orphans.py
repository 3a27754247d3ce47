"""What the controller's pass deletes, and above all what it does not."""

from __future__ import annotations

from dataclasses import replace

from spotkeep_fleet.orphans import Resource, orphans
from spotkeep_fleet.record import CurrentVolume, VolumeMove, new_record

RECORD = replace(new_record(run="r", volume=CurrentVolume("vol-2", "a", 8)), operations=3)
MOVING = replace(RECORD, move=VolumeMove(operation=3, zone="b", source="volume", source_id="vol-2", snapshot="snap-3"))


def volume(id_: str, operation: int | None, *, attached: bool = False) -> Resource:
    return Resource("volume", id_, operation, attached)


def snapshot(id_: str, operation: int | None) -> Resource:
    return Resource("snapshot", id_, operation)


def taken(*resources: Resource, record: object = RECORD, keep_volume: bool = True) -> list[str]:
    return [found.id for found in orphans(record, resources, keep_volume=keep_volume)]  # type: ignore[arg-type]


def test_what_an_operation_left_that_is_over_is_taken() -> None:
    assert taken(volume("vol-1", 1), volume("vol-2", 2), snapshot("snap-2", 2)) == ["vol-1", "snap-2"]


def test_what_is_being_made_is_not() -> None:
    being_made = (snapshot("snap-3", 3), volume("vol-3", 3))
    assert taken(*being_made, record=MOVING) == []


def test_a_snapshot_that_was_made_twice_is_taken_once() -> None:
    assert taken(snapshot("snap-3", 3), snapshot("snap-3b", 3), record=MOVING) == ["snap-3b"]


def test_a_record_that_is_read_too_early_takes_nothing_of_what_came_since() -> None:
    assert taken(volume("vol-9", 4), snapshot("snap-9", 4)) == []


def test_what_is_attached_stays_as_does_what_no_agent_of_ours_made() -> None:
    assert taken(volume("vol-1", 1, attached=True), volume("vol-0", None), snapshot("snap-0", None)) == []


def test_what_is_kept_for_a_person_stays() -> None:
    assert taken(volume("vol-1", 1), record=replace(RECORD, kept=("vol-1",))) == []


def test_after_the_end_the_volume_follows_its_rule() -> None:
    ended = replace(MOVING, ended=True)
    found = (volume("vol-2", 2), volume("vol-3", 3), snapshot("snap-3", 3))
    assert taken(*found, record=ended, keep_volume=True) == ["vol-3", "snap-3"]
    assert taken(*found, record=ended, keep_volume=False) == ["vol-2", "vol-3", "snap-3"]


def test_the_only_snapshot_of_a_lost_volume_outlives_the_run() -> None:
    ended = replace(MOVING, ended=True, volume=None)
    assert taken(snapshot("snap-3", 3), record=ended) == []
