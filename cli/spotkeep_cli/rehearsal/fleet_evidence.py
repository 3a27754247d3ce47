"""What became of a run on a fleet: its instances, by EC2's account and their own, and what was alive around them. Pure.

An instance prints the steps of its training on its console; when it came, why it went, and where it was is EC2's word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsedProcess
from spotkeep_jobs.progress.job_events import MARKER
from spotkeep_local.ec2.instances import INTERRUPTED

if TYPE_CHECKING:
    from spotkeep_local.ec2.facts import InstanceFacts


@dataclass(frozen=True, kw_only=True)
class RehearsedInstance:
    """One instance of the run's fleet.

    Attributes:
        instance_id: The instance's id.
        zone: Where it was.
        volume_id: The run's volume while it trained.
        phases_s: Seconds from its boot to the first step of the training, by phase; to the start of a script that
            reports no steps.
        calls: AWS calls of the agent until then, by name.
        process: Its training, until it was gone.
    """

    instance_id: str
    zone: str
    volume_id: str | None
    phases_s: Mapping[str, float]
    calls: Mapping[str, int]
    process: RehearsedProcess


@dataclass(frozen=True, kw_only=True)
class ResourcesOfRun:
    """What of a run is alive in EC2.

    Attributes:
        fleets: States of its fleets by id, deleted ones left out.
        instances: Its instances that are not gone, with their states.
        volumes: Its volumes, with the zone of each.
        snapshots: Its snapshots, with their states.
    """

    fleets: Mapping[str, str]
    instances: Mapping[str, str]
    volumes: Mapping[str, str]
    snapshots: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class FleetEvidence:
    """What a rehearsal on a fleet gathered beside the evidence of any run.

    Attributes:
        lives: The run's instances, oldest first.
        before: What was alive of the run before it was launched.
        trained: What was, while its last instance trained.
        after: What was, when it had ended.
        isolation: What instances are on this machine: `namespace` or `relocated`.
    """

    lives: Sequence[RehearsedInstance]
    before: ResourcesOfRun
    trained: ResourcesOfRun
    after: ResourcesOfRun
    isolation: str


def printed_events(console: str) -> list[Mapping[str, Any]]:
    """Return the job events of a console."""
    found: list[Mapping[str, Any]] = []
    for line in console.splitlines():
        if line.startswith(MARKER):
            try:
                event = json.loads(line[len(MARKER) :])
            except ValueError:
                continue  # the power went in the middle of a line
            if isinstance(event, dict):
                found.append(event)
    return found


def instance_life(
    facts: InstanceFacts, *, volume_id: str | None, events: Sequence[Mapping[str, Any]], now: float
) -> RehearsedInstance:
    """Join what EC2 saw of an instance with what the instance printed.

    Args:
        facts: What EC2 saw of it; it has booted.
        volume_id: The run's volume while it trained.
        events: What it printed, oldest first.
        now: Seconds since the epoch.
    """
    running_at = facts.running_at or facts.launched_at
    noticed = facts.interruption is not None
    taken = facts.reason_code == INTERRUPTED[0]
    # After a notice it shuts itself down, the sooner the better: EC2's reason is not the interruption then.
    ending = ProcessEnding.NOTICE if noticed else ProcessEnding.NO_NOTICE if taken else ProcessEnding.EXITED
    stepped = _event(events, "instance-first-step")
    first = stepped or _event(events, "instance-training")
    phases = dict(first["phases"]) if first else {}
    boot = {"boot": round(first["time"] - sum(phases.values()) - running_at, 3)} if first else {}
    process = RehearsedProcess(
        started_at=first["time"] if first else running_at,
        ended_at=facts.ended_at or now,
        ending=ending,
        resumed_from_step=_first(events, "resume", 0 if stepped else None),
        last_step=max(_steps(events, "progress"), default=None),
        saved_steps=tuple(_steps(events, "saved")),
        # What was saved is durable: it is on the volume, which outlives the instance.
        durable_step=max(_steps(events, "saved"), default=0),
    )
    return RehearsedInstance(
        instance_id=facts.instance_id,
        zone=facts.zone,
        volume_id=volume_id,
        phases_s={**boot, **phases},
        calls=dict(first.get("calls", {})) if first else {},
        process=process,
    )


def training_began_at(events: Iterable[Mapping[str, Any]]) -> float | None:
    """Return when an instance started its training, in seconds since the epoch; None where it has not.

    Args:
        events: What it printed, oldest first.
    """
    begun = _event(events, "instance-training")
    return None if begun is None else float(begun["time"])


def _event(events: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((event for event in events if event["event"] == kind), None)


def _steps(events: Iterable[Mapping[str, Any]], kind: str) -> list[int]:
    return [event["step"] for event in events if event["event"] == kind and isinstance(event.get("step"), int)]


def _first(events: Iterable[Mapping[str, Any]], kind: str, otherwise: int | None) -> int | None:
    return next(iter(_steps(events, kind)), otherwise)
