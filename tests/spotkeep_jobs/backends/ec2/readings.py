"""What EC2 and the instances of one attempt say, minute by minute, for tests of what is made of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from spotkeep_fleet.record import TRAINING, FleetRecord, Lease, Node, TrainingReport, new_record
from spotkeep_jobs.backends.ec2.facts import Fleet, FleetEvent, FleetEventKind, FleetReading, Instance
from spotkeep_jobs.backends.ec2.history import FleetHistory, NodesWanted
from spotkeep_jobs.backends.ec2.history import opened as history_of
from tests.models.clock import NOON

MARKS = {"SPOTKEEP_RUN": "count", "SPOTKEEP_ATTEMPT": "1", "SPOTKEEP_LAUNCH": "0123456789abcdef"}
NO_CAPACITY = "InsufficientInstanceCapacity: we have no g5.xlarge"


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def history(**changes: Any) -> FleetHistory:
    new = history_of(
        run="count",
        attempt=1,
        job_name="count-1",
        marks=MARKS,
        capacity="spot",
        template_id="lt-1",
        max_run_seconds=3600,
        max_wait_seconds=7200,
        now=NOON,
    )
    return new.model_copy(update={"fleet_id": "fleet-1", **changes})


def nodes_history(*, at_least: int = 2, at_most: int = 2, **changes: Any) -> FleetHistory:
    """The history of an attempt with nodes, which wait ten minutes for each other."""
    return history(nodes=NodesWanted(at_least=at_least, at_most=at_most, wait_seconds=600), **changes)


def node(name: str, *, launched: float, fleet: str = "fleet-1", **fields: Any) -> Instance:
    return instance(name, launched=launched, tags={"aws:ec2:fleet-id": fleet}, **fields)


def world_of(*names: str, since: float, waiting: tuple[str, ...] = (), **report: Any) -> FleetRecord:
    """The record of nodes that train together, the first of them as the leader; others are connected with it."""
    nodes = tuple(Node(f"i-{name}", "10.0.0.1") for name in (*names, *waiting))
    return replace(trains(names[0], since=since), nodes=nodes, world=tuple(f"i-{name}" for name in names), **report)


def instance(name: str, *, launched: float, state: str = "running", **fields: Any) -> Instance:
    given = {"type": "g5.xlarge", "zone": "us-east-1a", "spot": True, "tags": {}, **fields}
    return Instance(id=f"i-{name}", state=state, launched_at=at(launched), **given)


def seen(*instances: Instance, state: str = "active", events: tuple[FleetEvent, ...] = ()) -> FleetReading:
    return FleetReading(fleet=Fleet(id="fleet-1", state=state, tags={}), instances=instances, events=events)


def record(*, holder: str | None = None, until: float = 1000, **training: Any) -> FleetRecord:
    lease = None if holder is None else Lease(holder=f"i-{holder}", fence=1, expires_at=at(until).timestamp())
    return replace(new_record(run="count"), lease=lease, training=TrainingReport(**training))


def trains(holder: str, *, since: float) -> FleetRecord:
    return record(holder=holder, state=TRAINING, heartbeat_at=at(since).timestamp())


def said(
    minute: float, sub_type: str, description: str = "", kind: FleetEventKind = FleetEventKind.ERROR
) -> FleetEvent:
    return FleetEvent(at=at(minute), kind=kind, sub_type=sub_type, description=description)
