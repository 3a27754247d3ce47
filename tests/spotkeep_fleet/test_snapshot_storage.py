"""What snapshots held and for how long: each counts once, from when it is named to when it is named no more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet.record import (
    SNAPSHOT,
    VOLUME,
    CurrentVolume,
    FleetRecord,
    Retired,
    StoredSnapshot,
    VolumeMove,
    new_record,
    reopened,
)
from spotkeep_fleet.snapshot_storage import snapshot_gib_hours, with_snapshots_counted

SIZE = 100
HOUR = 3600.0


def moving(record: FleetRecord, snapshot: str | None) -> FleetRecord:
    return replace(record, move=VolumeMove(operation=1, zone="b", source=VOLUME, source_id="vol-1", snapshot=snapshot))


@pytest.fixture
def record() -> FleetRecord:
    return new_record(run="count", volume=CurrentVolume(id="vol-1", zone="a", size_gb=SIZE))


def test_a_snapshot_counts_from_the_move_that_makes_it_to_its_end(record: FleetRecord) -> None:
    made = with_snapshots_counted(moving(record, "snap-1"), volume_gb=SIZE, known_gib={}, now=0)
    known = with_snapshots_counted(made, volume_gb=SIZE, known_gib={"snap-1": 12.0}, now=HOUR)
    assert known.snapshots == (StoredSnapshot("snap-1", 12.0, 0),)
    retired = replace(known, move=None, retired=(Retired(VOLUME, "vol-0"), Retired(SNAPSHOT, "snap-1")))
    retired = with_snapshots_counted(retired, volume_gb=SIZE, known_gib={}, now=2 * HOUR)
    assert snapshot_gib_hours(retired, since=0, until=3 * HOUR) == 36.0
    gone = with_snapshots_counted(replace(retired, retired=()), volume_gb=SIZE, known_gib={}, now=4 * HOUR)
    assert (gone.snapshots, gone.snapshot_gib_hours) == ((), 48.0)
    assert snapshot_gib_hours(gone, since=0, until=9 * HOUR) == 48.0


def test_until_ec2_says_what_it_holds_it_counts_as_its_volume_which_is_at_least_that(record: FleetRecord) -> None:
    made = with_snapshots_counted(moving(record, "snap-1"), volume_gb=SIZE, known_gib={}, now=0)
    assert snapshot_gib_hours(made, since=0, until=HOUR) == 100.0


def test_a_snapshot_that_a_user_gave_is_not_the_runs(record: FleetRecord) -> None:
    given_one = replace(record, move=VolumeMove(operation=1, zone="b", source=SNAPSHOT, source_id="snap-0"))
    assert with_snapshots_counted(given_one, volume_gb=SIZE, known_gib={"snap-0": 9.0}, now=0) == given_one


def test_the_next_attempt_pays_for_what_is_there_in_its_own_time(record: FleetRecord) -> None:
    first = with_snapshots_counted(moving(record, "snap-1"), volume_gb=SIZE, known_gib={"snap-1": 10.0}, now=0)
    first = replace(first, snapshot_gib_hours=7.0)
    second = reopened(first)
    assert snapshot_gib_hours(first, since=0, until=HOUR) == 17.0
    assert snapshot_gib_hours(second, since=5 * HOUR, until=6 * HOUR) == 10.0


@given(
    lives=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0.1, 500)), min_size=1, max_size=6),
    readings=st.sets(st.integers(0, 100)),
)
def test_whenever_it_is_written_each_snapshot_counts_once_for_its_time(
    lives: list[tuple[int, int, float]], readings: set[int]
) -> None:
    record = new_record(run="count")
    gib = {f"snap-{number}": size for number, (_, _, size) in enumerate(lives)}
    spans = {f"snap-{number}": (begin, begin + length) for number, (begin, length, _) in enumerate(lives)}
    moments = {moment for span in spans.values() for moment in span}
    for now in sorted(readings | moments):
        named = [Retired(SNAPSHOT, id_) for id_, (begin, end) in spans.items() if begin <= now < end]
        record = with_snapshots_counted(
            replace(record, retired=tuple(named)), volume_gb=SIZE, known_gib=gib, now=now * HOUR
        )
        expected = sum(gib[id_] * (min(now, end) - begin) for id_, (begin, end) in spans.items() if begin <= now)
        assert snapshot_gib_hours(record, since=0, until=now * HOUR) == pytest.approx(expected)
