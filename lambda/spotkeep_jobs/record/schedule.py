"""The record of a schedule, with a document that is launched repeatedly and the outcome of its last launch. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from spotkeep_jobs.record.fields import MAX_SWEEP_BYTES, AtMost, Caller, Id, Label, Words
from spotkeep_jobs.record.record import Record, UtcTime


class Schedule(Record):
    """A document, the times of its launches, and their user."""

    schedule: Id
    """Its id, and the name of the schedule in EventBridge Scheduler."""
    name: Label
    owner: Label | None = None
    launched_by: Caller | None = None
    """The principal that asked for it. The launcher judges each of its launches as a call of this principal."""
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
    """The time when it last fired. None before the first time."""
    last_launched: Id | None = None
    """The run, the group of runs or the sweep that the last firing launched. None where it was refused."""
    last_refusal: Words | None = None
    """The reason why the last firing launched nothing."""
