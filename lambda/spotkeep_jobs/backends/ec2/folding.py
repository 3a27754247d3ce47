"""Adds up old entries of a fleet's history, so that it never outgrows its item in the run table. Pure.

A fleet launches instances for as long as its run lives, and each leaves an entry and three phases. The newest are kept
as they are. The older ones become the sums that a bill, a limit or the next decision needs. The sums are exact. A
folded history gives the same bill as an unfolded one (I8).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.backends.backend import with_phases
from spotkeep_jobs.backends.ec2.attempt_view import phase_changes
from spotkeep_jobs.backends.ec2.charges import billed
from spotkeep_jobs.backends.ec2.facts import SpotPrice
from spotkeep_jobs.backends.ec2.history import (
    KNOWN_AFTER,
    EarlierInstances,
    FleetHistory,
    InstanceLife,
    Recorded,
    futile_instances,
    time_trained,
    time_worked,
)
from spotkeep_jobs.record.fields import with_changes

KEPT_INSTANCES: Final = 50
"""The number of the newest instances that stay listed."""
KEPT_PHASES: Final = 3 * KEPT_INSTANCES
"""The number of phases that stay listed. An instance loads, trains, and is lost."""
MOST_INSTANCES: Final = 120
"""The most instances that are ever listed, even where EC2 did not give a price.

The bill then says that it is not known."""


def to_fold(history: FleetHistory, *, now: datetime) -> tuple[InstanceLife, ...]:
    """Return the instances that need not be listed any more, oldest first.

    Args:
        history: The history after EC2's newest answer.
        now: The time.
    """
    spare = history.lives[:-KEPT_INSTANCES]
    at_once = len(history.lives) > MOST_INSTANCES
    return tuple(
        life
        for life in spare
        if life.recorded is Recorded.ENDED and life.ended_at is not None and (at_once or _is_settled(life, now))
    )


def must_fold(history: FleetHistory) -> bool:
    """Return True if a history lists more instances than it may, even if prices of them are unknown."""
    return len(history.lives) > MOST_INSTANCES


def _is_settled(life: InstanceLife, now: datetime) -> bool:
    """Return True if EC2's answers cannot change the record of an instance any more, in its end or its existence."""
    return max(life.ended_at or now, life.launched_at) <= now - KNOWN_AFTER


def folded(
    history: FleetHistory, lives: Sequence[InstanceLife], *, spot_prices: Sequence[SpotPrice], now: datetime
) -> FleetHistory:
    """Return a history in which some instances, and the phases of long ago, are sums.

    Args:
        history: The history after EC2's newest answer.
        lives: Its instances to add up and list no more, as `to_fold` returns them.
        spot_prices: The prices of their types and zones, from before the first launch. None where they are not known.
        now: The time.
    """
    if lives:
        gone = {life.instance_id for life in lives}
        history = with_changes(
            history,
            lives=tuple(life for life in history.lives if life.instance_id not in gone),
            earlier_instances=_with_instances(history.earlier_instances, lives, spot_prices, now),
        )
    spare = history.transitions[:-KEPT_PHASES]
    if spare:
        listed = history.transitions[len(spare) :]
        earlier = phase_changes(history.transitions)[: len(spare)]
        history = with_changes(
            history,
            transitions=listed,
            earlier_phases=with_phases(history.earlier_phases, earlier, until=listed[0].at),
        )
    return history


def _with_instances(
    earlier: EarlierInstances | None,
    lives: Sequence[InstanceLife],
    spot_prices: Sequence[SpotPrice],
    now: datetime,
) -> EarlierInstances:
    first, last = lives[0].launched_at, max(life.launched_at for life in lives)
    ended = max(life.ended_at or now for life in lives)
    return EarlierInstances(
        count=len(lives) + (0 if earlier is None else earlier.count),
        first_launched_at=first if earlier is None else min(first, earlier.first_launched_at),
        last_launched_at=last if earlier is None else max(last, earlier.last_launched_at),
        last_ended_at=ended if earlier is None else max(ended, earlier.last_ended_at),
        worked=time_worked(lives, until=now) + (timedelta(0) if earlier is None else earlier.worked),
        trained=time_trained(lives, now=now) + (timedelta(0) if earlier is None else earlier.trained),
        futile=futile_instances(lives, before=0 if earlier is None else earlier.futile),
        billed=billed(lives, spot_prices=spot_prices, until=now, earlier=None if earlier is None else earlier.billed),
    )
