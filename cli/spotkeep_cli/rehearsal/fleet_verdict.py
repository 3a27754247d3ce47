"""Decides whether a rehearsed fleet did what it is for: one pure function over the evidence.

It adds to the verdict on any run (`verdict`) what a volume that follows its run must do, and that
nothing is left to pay for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from spotkeep_agent.agent import HEARTBEAT_SECONDS
from spotkeep_cli.rehearsal.evidence import Check
from spotkeep_cli.rehearsal.fleet_evidence import FleetEvidence, RehearsedInstance

MOST_CALLS = 13
"""The most calls of a recovery without a move, those of user data among them: docs/volume-protocol.md."""
_BY_USER_DATA = 1


def judge_fleet(evidence: FleetEvidence) -> list[Check]:
    """Judge a rehearsed fleet: an interruption with a move, one without, and an end that leaves one volume."""
    return list(_checks(evidence))


def _checks(evidence: FleetEvidence) -> Iterator[Check]:
    lives, after = evidence.lives, evidence.after
    in_turn = all(_one_after_the_other(*pair) for pair in pairwise(lives))
    yield Check(
        expected="three instances, one after the other: two were taken, each was replaced",
        found=", ".join(f"{life.instance_id} in {life.zone}" for life in lives) or "none",
        passed=len(lives) == 3 and in_turn,
    )
    zones = [life.zone for life in lives]
    volumes = [life.volume_id for life in lives]
    moved = len(lives) > 1 and zones[0] != zones[1] and None not in volumes[:2] and volumes[0] != volumes[1]
    yield Check(
        expected="after the first, the volume moved to another zone through a snapshot",
        found=_found(lives[:2]),
        passed=moved and lives[1].calls.get("ec2:CreateSnapshot", 0) == 1,
    )
    stayed = len(lives) > 2 and zones[1] == zones[2] and volumes[1] is not None and volumes[1] == volumes[2]
    yield Check(
        expected="after the second, the next instance in the same zone took the same volume",
        found=_found(lives[1:3]),
        passed=stayed and "ec2:CreateSnapshot" not in lives[2].calls and "ec2:CreateVolume" not in lives[2].calls,
    )
    yield _few_calls(lives[2] if len(lives) > 2 else None)
    yield Check(
        expected="the fleet is gone, and nothing runs that is paid for",
        found=_listed("fleet", after.fleets) + ", " + _listed("instance", after.instances),
        passed=not after.fleets and not after.instances,
    )
    yield Check(
        expected="one volume is left, and no snapshot",
        found=_listed("volume", after.volumes) + ", " + _listed("snapshot", after.snapshots),
        passed=len(after.volumes) == 1 and not after.snapshots,
    )


def _one_after_the_other(before: RehearsedInstance, after: RehearsedInstance) -> bool:
    """Return whether the second one trained only when the first one did not any more (I1)."""
    return after.process.started_at > before.process.ended_at


def _few_calls(life: RehearsedInstance | None) -> Check:
    """Judge the calls of a recovery. A heartbeat is one too: a restore of minutes, of a large state, has some."""
    expected = f"that took at most {MOST_CALLS} AWS calls, heartbeats aside"
    if life is None:
        return Check(expected=expected, found="unknown", passed=False)
    calls = sum(life.calls.values()) + _BY_USER_DATA
    heartbeats = int(sum(life.phases_s.values()) / HEARTBEAT_SECONDS)
    aside = f", {heartbeats} at most of them heartbeats" if heartbeats else ""
    return Check(expected=expected, found=f"{calls} calls{aside}", passed=calls <= MOST_CALLS + heartbeats)


def _found(lives: Sequence[RehearsedInstance]) -> str:
    return ", then ".join(f"{life.volume_id or 'no volume'} in {life.zone}" for life in lives) or "no instance"


def _listed(what: str, found: Mapping[str, str]) -> str:
    listed = ", ".join(f"{id_} ({state})" for id_, state in found.items())
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}" + (f": {listed}" if listed else "")
