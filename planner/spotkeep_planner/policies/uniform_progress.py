"""Uniform Progress: keep the work done in step with the time gone, on spot where there is some, else on demand.

Source: Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica: Can't Be Late: Optimizing Spot Instance Savings under
Deadlines. NSDI '24. https://www.usenix.org/conference/nsdi24/presentation/wu-zhanghao

Its rules, with C(0) the work, C(t) the work left, R(0) the deadline, d the restart:

- Exploitation: spot whenever there is some.
- Taking a risk: without spot, wait as long as C(0) - C(t) >= t C(0) / R(0); fall behind, and take on-demand.
- Hysteresis: stay on demand until the work done is ahead by the two restarts that leaving and coming back would cost,
  (t + 2d) C(0) / R(0).
- Safety net: from the moment when work and two restarts fill the time left, on-demand to the end; a spot instance at
  work is kept until it is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies.baselines import spot_else
from spotkeep_planner.policies.guarding import Guarded
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Policy

_NO_RESTART_LEFT_S = 1e-3


@dataclass(frozen=True)
class UniformProgress:
    """The rules of the paper; see the module."""

    name: str = "uniform-progress"

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:  # noqa: ARG002
        """Get ready for some windows."""
        return partial(_decide, job)


def _decide(job: PlannedJob, observation: Observation) -> IntArray:
    using, tick_s = observation.using, observation.tick_s
    work_left_s = observation.work_left_if_lost_s
    done_s = job.work_s - work_left_s
    elapsed_s = job.deadline_s - observation.time_left_s
    pace = job.work_s / job.deadline_s
    has_spot = observation.available.any(axis=1)
    behind = done_s < elapsed_s * pace
    spot = spot_else(observation, otherwise=np.where(behind, ON_DEMAND, WAIT))
    far_ahead = done_s > (elapsed_s + 2 * job.restart_s) * pace
    chosen = np.where((using == ON_DEMAND) & (~has_spot | ~far_ahead), ON_DEMAND, spot)

    time_left_s = np.floor(observation.time_left_s / tick_s) * tick_s
    two_restarts = np.ceil((work_left_s + 2 * job.restart_s) / tick_s) * tick_s >= time_left_s
    chosen = np.where(two_restarts & (using < 0), ON_DEMAND, chosen)
    one_restart = np.ceil((work_left_s + job.restart_s) / tick_s) * tick_s >= time_left_s
    at_work = (using >= 0) & (observation.restart_left_s < _NO_RESTART_LEFT_S)
    return np.where(one_restart, np.where(at_work, using, ON_DEMAND), chosen)


def uniform_progress() -> Policy:
    """Return Uniform Progress, guarded: its own safety net rounds to ticks, the guard holds to the second."""
    return Guarded(policy=UniformProgress())
