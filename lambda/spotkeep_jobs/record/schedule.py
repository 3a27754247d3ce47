"""The record of a schedule: a document that is launched again and again, and what came of the last time."""

from __future__ import annotations

from typing import Any

from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.record import Record, UtcTime


class Schedule(Record):
    """A document, when it is launched, and in whose name."""

    schedule: str
    """Its id, and the name of the schedule in EventBridge Scheduler."""
    name: str
    owner: str | None = None
    launched_by: Caller | None = None
    """Who asked for it: each of its launches is judged as theirs."""
    team: str | None = None
    expression: str
    timezone: str
    created_at: UtcTime
    begins_at: UtcTime
    """Nothing fires before it; a rate fires then for the first time."""
    token: str
    document: dict[str, Any]
    """The job document without its schedule, run and token."""
    last_firing: UtcTime | None = None
    """When it last fired; None before the first time."""
    last_launched: str | None = None
    """The run, the group of runs or the sweep that the last firing launched; None where it was refused."""
    last_refusal: str | None = None
    """Why the last firing launched nothing."""
