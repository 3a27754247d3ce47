"""The last safe moment for on-demand: decided from the clock and the work left alone, whatever a policy thinks.

A choice is safe when, should it turn out as badly as it can until the next decision, on-demand capacity started then
still finishes the job in time. The rule knows no trace, no model and no price, so that no mistake in those can miss a
deadline. What it takes for granted: on-demand capacity starts when it is asked for, and within the restart time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Choice(Enum):
    """What to do until the next decision."""

    WAIT = "wait"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, kw_only=True)
class DeadlineClock:
    """Where a run stands against its deadline. All durations are in seconds.

    Attributes:
        time_left_s: Until the deadline.
        work_left_s: Work that is not done, as if nothing happened to the capacity in use.
        work_left_if_lost_s: Work that is not done if the capacity in use vanished now: what is durable counts.
        restart_s: From asking for capacity to working, the loading of a checkpoint included.
        restart_left_s: What is left of the restart of the capacity in use; 0 when it works.
        decision_interval_s: Until the next decision.
    """

    time_left_s: float
    work_left_s: float
    work_left_if_lost_s: float
    restart_s: float
    restart_left_s: float
    decision_interval_s: float


def is_safe(choice: Choice, *, using: Choice, clock: DeadlineClock, kept_until_next_decision_s: float = 0.0) -> bool:
    """Return whether a choice leaves enough time to finish on demand, should it go as badly as it can.

    Args:
        choice: What is considered.
        using: What is in use now: `Choice.WAIT` when nothing is, or when it was just taken.
        clock: Where the run stands.
        kept_until_next_decision_s: Work on spot in this interval that is sure to be durable at its end. 0, the
            default, assumes that capacity is taken at once; a replay that knows a tick to be whole may say more.

    Returns:
        True for on-demand always: nothing is safer. For waiting and spot, True when on-demand can still be started at
        the next decision.
    """
    if choice is Choice.ON_DEMAND:
        return True
    if choice is Choice.SPOT and using is Choice.SPOT:
        # Capacity that is kept may hold work that is not durable: it counts as done only where it is sure to be kept.
        left_after_s = clock.work_left_if_lost_s - kept_until_next_decision_s
    else:
        # Leaving capacity of one's own accord saves first: the work done counts.
        left_after_s = clock.work_left_s - (kept_until_next_decision_s if choice is Choice.SPOT else 0.0)
    return clock.time_left_s - clock.decision_interval_s >= clock.restart_s + max(0.0, left_after_s)


def last_safe_wait_s(clock: DeadlineClock) -> float:
    """Return how long a run without capacity may still wait before on-demand must be started. Never negative."""
    return max(0.0, clock.time_left_s - clock.restart_s - clock.work_left_if_lost_s)
