"""What is kept of a job's phases that are not listed any more: a job may be interrupted for as long as it lives."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from spotkeep_jobs.record.record import Record, UtcTime


class EarlierPhases(Record):
    """Phases of a job, added up: what follows from all of them follows from these and from those that are listed.

    Times are exact sums, so a bill comes out the same whichever of them are listed (I8).
    """

    count: int = 0
    interruptions: int = 0
    time: dict[str, timedelta] = Field(default_factory=dict)
    """How long it was in each kind of phase."""
    loading_again: timedelta = timedelta(0)
    """How long it loaded from its first interruption on."""
    had_instances: bool = False
    """Whether it had instances before its first interruption."""
    first_on_instances_at: UtcTime | None = None
