"""The guard of `steering.guard` for many windows at once, and the wrapper that puts it around any policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotkeep_planner.job import PlannedJob, running_times_s
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Policy
from spotkeep_planner.traces.capacity_trace import BoolArray


def safe(chosen: IntArray, *, observation: Observation, job: PlannedJob) -> BoolArray:
    """Return whether each choice leaves enough time for on-demand: `steering.guard.is_safe`, element by element.

    A replay knows that spot capacity that is there at the start of a tick is there to its end. Where all work is
    durable at once, that tick's work is counted.
    """
    tick_s = observation.tick_s
    on_spot = chosen >= 0
    staying = on_spot & (observation.using >= 0) & (chosen == observation.using)
    restart_left_s = np.where(staying, observation.restart_left_s, job.restart_s)
    durable_at_once = job.saves_on_notice or job.checkpoint_interval_s == 0
    kept_s = np.maximum(0.0, tick_s - restart_left_s) if durable_at_once and job.checkpoint_cost_s == 0 else 0.0
    left_s = np.where(staying, observation.work_left_if_lost_s, observation.work_left_s) - np.where(
        on_spot, kept_s, 0.0
    )
    running_s = running_times_s(np.maximum(0.0, left_s), job=job)
    # Who goes on demand while spot capacity is there saves before it leaves, which takes as long as any save.
    save_s = np.where(on_spot, job.checkpoint_cost_s, 0.0)
    in_time = observation.time_left_s - tick_s >= job.restart_s + running_s + save_s
    return np.asarray((chosen == ON_DEMAND) | in_time, dtype=np.bool_)


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A policy that the guard keeps from missing a deadline."""

    policy: Policy

    @property
    def name(self) -> str:
        """The name of the policy it guards."""
        return self.policy.name

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        """Get ready for some windows."""
        wanted = self.policy.begin(job=job, pasts=pasts, on_demand_price=on_demand_price)
        return lambda observation: _guarded(wanted(observation), observation=observation, job=job)


def _guarded(chosen: IntArray, *, observation: Observation, job: PlannedJob) -> IntArray:
    there = (chosen < 0) | observation.available[np.arange(len(chosen)), np.maximum(chosen, 0)]
    chosen = np.where(there, chosen, WAIT)
    allowed = safe(chosen, observation=observation, job=job)
    # A move that is too late to risk is no reason to give up the capacity in use.
    moving = (chosen >= 0) & (observation.using >= 0) & (chosen != observation.using)
    stays = moving & ~allowed & safe(observation.using, observation=observation, job=job)
    return np.where(allowed, chosen, np.where(stays, observation.using, ON_DEMAND))
