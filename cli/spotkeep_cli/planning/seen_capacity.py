"""What a run's timeline says of spot capacity: when there was some, when it was taken, how long the wait was."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from spotkeep_jobs.record.states import TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import TimelineEntry
    from spotkeep_planner.capacity_model import SeenSpell

_GOT_CAPACITY = (TimelineKind.DOWNLOADING, TimelineKind.TRAINING, TimelineKind.RESUMED)
_LEFT_CAPACITY = (TimelineKind.STOPPING, TimelineKind.UPLOADING, TimelineKind.ATTEMPT_ENDED, TimelineKind.ENDED)


def seen_spells(timeline: Sequence[TimelineEntry], *, now: datetime) -> list[SeenSpell]:
    """Return the stretches with and without capacity in a timeline.

    A wait that the run gave up, or that still goes on, has not seen its end; the same holds for capacity that was left
    because the work was done, or lost to an error of SageMaker's own.

    Args:
        timeline: What happened, oldest first.
        now: The time, for what still goes on.
    """
    from spotkeep_planner.capacity_model import SeenSpell

    spells: list[SeenSpell] = []
    with_capacity: bool | None = None
    since: datetime | None = None

    def close(at: datetime, *, ended: bool) -> None:
        if with_capacity is not None and since is not None:
            length_s = max(0.0, (at - since).total_seconds())
            spells.append(SeenSpell(with_capacity=with_capacity, length_s=length_s, ended=ended))

    for entry in timeline:
        if entry.kind in _GOT_CAPACITY and with_capacity is not True:
            close(entry.at, ended=True)
            with_capacity, since = True, entry.at
        elif entry.kind is TimelineKind.INTERRUPTED and not entry.error_of_aws:
            close(entry.at, ended=True)
            with_capacity, since = False, entry.at
        elif (entry.kind in _LEFT_CAPACITY or entry.error_of_aws) and with_capacity is not None:
            close(entry.at, ended=False)
            with_capacity, since = None, None
    close(now, ended=False)
    return spells
