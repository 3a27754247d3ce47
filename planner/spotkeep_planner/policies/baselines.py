"""What people do without a model: on-demand from start to end, and spot whenever there is some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies.guarding import Guarded
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Policy


@dataclass(frozen=True)
class OnDemand:
    """On-demand capacity from the start to the end: what a run costs without spot."""

    name: str = "on-demand"

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:  # noqa: ARG002
        """Get ready for some windows."""
        return lambda observation: np.full_like(observation.using, ON_DEMAND)


@dataclass(frozen=True)
class Greedy:
    """Spot in the cheapest zone that has some, else waiting. Alone it misses deadlines: see `greedy`."""

    name: str = "greedy"

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:  # noqa: ARG002
        """Get ready for some windows."""
        return lambda observation: spot_else(observation, otherwise=np.full_like(observation.using, WAIT))


def spot_else(observation: Observation, *, otherwise: IntArray) -> IntArray:
    """Return the zone in use as long as it is there, else the cheapest that is, else something else."""
    price = np.where(observation.available, observation.spot_price, np.inf)
    cheapest = np.where(observation.available.any(axis=1), price.argmin(axis=1), otherwise)
    return np.where(observation.using >= 0, observation.using, cheapest)


def greedy() -> Policy:
    """Return greedy spot with a safety net: on-demand from the last safe moment on."""
    return Guarded(policy=Greedy())
