"""The decision about orphans, which are volumes and snapshots that a run does not need any more. Pure.

Every volume and snapshot that an instance makes carries the number of its operation. The record knows the last number
begun and the one under way. So the remains of a crash are known without a clock, because they belong to an operation
that is over.

A caller lists the resources first and reads the record afterwards. Then a resource that is recorded in between is never
taken for an orphan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .record import SNAPSHOT, VOLUME, CurrentVolume, FleetRecord, Retired


@dataclass(frozen=True)
class Resource:
    """A volume or a snapshot that carries the run's tag.

    Attributes:
        kind: `volume` or `snapshot`.
        id: Its id.
        operation: The number in its tag `spotkeep:operation`. None when it has none.
        attached: True while it is attached to an instance.
    """

    kind: str
    id: str
    operation: int | None
    attached: bool = False


def orphans(record: FleetRecord, resources: tuple[Resource, ...], *, keep_volume: bool = True) -> tuple[Retired, ...]:
    """Return the resources that may be deleted.

    A resource without an operation never is, because Spotkeep did not make it. Neither is an attached volume, nor the
    current volume of a run that is not over. The same holds for all that the operation under way has made or may be
    making.

    Args:
        record: The run's record, read after the resources were listed.
        resources: All volumes and snapshots with the run's tag.
        keep_volume: True where the current volume stays after the end of the run, by its retention rule.
    """
    return tuple(
        Retired(found.kind, found.id)
        for found in resources
        if not found.attached
        and found.operation is not None
        and found.operation <= record.operations
        and found.id not in record.kept
        and not _is_needed(record, found, keep_volume=keep_volume)
    )


def rebuilt(*, run: str, resources: Sequence[Resource], volume: CurrentVolume | None) -> FleetRecord:
    """Return a record in place of a missing or unreadable one, for a run without live instances.

    Facts that EC2 does not show are left to a person. No resource in doubt is deleted or mounted.

    Args:
        run: The run's id.
        resources: All volumes and snapshots with the run's tag.
        volume: The run's only volume. None where there is none, or more than one.
    """
    return FleetRecord(
        run=run,
        volume=volume,
        operations=max((found.operation or 0 for found in resources), default=0),
        kept=() if volume is not None else tuple(found.id for found in resources),
    )


def _is_needed(record: FleetRecord, found: Resource, *, keep_volume: bool) -> bool:
    if record.volume is not None and found.id == record.volume.id:
        return keep_volume or not record.ended
    move = record.move
    if move is None or record.ended:
        # A move that the end of the run cut short leaves nothing that anybody needs, unless it holds all there is.
        return (
            record.volume is None and move is not None and found.id in (move.snapshot, move.successor) and keep_volume
        )
    if found.id in (move.snapshot, move.successor):
        return True
    if found.operation != move.operation:
        return False
    # Of the operation under way: made and not recorded yet, perhaps.
    recorded = {SNAPSHOT: move.snapshot, VOLUME: move.successor}[found.kind]
    return recorded is None
