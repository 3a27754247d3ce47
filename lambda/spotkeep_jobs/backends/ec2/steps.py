"""The due steps for an attempt's fleet, which are stop, delete, terminate and close. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from spotkeep_fleet.record import FleetRecord
from spotkeep_jobs.backends.ec2.facts import FleetReading
from spotkeep_jobs.backends.ec2.history import FleetHistory, InstanceLife, may_launch

LEAVING_TAKES: Final = timedelta(minutes=5)
"""Two minutes to save, the copy of the last checkpoint, unmount and detach. A slower instance is terminated."""

BOOT_TAKES: Final = timedelta(minutes=20)
"""The longest time that an instance may run before its agent takes the run's lease.

A virtual one needs one to three minutes, bare metal five to fifteen. One that is silent for longer has no agent, and
would bill for as long as its fleet is there."""

APPEARS_AFTER: Final = timedelta(minutes=2)
"""The longest time after the end of its fleet in which an instance may still appear."""

_ENDED_FLEET_STATES: Final = frozenset({"deleted", "failed"})


class FleetStep(StrEnum):
    """A due step for a fleet. Each may be taken twice."""

    ASK_TO_STOP = "ASK_TO_STOP"
    """Write into the fleet record that the training must save and leave."""
    DELETE_FLEET = "DELETE_FLEET"
    """Delete the fleet, so that EC2 launches nothing more. Its instance stays, because it saves first."""
    TERMINATE = "TERMINATE"
    """End the instances that hold no lease any more, hold it for too long, or never reported."""
    CLOSE = "CLOSE"
    """Nothing runs any more. Mark the record as ended, count the cost, delete the template's version."""


def steps_due(
    history: FleetHistory, *, seen: FleetReading, record: FleetRecord | None, now: datetime
) -> tuple[FleetStep, ...]:
    """Return the steps that are due now, in this order. Empty for an attempt that goes on well, or is over.

    Args:
        history: The history after EC2's answer.
        seen: EC2's answer.
        record: The fleet record, which the instances write. None when it is missing or unreadable.
        now: The time.
    """
    if history.over_at is not None:
        return ()
    if history.ending is None:
        return (FleetStep.TERMINATE,) if to_terminate(history, record=record, now=now) else ()
    todo: list[FleetStep] = []
    if history.ending.training_goes_on and record is not None and not record.stop_requested:
        todo.append(FleetStep.ASK_TO_STOP)
    if may_launch(history, seen, now):
        todo.append(FleetStep.DELETE_FLEET)
    if to_terminate(history, record=record, now=now):
        todo.append(FleetStep.TERMINATE)
    if not history.live and _launches_no_more(history, seen, now):
        todo.append(FleetStep.CLOSE)
    return tuple(todo)


def to_terminate(history: FleetHistory, *, record: FleetRecord | None, now: datetime) -> tuple[str, ...]:
    """Return the ids of the live instances that have nothing to save, had their time, or never reported.

    Args:
        history: The history after EC2's answer.
        record: The fleet record, which the instances write. None when it is missing or unreadable. Then each instance
            may have something to save.
        now: The time.
    """
    holder = None
    if record is not None and record.lease is not None and record.lease.expires_at > now.timestamp():
        holder = record.lease.holder
    if history.ending_at is None:
        # While another one holds the lease, an instance waits for it and cannot say anything.
        return () if holder is not None else tuple(life.instance_id for life in history.live if _silent(life, now))
    late = now - history.ending_at >= LEAVING_TAKES
    saves = (lambda _: True) if record is None else (lambda instance: instance == holder)
    return tuple(life.instance_id for life in history.live if late or not saves(life.instance_id))


def _silent(life: InstanceLife, now: datetime) -> bool:
    return life.heard_at is None and life.training_at is None and now - life.launched_at >= BOOT_TAKES


def _launches_no_more(history: FleetHistory, seen: FleetReading, now: datetime) -> bool:
    """Return True if no instance launched just before the fleet's deletion can appear any more."""
    if may_launch(history, seen, now):
        return False
    deleted = seen.fleet is None or seen.fleet.state in _ENDED_FLEET_STATES
    return deleted or now - (history.ending_at or now) >= APPEARS_AFTER
