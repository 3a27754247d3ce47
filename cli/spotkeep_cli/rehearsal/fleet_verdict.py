"""Decides the verdict on a rehearsed fleet, in one pure function over the evidence.

It adds to the verdict on any run (`verdict`). A volume must follow its run, and nothing may be left to pay for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from spotkeep_agent.agent import HEARTBEAT_SECONDS
from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsalCheck, RehearsedProcess
from spotkeep_jobs.progress.job_events import MARKER
from spotkeep_local.ec2.instances import INTERRUPTED

if TYPE_CHECKING:
    from spotkeep_local.ec2.records import InstanceFacts

MOST_CALLS = 13
"""The most AWS calls of a recovery without a move, including those of user data (docs/volume-protocol.md)."""
_BY_USER_DATA = 1


@dataclass(frozen=True, kw_only=True)
class RehearsedInstance:
    """One instance of the run's fleet.

    Attributes:
        instance_id: The instance's id.
        zone: Its Availability Zone.
        volume_id: The id of the run's volume while it trained.
        phases_s: Seconds from its boot to the first training step, or to the start of a script that reports no steps,
            by phase.
        calls: Number of AWS calls of the agent until then, by name.
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
    """The resources of a run that are alive in EC2.

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
    """The evidence of a rehearsal on a fleet, beside the evidence of any run.

    Attributes:
        lives: The run's instances, oldest first.
        before: The run's resources before it was launched.
        trained: The run's resources while its last instance trained.
        after: The run's resources after its end.
        isolation: The kind of instances on this machine, `namespace` or `relocated`.
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
    """Join EC2's facts of an instance with the output of the instance.

    Args:
        facts: EC2's facts of it. The instance has booted.
        volume_id: The id of the run's volume while it trained.
        events: The instance's output, oldest first.
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
    """Return the start of an instance's training, in seconds since the epoch. None before the start.

    Args:
        events: The instance's output, oldest first.
    """
    begun = _event(events, "instance-training")
    return None if begun is None else float(begun["time"])


def _event(events: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((event for event in events if event["event"] == kind), None)


def _steps(events: Iterable[Mapping[str, Any]], kind: str) -> list[int]:
    return [event["step"] for event in events if event["event"] == kind and isinstance(event.get("step"), int)]


def _first(events: Iterable[Mapping[str, Any]], kind: str, otherwise: int | None) -> int | None:
    return next(iter(_steps(events, kind)), otherwise)


def judge_fleet(evidence: FleetEvidence) -> list[RehearsalCheck]:
    """Judge a rehearsed fleet.

    The run had an interruption with a move and one without. Its end must leave one volume.
    """
    return list(_checks(evidence))


def _checks(evidence: FleetEvidence) -> Iterator[RehearsalCheck]:
    lives, after = evidence.lives, evidence.after
    in_turn = all(_one_after_the_other(*pair) for pair in pairwise(lives))
    yield RehearsalCheck(
        expected="three instances, one after the other: two were taken, each was replaced",
        found=", ".join(f"{life.instance_id} in {life.zone}" for life in lives) or "none",
        passed=len(lives) == 3 and in_turn,
    )
    zones = [life.zone for life in lives]
    volumes = [life.volume_id for life in lives]
    moved = len(lives) > 1 and zones[0] != zones[1] and None not in volumes[:2] and volumes[0] != volumes[1]
    yield RehearsalCheck(
        expected="after the first, the volume moved to another zone through a snapshot",
        found=_found(lives[:2]),
        passed=moved and lives[1].calls.get("ec2:CreateSnapshot", 0) == 1,
    )
    stayed = len(lives) > 2 and zones[1] == zones[2] and volumes[1] is not None and volumes[1] == volumes[2]
    yield RehearsalCheck(
        expected="after the second, the next instance in the same zone took the same volume",
        found=_found(lives[1:3]),
        passed=stayed and "ec2:CreateSnapshot" not in lives[2].calls and "ec2:CreateVolume" not in lives[2].calls,
    )
    yield _few_calls(lives[2] if len(lives) > 2 else None)
    yield RehearsalCheck(
        expected="the fleet is gone, and nothing runs that is paid for",
        found=_listed("fleet", after.fleets) + ", " + _listed("instance", after.instances),
        passed=not after.fleets and not after.instances,
    )
    yield RehearsalCheck(
        expected="one volume is left, and no snapshot",
        found=_listed("volume", after.volumes) + ", " + _listed("snapshot", after.snapshots),
        passed=len(after.volumes) == 1 and not after.snapshots,
    )


def _one_after_the_other(before: RehearsedInstance, after: RehearsedInstance) -> bool:
    """Return True if the second one trained only after the first one had stopped (I1)."""
    return after.process.started_at > before.process.ended_at


def _few_calls(life: RehearsedInstance | None) -> RehearsalCheck:
    """Judge the number of calls of a recovery.

    A heartbeat is a call too. A restore of a large state takes minutes, so it has some.
    """
    expected = f"that took at most {MOST_CALLS} AWS calls, heartbeats aside"
    if life is None:
        return RehearsalCheck(expected=expected, found="unknown", passed=False)
    calls = sum(life.calls.values()) + _BY_USER_DATA
    heartbeats = int(sum(life.phases_s.values()) / HEARTBEAT_SECONDS)
    aside = f", {heartbeats} at most of them heartbeats" if heartbeats else ""
    return RehearsalCheck(expected=expected, found=f"{calls} calls{aside}", passed=calls <= MOST_CALLS + heartbeats)


def _found(lives: Sequence[RehearsedInstance]) -> str:
    return ", then ".join(f"{life.volume_id or 'no volume'} in {life.zone}" for life in lives) or "no instance"


def _listed(what: str, found: Mapping[str, str]) -> str:
    listed = ", ".join(f"{id_} ({state})" for id_, state in found.items())
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}" + (f": {listed}" if listed else "")
