"""The policies that choose capacity for a run, behind the interface of `spotkeep_planner.replay`.

Two policies need no model. One is on demand from start to end, the other uses spot whenever there is some. A wrapper
puts the guard of `steering` around any policy, for many windows at once.

Uniform Progress keeps the work done in step with the time gone. Source: Wu, Chiang, Mao, Yang, Friedman, Shenker,
Stoica, Can't Be Late: Optimizing Spot Instance Savings under Deadlines. NSDI '24.
https://www.usenix.org/conference/nsdi24/presentation/wu-zhanghao

Its rules, with C(0) the work, C(t) the work left, R(0) the deadline, d the restart:

- Exploitation means to use spot whenever there is some.
- Taking a risk means to wait without spot as long as C(0) - C(t) >= t C(0) / R(0). A run that falls behind takes
  on-demand.
- Hysteresis means to stay on demand until the work done is ahead by two restarts, (t + 2d) C(0) / R(0). Leaving and
  coming back would cost these.
- The safety net is on-demand to the end, from the moment when work and two restarts fill the time left. A spot instance
  at work is kept until it is taken.

The policy of this project goes on demand when the slack falls below its worth in the capacity model. For each window it
fits a capacity model on the past (`capacity_model`) and solves the job against it (`solver`). Then it compares the
slack with a threshold, which depends on the age of the run or drought of capacity and on the work left. It takes spot
where there is some and the threshold allows, and leaves on-demand for it. In a drought the run waits until the
threshold is reached.

It sees several zones as one source of capacity, which is there when any zone has some. Among the zones with capacity it
goes where an hour of work is cheapest over the time that capacity will probably last there. The restart on the way in
counts. It leaves a zone for a cheaper one only when that pays for the restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import numpy as np

from spotkeep_planner import capacity_model
from spotkeep_planner.capacity_model import BANDS, CapacityModel
from spotkeep_planner.interruption_bands import prior_from_band
from spotkeep_planner.job import PlannedJob, running_times_s
from spotkeep_planner.replay import ON_DEMAND, WAIT, Decide, IntArray, Observation, Past, Policy
from spotkeep_planner.solver import Thresholds, choose_step_s, solve
from spotkeep_planner.steering import DecisionTable
from spotkeep_planner.traces import BoolArray, FloatArray


@dataclass(frozen=True)
class OnDemand:
    """On-demand capacity from the start to the end. It shows the cost of a run without spot."""

    name: str = "on-demand"

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:  # noqa: ARG002
        """Get ready for some windows."""
        return lambda observation: np.full_like(observation.using, ON_DEMAND)


@dataclass(frozen=True)
class Greedy:
    """Spot in the cheapest zone that has some, else waiting. Alone it misses deadlines (see `greedy`)."""

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
    """Return greedy spot with a safety net, which is on-demand from the last safe moment on."""
    return Guarded(policy=Greedy())


def safe(chosen: IntArray, *, observation: Observation, job: PlannedJob) -> BoolArray:
    """Return True where a choice leaves enough time for on-demand, as `steering.is_safe` does, element by element.

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


_NO_RESTART_LEFT_S = 1e-3


@dataclass(frozen=True)
class UniformProgress:
    """The rules of the paper. See the module."""

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
    """Return Uniform Progress with the guard.

    Its own safety net rounds to ticks, and the guard holds to the second.
    """
    return Guarded(policy=UniformProgress())


_HOUR_S = 3600.0
WORTH_ENDINGS = 10.0
"""The number of endings in each age band that the prior is worth beside a zone's own past."""
_MOST_STEPS = 450
"""The most steps of work in the program that is solved."""
HORIZONS_S = tuple(hours * _HOUR_S for hours in (0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 36, 48, 72, 120, 240))


Prior = Callable[[datetime], CapacityModel]
"""The knowledge before a zone's own past is read. It gives the model from the events before a moment."""


