"""The lifetime and size of a run's snapshots, for the bill. Pure.

A move makes a snapshot, and deletes it minutes later when the new volume made from it is current. EBS bills the data of
a snapshot while it exists. The first snapshot of a volume holds all blocks that were written to it. EC2 calls that its
full size. Each of these snapshots is the first of its volume. The exception is a volume of the user's own that is moved
more than once. A later snapshot of that volume holds at most its full size.

Sources:
    https://docs.aws.amazon.com/ebs/latest/userguide/how_snapshots_work.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Snapshot.html (FullSnapshotSizeInBytes)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .record import SNAPSHOT, FleetRecord, StoredSnapshot

_SECONDS_PER_HOUR = 3600.0


def with_snapshots_counted(
    record: FleetRecord, *, volume_gb: int, known_gib: Mapping[str, float], now: float
) -> FleetRecord:
    """Count the snapshots that a record names. A new one begins to count, and one that it names no more has counted.

    Args:
        record: The record before its next write.
        volume_gb: The size of the run's volumes, in GiB. That of the current one is used where there is one.
        known_gib: The full size of snapshots in GiB, by id, as far as EC2 has said.
        now: The time, in seconds since the epoch.
    """
    named = _named(record)
    there = {stored.id: stored for stored in record.snapshots}
    if not named and not there:
        return record
    of_volume = float(record.volume.size_gb if record.volume is not None else volume_gb)
    gone = [stored for stored in record.snapshots if stored.id not in named]
    stored = [there.get(id_) or StoredSnapshot(id_, of_volume, now) for id_ in named]
    return replace(
        record,
        snapshots=tuple(replace(each, gib=known_gib.get(each.id, each.gib)) for each in stored),
        snapshot_gib_hours=record.snapshot_gib_hours + sum(_gib_hours(each, until=now) for each in gone),
    )


def snapshot_gib_hours(record: FleetRecord, *, since: float, until: float) -> float:
    """Return GiB times hours of a run's snapshots in its attempt.

    Args:
        record: The run's record.
        since: The start of the attempt, in seconds since the epoch. Storage before that is on the bill of another
            attempt.
        until: The end of the attempt.
    """
    there = sum(_gib_hours(replace(stored, since=max(stored.since, since)), until=until) for stored in record.snapshots)
    return record.snapshot_gib_hours + there


def _gib_hours(stored: StoredSnapshot, *, until: float) -> float:
    return stored.gib * max(0.0, until - stored.since) / _SECONDS_PER_HOUR


def _named(record: FleetRecord) -> tuple[str, ...]:
    """Return the snapshots that moves made, which are that of the move under way and those to be deleted."""
    retired = [each.id for each in record.retired if each.kind == SNAPSHOT]
    current = [] if record.move is None or record.move.snapshot is None else [record.move.snapshot]
    return tuple(dict.fromkeys([*current, *retired]))
