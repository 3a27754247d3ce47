"""Schedules for a person: the table of `schedules ls`, and when one fires."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from spotkeep_jobs.record.schedule import Schedule


def schedule_list(schedules: Sequence[Schedule], next_firings: Sequence[datetime | None], *, width: int) -> Table:
    """Return one row a schedule: when it fires, and what it launched last."""
    columns = [
        Column(heading="SCHEDULE", cells=[each.schedule for each in schedules]),
        Column(heading="WHEN", cells=[rhythm(each.expression, each.timezone) for each in schedules], importance=2),
        Column(heading="NEXT (UTC)", cells=[_minute(firing) for firing in next_firings]),
        Column(heading="LAST LAUNCHED", cells=[_last(each) for each in schedules], importance=3),
        Column(heading="OWNER", cells=[each.owner or quantities.UNKNOWN for each in schedules], importance=1),
    ]
    return table_that_fits(columns, width=width)


def rhythm(expression: str, timezone: str) -> str:
    """Return when a schedule fires: its expression, and its time zone where that matters."""
    return expression if timezone == "UTC" or expression.startswith("rate") else f"{expression} {timezone}"


def fires_at(firing: str | None) -> str:
    """Return the next firing of a launcher's answer, in words."""
    return "as AWS reads it" if firing is None else f"{_minute(datetime.fromisoformat(firing))} UTC"


def _minute(firing: datetime | None) -> str:
    return quantities.moment(firing).rpartition(":")[0] or quantities.UNKNOWN


def _last(schedule: Schedule) -> str:
    if schedule.last_firing is None:
        return "nothing yet"
    return schedule.last_launched or "refused"
