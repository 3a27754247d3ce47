"""Solves a job against a capacity model.

The solution says when to be on demand, for every possible amount of work and slack.

The value of a state is the lowest expected cost to the end. A state is the work left, the slack (time left beyond the
work left), the capacity in use, and the cell of the capacity model. A step in time either does work, and the slack
stays, or does none, and the slack shrinks. So the program runs over the time left, on an array over the slack. Spending
more slack than there is has a price that no saving pays. The deadline is a hard constraint, and the guard stands behind
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from spotkeep_planner.capacity_model import BANDS, step_matrix
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.traces import FloatArray

_SECONDS_PER_HOUR = 3600.0
_LATENESS = 30.0
"""The price of lateness in on-demand hours an hour. It is dearer than any saving can be."""
CELLS = 2 * BANDS


@dataclass(frozen=True, kw_only=True, eq=False)
class Thresholds:
    """A solved policy, which is to be on demand when the slack is below a threshold.

    Attributes:
        step_s: The step of the work left, in seconds.
        from_nothing_s: (cells, steps of work) slack in seconds below which on-demand is started, with nothing in use.
        from_on_demand_s: (cells, steps of work) slack below which on-demand is kept.
        restart_usd: (steps of work, steps of slack) the cost of a restart at work on spot beyond its price, for the
            slack that it uses up. The first column is for no slack.
        expected_cost: (cells,) USD from a start with nothing in use and all the slack of the deadline.
    """

    step_s: float
    from_nothing_s: FloatArray
    from_on_demand_s: FloatArray
    restart_usd: FloatArray
    expected_cost: FloatArray


def choose_step_s(job: PlannedJob, *, tick_s: float, most_steps: int) -> float:
    """Return a step, in whole ticks, of which the work has at most so many, and the slack twice as many.

    Args:
        job: The job.
        tick_s: Seconds between decisions.
        most_steps: The most steps of work.
    """
    work_s = job.running_time_s(job.work_s)
    longest_s = max(work_s, (job.deadline_s - work_s) / 2)
    return max(1, math.ceil(longest_s / most_steps / tick_s)) * tick_s


def solve(
    job: PlannedJob,
    hazard_per_s: FloatArray,
    *,
    tick_s: float,
    step_s: float,
    spot_price: float,
    on_demand_price: float,
    changes_per_s: float = 0.0,
) -> Thresholds:
    """Return the cheapest policy under a model.

    Args:
        job: The job.
        hazard_per_s: (2, age bands) hazards of droughts and runs.
        tick_s: Seconds between decisions.
        step_s: The step of the program, a multiple of the tick.
        spot_price: USD per hour, taken to stay.
        on_demand_price: USD per hour.
        changes_per_s: The rate at which the capacity in use is taken while there is other capacity to go to. These are
            the changes of zone of a job that uses several. They cost a restart, and no wait.
    """
    chain = step_matrix(hazard_per_s, step_s=step_s, tick_s=tick_s).astype(np.float32)
    work = math.ceil(job.running_time_s(job.work_s) / step_s)
    most_slack = max(0, math.ceil((job.deadline_s - job.running_time_s(job.work_s)) / step_s))
    starting = max(1, math.ceil(job.restart_s / step_s))
    # A restart takes whole steps in the program. The gain is the share of its last step that is left for work.
    gain = np.float32(starting - job.restart_s / step_s)
    below = starting + 1
    # Columns below zero slack carry the price of lateness to the states from which lateness can still come.
    slack = np.arange(-below, most_slack + 1)
    width = len(slack)
    spot, od = (np.float32(price * step_s / _SECONDS_PER_HOUR) for price in (spot_price, on_demand_price))
    # An interruption costs half a checkpoint interval on average. A save on the notice loses nothing.
    lost = 0.0 if job.saves_on_notice else job.checkpoint_interval_s / 2 / step_s
    restart_cost, restart_spot = (price * job.restart_s / step_s for price in (od, spot))
    run = slice(BANDS, None)
    change = np.float32(-math.expm1(-changes_per_s * step_s))

    too_late = (np.maximum(0.0, -slack) * od * _LATENESS).astype(np.float32)
    late_start = (np.maximum(0.0, job.restart_s / step_s - slack) * od * _LATENESS).astype(np.float32)
    nothing = np.empty((CELLS, width), dtype=np.float32)
    at_od = np.empty_like(nothing)
    at_spot = np.empty_like(nothing)
    nothing[:] = restart_cost + late_start
    at_od[:] = too_late
    at_spot[:] = too_late
    starting_od = [at_od.copy() for _ in range(starting)]
    starting_spot = [at_spot.copy() for _ in range(starting)]
    for value in (nothing, at_od, at_spot, *starting_od, *starting_spot):
        value[:, slack >= 0] = 0.0

    # `time` is the time left, in steps. With time and slack the work left is known, so one array over the slack holds
    # all states of that moment. Each round goes one step away from the deadline, from the values one step nearer to it.
    steps = work + most_slack
    advantage_nothing = np.zeros((work + 1, CELLS, width), dtype=np.float32)
    advantage_od = np.zeros_like(advantage_nothing)
    restart_usd = np.zeros((work + 1, width), dtype=np.float32)
    positions = np.arange(width)
    for time in range(1, steps + 1):
        lost_nothing = _shifted(nothing, lost) if lost else nothing
        # Rows are cells: droughts first, then runs. Spot at work that finds a drought after the step has nothing, and
        # has lost the work since its last save.
        mixed = at_spot.copy()
        mixed[:BANDS] = lost_nothing[:BANDS]
        # In a run, the zone in use may be taken although another has capacity.
        if change:
            mixed[run] += change * (lost_nothing[run] - mixed[run])
        stacked = [nothing, mixed, at_od]
        for phase in range(starting - 1):
            interrupted = starting_spot[phase].copy()
            # A start that is interrupted has saved nothing yet, so it loses none.
            interrupted[:BANDS] = nothing[:BANDS]
            stacked += [interrupted, starting_od[phase]]
        # One product takes the expectation over the next cell for all values at once, which is faster than many.
        expected = chain @ np.concatenate(stacked, axis=1)
        parts = [expected[:, number * width : (number + 1) * width] for number in range(len(stacked))]
        e_nothing, e_spot, e_od = parts[:3]
        # A step without work leaves the work and takes a step of slack. A step with work leaves the slack.
        wait = _shifted(e_nothing, 1.0)
        stay_spot = e_spot + spot
        stay_od = e_od + od
        # The last step of a restart ends at work, with what of the step is left for it.
        first_spot = _blend(e_spot, gain) + spot
        first_od = _blend(e_od, gain) + od
        new_spot, new_od = [first_spot], [first_od]
        for phase in range(starting - 1):
            new_spot.append(_shifted(parts[3 + 2 * phase], 1.0) + spot)
            new_od.append(_shifted(parts[4 + 2 * phase], 1.0) + od)
        starting_spot, starting_od = new_spot, new_od
        start_spot, start_od = new_spot[-1], new_od[-1]

        other = wait.copy()
        other[run] = np.minimum(wait[run], start_spot[run])  # a drought has no spot to start
        work_left = time - slack
        # Of this moment, the slacks that belong to an amount of work that the job can have left.
        here = (work_left >= 0) & (work_left <= work)
        at = work_left[here], slice(None), positions[here]
        advantage_nothing[at] = (other - start_od)[:, here].T
        advantage_od[at] = (other - stay_od)[:, here].T
        nothing = np.minimum(other, start_od)
        at_od = np.minimum(other, stay_od)
        at_spot = nothing.copy()
        at_spot[run] = np.minimum(nothing[run], stay_spot[run])
        # Below zero slack there is no choice: on demand to the end, each step of lateness at its price.
        late = slack < 0
        nothing[:, late] = (work_left * od + restart_cost + late_start)[late]
        at_od[:, late] = (work_left * od + too_late)[late]
        at_spot[:, late] = nothing[:, late]
        finished = work_left <= 0
        for value in (nothing, at_od, at_spot, *starting_od, *starting_spot):
            value[:, finished] = 0.0
        # A change of zone at work costs the price of the restart and the slack that it uses up: here the second.
        beyond_its_price = (start_spot - at_spot)[run][:, here].mean(axis=0) - restart_spot
        restart_usd[work_left[here], positions[here]] = np.maximum(0.0, beyond_its_price)
    slack_s = slack * step_s
    return Thresholds(
        step_s=step_s,
        from_nothing_s=_crossing(advantage_nothing, slack_s),
        from_on_demand_s=_crossing(advantage_od, slack_s),
        restart_usd=restart_usd[:, below:].astype(np.float64),
        expected_cost=nothing[:, -1].astype(np.float64),
    )


def _shifted(value: np.ndarray, steps: float) -> np.ndarray:
    """Return the value with so much less slack."""
    whole = int(steps)
    part = np.float32(steps - whole)
    moved = (
        np.concatenate([np.repeat(value[:, :1], whole, axis=1), value[:, : value.shape[1] - whole]], axis=1)
        if whole
        else value
    )
    if not part:
        return moved
    return (1 - part) * moved + part * np.concatenate([moved[:, :1], moved[:, :-1]], axis=1)


def _blend(value: np.ndarray, gain: np.float32) -> np.ndarray:
    """Return the value after a step of which a share was work."""
    return gain * value + (1 - gain) * _shifted(value, 1.0)


def _crossing(advantage: np.ndarray, slack_s: np.ndarray) -> FloatArray:
    """Return the slack below which on-demand is cheaper. It is the last change of sign, between the steps."""
    dearer = advantage > 0
    any_dearer = dearer.any(axis=2)
    last = dearer.shape[2] - 1 - dearer[:, :, ::-1].argmax(axis=2)
    following = np.minimum(last + 1, dearer.shape[2] - 1)
    high = np.take_along_axis(advantage, last[:, :, None], axis=2)[:, :, 0].astype(np.float64)
    low = np.take_along_axis(advantage, following[:, :, None], axis=2)[:, :, 0].astype(np.float64)
    share = np.where(high > low, np.clip(high / np.where(high > low, high - low, 1.0), 0, 1), 1.0)
    step_s = slack_s[1] - slack_s[0]
    return np.where(any_dearer, slack_s[last] + share * step_s, -np.inf).T.copy()
