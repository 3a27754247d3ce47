"""The places in which an attempt with nodes looks for them, one after the other. Pure.

A place is one instance type in one subnet. Nodes that train together have to be in one zone. The request of a fleet
that keeps up its capacity can ask for that in one way alone, which is one subnet. So an attempt has a fleet at one
place. When fewer nodes than train are there for too long, the attempt leaves the place. Its fleet ends with the nodes,
which have saved. The next fleet asks for all nodes at the next place. After the last place comes the first one.

Three steps do that, and each may be taken again after a crash.

1. The history records that the place is left. From then on the old fleet is one of the earlier ones.
2. EC2 is asked to delete the earlier fleets with their instances. The history records this with the next step.
3. The fleet of the present place is created with a token of that place.

The third step is never taken before the second one. So at most one fleet of the attempt is not asked to be deleted. An
attempt without a fleet at its place stays there until EC2 has made one, or has refused it for certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.ec2.facts import FleetReading
from spotkeep_jobs.backends.ec2.history import KNOWN_AFTER, EarlierFleet, FleetHistory, Transition
from spotkeep_jobs.backends.ec2.launch import FleetLaunch, place_of_nodes
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.record.fields import with_changes

MOST_EARLIER_FLEETS: Final = 10
"""The most places that an attempt leaves before the fleets of the first of them are known to be over."""


def is_to_be_left(history: FleetHistory, seen: FleetReading, *, now: datetime) -> bool:
    """Return True if the present place has had too few nodes for too long.

    A fleet that EC2 does not show is not left, because EC2 could not be asked to delete it. Neither is a place without
    a fleet, because the answer of EC2 that made one may be lost.

    Args:
        history: The history after EC2's answer.
        seen: EC2's answer.
        now: The time.
    """
    if history.nodes is None or history.ending is not None or history.short_since is None:
        return False
    if history.fleet_id is None or seen.fleet is None or not seen.fleet.active:
        return False
    waited = now - history.short_since >= timedelta(seconds=history.nodes.wait_seconds)
    return waited and len(history.earlier_fleets) < MOST_EARLIER_FLEETS


def left(history: FleetHistory, launch: FleetLaunch | None, *, zones: Mapping[str, str], now: datetime) -> FleetHistory:
    """Return the history of an attempt that looks for its nodes at the next place.

    Args:
        history: The history until then.
        launch: The recorded launch, which has the places. None where its record is gone.
        zones: The Availability Zones by subnet id, as far as they are known.
        now: The time.
    """
    earlier = history.earlier_fleets
    if history.fleet_id is not None:
        earlier = (*earlier, EarlierFleet(id=history.fleet_id, left_at=now))
    text = _why_left(history, launch, zones=zones)
    at = max(now, history.transitions[-1].at)
    return with_changes(
        history,
        fleet_id=None,
        place=history.place + 1,
        short_since=now,
        earlier_fleets=earlier,
        transitions=(*history.transitions, Transition(phase=JobPhase.WAITING, at=at, message=text)),
    )


def _why_left(history: FleetHistory, launch: FleetLaunch | None, *, zones: Mapping[str, str]) -> str:
    """Return the reason, with the place that is left, the next one, and the number of the fleet that asks there.

    A place is named by its zone, or by its subnet where the zone is not known.
    """
    asks = f"fleet {history.place + 2} asks for all of them"
    if launch is None or launch.nodes is None:
        return f"too few nodes for too long: {asks}"
    here, there = (place_of_nodes(launch, place=number) for number in (history.place, history.place + 1))
    at_here, at_there = (
        f"{place['InstanceType']} in {zones.get(place['SubnetId'], place['SubnetId'])}" for place in (here, there)
    )
    wait = format_duration(launch.nodes.wait_seconds)
    text = f"fewer than {launch.nodes.at_least} nodes of {at_here} for {wait}"
    if len(launch.overrides) == 1:
        return f"{text}, the only place: {asks} there again"
    return f"{text}: {asks}, {'in another subnet there' if at_here == at_there else at_there}"


def refused(history: FleetHistory, *, reason: str) -> FleetHistory:
    """Return the history of an attempt after EC2 refused a fleet at its place. The next place is tried."""
    return with_changes(history, place=history.place + 1, waits_because=reason)


def all_deleted(history: FleetHistory) -> FleetHistory:
    """Return the history after EC2 was asked to delete all earlier fleets."""
    deleted = (with_changes(fleet, deleted=True) for fleet in history.earlier_fleets)
    return with_changes(history, earlier_fleets=tuple(deleted))


def without_ended_fleets(history: FleetHistory, *, now: datetime) -> FleetHistory:
    """Return a history without the earlier fleets of which nothing can be there any more."""
    live = {life.fleet for life in history.live}
    newest = None if history.fleet_id is not None else history.job_id
    stay = tuple(
        fleet
        for fleet in history.earlier_fleets
        if not fleet.deleted or fleet.id in live or fleet.id == newest or now - fleet.left_at < KNOWN_AFTER
    )
    return history if stay == history.earlier_fleets else with_changes(history, earlier_fleets=stay)


def strays(history: FleetHistory) -> tuple[str, ...]:
    """Return the ids of the live nodes that belong to no fleet at the present place."""
    if history.nodes is None:
        return ()
    earlier = {fleet.id for fleet in history.earlier_fleets if fleet.deleted}
    return tuple(
        life.instance_id
        for life in history.live
        if life.fleet in earlier or (history.fleet_id is not None and life.fleet not in (None, history.fleet_id))
    )
