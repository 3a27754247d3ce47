"""Ids that sweeps reserve for their trials, and schedules for their launches. Pure.

    <sweep>-<number>                           the run of a trial, from 1 to 10,000
    <schedule>-<yyyymmdd>-<hhmm>               the schedule's launch at that time, in UTC (a run, several, a sweep)
    <schedule>-<yyyymmdd>-<hhmm>-<number>      one of these runs, or of this sweep's trials

Several runs that are launched as one are called `<run>-<number>`, too. They are all recorded at once. An id proves
nothing. The record of a run names its sweep and its schedule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from spotkeep_jobs.record.record import TrialPlace

MAX_TRIALS: Final = 10_000
_OF_A_TRIAL: Final = re.compile(r"(?P<sweep>.+)-(?P<number>[1-9][0-9]{0,4})")
_OF_A_FIRING: Final = re.compile(
    r"(?P<schedule>.+)-(?P<firing>(?P<day>[0-9]{8})(?:-(?P<time>[0-9]{4})(?:-[1-9][0-9]{0,4})?)?)"
)
_A_FIRING: Final = timedelta(minutes=1)
"""A schedule fires at most once in so long, and an id names the minute."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The sweep or the schedule that a launch follows from, beside its user.

    The launch may use ids that this sweep or this schedule reserves.

    Attributes:
        trial: The trial that is begun, and its sweep, or None outside a sweep.
        schedule: The schedule that fires, or None where none does.
    """

    trial: TrialPlace | None = None
    schedule: str | None = None


ASKED_BY_A_USER: Final = Origin()


@dataclass(frozen=True, kw_only=True)
class FiringId:
    """An id that a schedule reserves.

    Attributes:
        schedule: The schedule.
        firing: The part after its name, which is the day and the time and perhaps a number, or the day alone.
        over_at: The time when that firing, or that day, is over.
    """

    schedule: str
    firing: str
    over_at: datetime

    @property
    def id(self) -> str:
        """The whole id."""
        return f"{self.schedule}-{self.firing}"


def run_of_trial(sweep: str, number: int) -> str:
    """Return the run id of a trial."""
    return f"{sweep}-{number}"


def id_of_firing(schedule: str, at: datetime) -> str:
    """Return the id of a schedule's launch.

    Args:
        schedule: The schedule.
        at: The time of the firing.
    """
    return f"{schedule}-{at.astimezone(UTC):%Y%m%d-%H%M}"


def sweep_around(name: str) -> str | None:
    """Return the sweep that an id would be a trial of. None for an id of another form."""
    found = _OF_A_TRIAL.fullmatch(name)
    return found["sweep"] if found is not None and int(found["number"]) <= MAX_TRIALS else None


def firing_around(name: str, *, is_sweep: bool = False) -> FiringId | None:
    """Return the schedule that would launch under an id, and the time. None for an id of another form.

    Args:
        name: The id.
        is_sweep: True for the id of a sweep. Trials of a sweep `<schedule>-<yyyymmdd>` would have the same ids as the
            schedule's launches on that day.
    """
    found = _OF_A_FIRING.fullmatch(name)
    if found is None or (found["time"] is None and not is_sweep):
        return None
    try:
        day = datetime.strptime(found["day"], "%Y%m%d").replace(tzinfo=UTC)
        at = day if found["time"] is None else datetime.strptime(f"{found['time']}Z", "%H%M%z")
    except ValueError:
        return None  # Digits that are no time.
    minute = timedelta(hours=at.hour, minutes=at.minute)
    over_at = day + (timedelta(days=1) if found["time"] is None else minute + _A_FIRING)
    return FiringId(schedule=found["schedule"], firing=found["firing"], over_at=over_at)
