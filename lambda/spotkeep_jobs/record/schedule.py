"""The record of a schedule: a document that is launched again and again, and what came of the last time."""

from __future__ import annotations

from typing import Annotated, Any

from spotkeep_jobs.record.bounds import MAX_SWEEP_BYTES, AtMost, Id, Label, Words
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.record import Record, UtcTime


class Schedule(Record):
    """A document, when it is launched, and in whose name."""

    schedule: Id
    """Its id, and the name of the schedule in EventBridge Scheduler."""
    name: Label
    owner: Label | None = None
    launched_by: Caller | None = None
    """Who asked for it: each of its launches is judged as theirs."""
    team: Label | None = None
    expression: Label
    timezone: Label
    created_at: UtcTime
    begins_at: UtcTime
    """Nothing fires before it. A rate fires then for the first time."""
    token: Label
    document: Annotated[dict[str, Any], AtMost(MAX_SWEEP_BYTES)]
    """The job document without its schedule, run and token."""
    last_firing: UtcTime | None = None
    """When it last fired. None before the first time."""
    last_launched: Id | None = None
    """The run, the group of runs or the sweep that the last firing launched. None where it was refused."""
    last_refusal: Words | None = None
    """Why the last firing launched nothing."""