def known_prior(model: CapacityModel | None = None) -> Prior:
    """Return a prior that does not change.

    Args:
        model: The model. By default, the model of the worst published interruption band.
    """
    known = prior_from_band() if model is None else model
    return lambda _moment: known


@dataclass(frozen=True, kw_only=True)
class SurvivalPolicy:
    """The policy. See the module.

    Attributes:
        prior: The knowledge before a zone's own past.
        caution: Standard deviations of the fit by which the hazards are taken for worse.
        refit_growth: The past is fitted again when it has grown by this share, early often and later seldom.
        name: The name in tables.
    """

    prior: Prior = field(default_factory=known_prior)
    caution: float = 0.5
    refit_growth: float = 0.1
    name: str = "spotkeep"

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        """Get ready for some windows."""
        plans: dict[int, ZonePlan] = {}
        numbers = []
        for past in pasts:
            ticks = self._fitted_ticks(past)
            if ticks not in plans:
                plans[ticks] = self.plan(job, past, ticks=ticks, on_demand_price=on_demand_price)
            numbers.append(ticks)
        order = {ticks: number for number, ticks in enumerate(plans)}
        return _Decider(
            job=job,
            plans=list(plans.values()),
            plan_of=np.array([order[ticks] for ticks in numbers]),
            ages=_Ages.at_the_end_of(pasts),
            any_age=_Ages.at_the_end_of(pasts, together=True),
        ).decide

    def _fitted_ticks(self, past: Past) -> int:
        """Return how many ticks of the past are fitted.

        The number is the last of a growing series, so that windows share fits.
        """
        ticks = _FIRST_FIT_S / past.tick_s
        if past.start_tick < ticks:
            return 0
        grown = np.floor(np.log(past.start_tick / ticks) / np.log1p(self.refit_growth))
        return int(min(past.start_tick, ticks * (1 + self.refit_growth) ** grown))

    def plan(self, job: PlannedJob, past: Past, *, ticks: int, on_demand_price: float) -> ZonePlan:
        """Fit and solve.

        Args:
            job: The job.
            past: The known past.
            ticks: The number of its ticks that are fitted.
            on_demand_price: USD per hour.
        """
        available = past.available[:, :ticks]
        prior = self.prior(past.moment(ticks))
        zones = [
            prior.updated(capacity_model.watch(zone, tick_s=past.tick_s), worth_endings=WORTH_ENDINGS).cautious(
                self.caution
            )
            for zone in available
        ]
        together = prior.updated(
            capacity_model.watch(any_of(available), tick_s=past.tick_s), worth_endings=WORTH_ENDINGS
        )
        usual = usual_prices(past, ticks=ticks, on_demand_price=on_demand_price)
        spot_price = float(usual[0]) if len(usual) == 1 else _price_of_any(available, usual)
        thresholds = solve(
            job,
            together.cautious(self.caution),
            tick_s=past.tick_s,
            step_s=choose_step_s(job, tick_s=past.tick_s, most_steps=_MOST_STEPS),
            spot_price=spot_price,
            on_demand_price=on_demand_price,
            changes_per_s=0.0
            if len(zones) == 1
            else capacity_model.watch_zone_changes(available, usual, tick_s=past.tick_s).per_s,
        )
        return ZonePlan(
            thresholds=thresholds,
            lasting_s=np.stack(
                [capacity_model.expected_rest_of_run_s(hazard, horizons_s=HORIZONS_S) for hazard in zones]
            ),
        )


_FIRST_FIT_S = 6 * _HOUR_S
_RECENT_S = 48 * _HOUR_S
UNKNOWN_PRICE = 0.4
"""Spot in on-demand prices where no price was ever seen, between the V100's 0.3 and 0.6."""


def usual_prices(past: Past, *, ticks: int, on_demand_price: float) -> FloatArray:
    """Return (zones,) the usual price of spot, USD per hour, of late, or now, or a guess where nothing is known."""
    if ticks:
        recent = slice(max(0, ticks - round(_RECENT_S / past.tick_s)), ticks)
        return np.asarray(np.median(past.spot_price[:, recent], axis=1), dtype=np.float64)
    if past.price_now is not None:
        return past.price_now
    return np.full(len(past.available), UNKNOWN_PRICE * on_demand_price)


