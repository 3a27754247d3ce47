"""The advised time between two saves, from the cost of a save and the losses of capacity.

Saving often costs time, saving seldom loses work. Let S be the survival of runs of capacity, and d the restart. After
it, work for an interval t and a save of c take turns. The share of capacity time that becomes durable work is

    goodput(t) = sum over k >= 1 of t S(d + k (t + c))  /  integral of S

The advised interval is where this share is highest. For a constant hazard h and small c this is Young's sqrt(2 c / h).
Hazards fall with age, so the interval is found on the survival itself. A run that ends with the job loses nothing, so
survival is cut at the length of the job.

Sources: Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974). Daly, A higher order
estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from spotkeep_planner.capacity_model import AGE_EDGES_S, RUN
from spotkeep_planner.errors import PlanError
from spotkeep_planner.traces import FloatArray

SHORTEST_S = 30.0
LONGEST_S = 6 * 3600.0
INTERVALS_S: FloatArray = np.geomspace(SHORTEST_S, LONGEST_S, 80)
PRIOR_WORTH_ENDINGS = 1.0
"""The worth of other zones to the advice, in endings. It is little, as this zone's own hazards matter most."""
_AGES = 4000


@dataclass(frozen=True, kw_only=True)
class IntervalAdvice:
    """The advised interval.

    Attributes:
        interval_s: Work between two saves.
        goodput: The share of spot time that is expected to become durable work.
        lost_per_interruption_s: Work that an interruption without notice is expected to cost.
    """

    interval_s: float
    goodput: float
    lost_per_interruption_s: float


def advise_interval(hazard_per_s: FloatArray, *, save_cost_s: float, restart_s: float, work_s: float) -> IntervalAdvice:
    """Return the interval with the highest expected goodput.

    Args:
        hazard_per_s: (2, age bands), from a capacity model.
        save_cost_s: The seconds for which training stands still for a save.
        restart_s: From asking for capacity to working.
        work_s: The length of the job.

    Raises:
        PlanError: A duration is negative, or there is no work.
    """
    if save_cost_s < 0 or restart_s < 0 or work_s <= 0:
        raise PlanError(
            f"a save of {save_cost_s:g} s, a restart of {restart_s:g} s and {work_s:g} s of work: "
            "durations are 0 or more, and there must be work"
        )
    goodputs = expected_goodput(hazard_per_s, INTERVALS_S, save_cost_s=save_cost_s, restart_s=restart_s, work_s=work_s)
    best = int(goodputs.argmax())
    interval_s = float(INTERVALS_S[best])
    return IntervalAdvice(
        interval_s=interval_s, goodput=float(goodputs[best]), lost_per_interruption_s=min(interval_s, work_s) / 2
    )


def expected_goodput(
    hazard_per_s: FloatArray, intervals_s: FloatArray, *, save_cost_s: float, restart_s: float, work_s: float
) -> FloatArray:
    """Return the expected goodput of each interval. See the module for the formula."""
    ages_s = np.concatenate([[0.0], np.geomspace(1.0, restart_s + work_s, _AGES)])
    surviving = _survival(hazard_per_s[RUN], ages_s)
    capacity_s = float(np.trapezoid(surviving, ages_s))
    goodput = np.empty(len(intervals_s))
    for number, interval_s in enumerate(intervals_s):
        cycle_s = interval_s + save_cost_s
        saves = restart_s + cycle_s * np.arange(1, math.floor(work_s / cycle_s) + 1)
        durable_s = interval_s * float(np.interp(saves, ages_s, surviving).sum())
        # What remains at the end of the job is durable with it.
        rest_s = work_s - len(saves) * cycle_s
        goodput[number] = (durable_s + min(rest_s, interval_s) * float(surviving[-1])) / capacity_s
    return goodput


def _survival(hazard_per_s: FloatArray, ages_s: FloatArray) -> FloatArray:
    edges = np.array((0.0, *AGE_EDGES_S, np.inf))
    in_band_s = np.clip(ages_s[:, None] - edges[:-1], 0.0, edges[1:] - edges[:-1])
    return np.asarray(np.exp(-(in_band_s * hazard_per_s).sum(axis=1)), dtype=np.float64)