def survival(*, prior: Prior | None = None) -> Policy:
    """Return the policy with the guard around it."""
    return Guarded(policy=SurvivalPolicy() if prior is None else SurvivalPolicy(prior=prior))


def any_of(available: BoolArray) -> BoolArray:
    """Return (ticks,) whether any of the zones has capacity."""
    return np.asarray(available.any(axis=0), dtype=np.bool_)


def _price_of_any(available: BoolArray, usual: FloatArray) -> float:
    """Return the average price of capacity, always taken in the cheapest zone that has some."""
    some = available.any(axis=0)
    if not some.any():
        return float(usual.mean())
    return float(np.where(available, usual[:, None], np.inf).min(axis=0)[some].mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class ZonePlan:
    """The solution for some past.

    Attributes:
        thresholds: For capacity in any of the zones.
        lasting_s: (zones, age bands, horizons) the rest of a run's time, within a horizon.
    """

    thresholds: Thresholds
    lasting_s: FloatArray


class _Ages:
    """The time for which capacity has been there, or not there, in each window and zone."""

    def __init__(self, *, state: BoolArray, age_s: FloatArray, known: BoolArray) -> None:
        self._state = state
        self.age_s = age_s
        self._known = known

    @classmethod
    def at_the_end_of(cls, pasts: Sequence[Past], *, together: bool = False) -> _Ages:
        zones = 1 if together else len(pasts[0].available)
        state = np.zeros((len(pasts), zones), dtype=np.bool_)
        age_s = np.zeros((len(pasts), zones))
        known = np.zeros((len(pasts), zones), dtype=np.bool_)
        for number, past in enumerate(pasts):
            if not past.start_tick:
                continue
            tail = past.available[:, -_LONGEST_AGE_TICKS:]
            for zone, there in enumerate([any_of(tail)] if together else tail):
                state[number, zone] = there[-1]
                age_s[number, zone] = capacity_model.ages_s(there, tick_s=past.tick_s)[-1]
                known[number, zone] = True
        return cls(state=state, age_s=age_s, known=known)

    def pass_tick(self, available: BoolArray, *, tick_s: float) -> None:
        same = self._known & (available == self._state)
        self.age_s = np.where(same, self.age_s + tick_s, 0.0)
        self._state = available.copy()
        self._known[:] = True


_LONGEST_AGE_TICKS = 4_000


class _Decider:
    def __init__(
        self, *, job: PlannedJob, plans: Sequence[ZonePlan], plan_of: IntArray, ages: _Ages, any_age: _Ages
    ) -> None:
        self._job = job
        self._plan_of = plan_of
        self._ages = ages
        self._any_age = any_age
        self._step_s = plans[0].thresholds.step_s
        self._from_nothing_s = np.stack([plan.thresholds.from_nothing_s for plan in plans])
        self._from_on_demand_s = np.stack([plan.thresholds.from_on_demand_s for plan in plans])
        self._restart_usd = np.stack([plan.thresholds.restart_usd for plan in plans])
        self._lasting_s = np.stack([plan.lasting_s for plan in plans])

    def decide(self, observation: Observation) -> IntArray:
        tick_s = observation.tick_s
        some = np.asarray(observation.available.any(axis=1), dtype=np.bool_)
        self._ages.pass_tick(observation.available, tick_s=tick_s)
        self._any_age.pass_tick(some[:, None], tick_s=tick_s)
        on_demand = observation.using == ON_DEMAND
        cell = some * BANDS + capacity_model.band_of(self._any_age.age_s[:, 0])
        left_s = running_times_s(observation.work_left_s, job=self._job)
        at = np.clip(np.rint(left_s / self._step_s), 0, self._from_nothing_s.shape[2] - 1).astype(np.int64)
        slack_s = observation.time_left_s - left_s - np.where(on_demand, observation.restart_left_s, 0.0)
        threshold_s = np.where(
            on_demand,
            self._from_on_demand_s[self._plan_of, cell, at],
            self._from_nothing_s[self._plan_of, cell, at],
        )
        spot = (
            self._best_zone(observation, work_step=at, slack_s=slack_s)
            if observation.available.shape[1] > 1
            else np.zeros_like(observation.using)
        )
        otherwise = np.where(some, spot, WAIT)
        return np.where((slack_s < threshold_s) & (observation.using < 0), ON_DEMAND, otherwise)

    def _best_zone(self, observation: Observation, *, work_step: IntArray, slack_s: FloatArray) -> IntArray:
        """Return the zone where an hour of work costs least for as long as capacity lasts there. Moving must pay.

        A restart costs its price, and the slack it uses up.
        """
        windows, zones = observation.available.shape
        each = np.arange(windows)
        slack_step = np.clip(slack_s / self._step_s, 0, self._restart_usd.shape[2] - 1).astype(np.int64)
        slack_usd = self._restart_usd[self._plan_of, work_step, slack_step]
        restart_h = self._job.restart_s / _HOUR_S

        left_s = np.maximum(observation.work_left_s, observation.tick_s)
        horizon = np.minimum(np.searchsorted(HORIZONS_S, left_s), len(HORIZONS_S) - 1)
        band = capacity_model.band_of(self._ages.age_s)
        lasting_s = self._lasting_s[self._plan_of[:, None], np.arange(zones), band, horizon[:, None]]
        lasting_h = np.minimum(lasting_s, left_s[:, None]) / _HOUR_S
        useful_h = np.maximum(lasting_h - restart_h, 0.1 * lasting_h)
        hourly = (observation.spot_price * lasting_h + slack_usd[:, None]) / useful_h
        best = np.where(observation.available, hourly, np.inf).argmin(axis=1)

        here = np.maximum(observation.using, 0)
        # For how long both are expected to be there: as if each ended at a constant rate.
        together_h = 1.0 / (1.0 / lasting_h[each, here] + 1.0 / lasting_h[each, best])
        price = observation.spot_price
        moving_usd = price[each, best] * (together_h + restart_h) + slack_usd
        moving_pays = moving_usd < price[each, here] * together_h
        return np.where((observation.using >= 0) & ~moving_pays, here, best).astype(np.int64)


def decision_table(
    policy: SurvivalPolicy,
    *,
    job: PlannedJob,
    past: Past,
    zones: Sequence[str],
    on_demand_price: float,
    most_columns: int = 60,
) -> DecisionTable:
    """Return the policy for one run, as the table that steers it.

    Args:
        policy: The policy.
        job: The job.
        past: The known past when it starts. All of it is fitted.
        zones: The zones' names.
        on_demand_price: USD per hour.
        most_columns: The most steps of work, and of slack, in the table.
    """
    plan = policy.plan(job, past, ticks=past.start_tick, on_demand_price=on_demand_price)
    solved = plan.thresholds
    work_steps = solved.from_nothing_s.shape[1]
    every = max(1, -(-work_steps // most_columns))
    slack_every = max(1, -(-solved.restart_usd.shape[1] // _SLACK_COLUMNS))
    several = len(zones) > 1
    return DecisionTable(
        age_edges_s=capacity_model.AGE_EDGES_S,
        work_step_s=solved.step_s * every,
        from_nothing_s=_tuples(solved.from_nothing_s[:, ::every]),
        from_on_demand_s=_tuples(solved.from_on_demand_s[:, ::every]),
        zones=tuple(zones),
        horizons_s=HORIZONS_S,
        lasting_s=tuple(_tuples(zone) for zone in plan.lasting_s),
        slack_step_s=solved.step_s * slack_every,
        restart_usd=_tuples(solved.restart_usd[::every, ::slack_every]) if several else ((0.0,),),
    )


_SLACK_COLUMNS = 24


def _tuples(rows: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())
