"""Puts a plan together from the known facts. It has each policy's forecast, the zones, and the interval of saves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from spotkeep_planner.capacity_model import AGE_EDGES_S, BAND_AFTER_AN_HOUR, RUN, Spells, expected_rest_of_run_s
from spotkeep_planner.errors import PlanError
from spotkeep_planner.forecast import FUTURES, Distribution, Forecast, fitted_models, forecast
from spotkeep_planner.interruption_bands import WORST_BAND, prior_from_band
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import (
    Guarded,
    OnDemand,
    Prior,
    SurvivalPolicy,
    decision_table,
    greedy,
    known_prior,
    uniform_progress,
    usual_prices,
)
from spotkeep_planner.replay import Past, Policy
from spotkeep_planner.steering import DecisionTable
from spotkeep_planner.traces import CapacityTrace, FloatArray, same_clock

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

    Saving often costs time, saving seldom loses work. Let S be the survival of runs of capacity, and d the restart.
    After it, work for an interval t and a save of c take turns. The share of capacity time that becomes durable work is

        goodput(t) = sum over k >= 1 of t S(d + k (t + c))  /  integral of S

    The advised interval is where this share is highest. For a constant hazard h and small c this is Young's
    sqrt(2 c / h). Hazards fall with age, so the interval is found on the survival itself. A run that ends with the job
    loses nothing, so survival is cut at the length of the job.

    Sources:
        Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974).
        Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006).

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


_HOUR_S = 3600.0
_LONG_RUN_S = 24 * _HOUR_S


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """The knowledge of capacity when a run is planned.

    Attributes:
        zones: The zones a run may use.
        past: The known past of the zones.
        prior: The knowledge without it.
        on_demand_price: USD per hour, or 1 where no price is known and costs are in on-demand hours.
        in_usd: True if prices are known.
        sources: The sources of all this, a sentence each.
    """

    zones: tuple[str, ...]
    past: Past
    prior: Prior
    on_demand_price: float
    in_usd: bool
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ZoneOutlook:
    """The outlook of one zone.

    Attributes:
        zone: Its name.
        spot_price: USD per hour (or on-demand hours an hour), of late.
        availability: The share of the time in which capacity was seen, or None where it was not watched.
        run_s: The expected further seconds of capacity that has been there for an hour, at most a day.
        cost: The expected cost of the job in this zone alone.
    """

    zone: str
    spot_price: float
    availability: float | None
    run_s: float
    cost: Distribution


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The moment at which a run without capacity goes on demand.

    Attributes:
        work_left_s: With so much work left.
        slack_s: The run goes on demand when the seconds to spare fall below this. 0 where waiting is right to the last
            safe moment.
    """

    work_left_s: float
    slack_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityPlan:
    """A plan.

    Attributes:
        job: The job.
        knowledge: The knowledge that it rests on.
        forecasts: The expected course of the job under each policy, that of this project first.
        zones: The outlook of each zone, the cheapest first.
        interval: The time between saves.
        thresholds: The moments at which a run that has waited an hour goes on demand.
        latest_on_demand_s: The last safe moment for on-demand, in seconds from the start, if no work is done before.
        table: The policy, as the table that steers the run.
    """

    job: PlannedJob
    knowledge: Knowledge
    forecasts: tuple[Forecast, ...]
    zones: tuple[ZoneOutlook, ...]
    interval: IntervalAdvice
    thresholds: tuple[Threshold, ...]
    latest_on_demand_s: float
    table: DecisionTable = field(repr=False)

    def as_document(self) -> dict[str, Any]:
        """Return the plan as JSON, with durations in seconds and costs in `currency`."""
        return {
            "currency": "USD" if self.knowledge.in_usd else "on-demand hours",
            "job": {
                "work_s": self.job.work_s,
                "deadline_s": self.job.deadline_s,
                "restart_s": self.job.restart_s,
                "checkpoint_interval_s": round(self.job.checkpoint_interval_s, 1),
                "checkpoint_cost_s": self.job.checkpoint_cost_s,
            },
            "knowledge": {
                "zones": list(self.knowledge.zones),
                "on_demand_price": self.knowledge.on_demand_price,
                "sources": list(self.knowledge.sources),
            },
            "forecasts": [_forecast_document(each) for each in self.forecasts],
            "zones": [
                {
                    "zone": zone.zone,
                    "spot_price": zone.spot_price,
                    "availability": zone.availability,
                    "expected_run_s": round(zone.run_s),
                    "cost": _distribution_document(zone.cost),
                }
                for zone in self.zones
            ],
            "checkpoint_interval": {
                "interval_s": round(self.interval.interval_s),
                "goodput": round(self.interval.goodput, 4),
                "lost_per_interruption_s": round(self.interval.lost_per_interruption_s),
            },
            "on_demand_below": [
                {"work_left_s": each.work_left_s, "slack_s": round(each.slack_s)} for each in self.thresholds
            ],
            "latest_on_demand_s": round(self.latest_on_demand_s),
        }


def knowledge_from_traces(
    traces: Sequence[CapacityTrace],
    *,
    on_demand_price: float | None,
    own_runs: Spells | None = None,
    band: str = WORST_BAND,
) -> Knowledge:
    """Return the knowledge that traces give. The run starts where they end.

    Args:
        traces: One a zone.
        on_demand_price: USD per hour, or None for the traces' own.
        own_runs: Runs and droughts that earlier runs have seen, if any.
        band: The published interruption band of the type, one of `interruption_bands.SHARE_RECLAIMED`.

    Raises:
        PlanError: No on-demand price is known, or spot is not cheaper.
        TraceError: The traces have no time in common.
    """
    cut = same_clock(traces)
    price = on_demand_price or next((trace.on_demand_price for trace in cut if trace.on_demand_price), None)
    if price is None:
        raise PlanError("the traces have spot prices and no on-demand price: give --on-demand-price")
    past = Past(
        available=np.stack([trace.available for trace in cut]),
        spot_price=np.stack([trace.spot_price for trace in cut]),
        tick_s=cut[0].tick_s,
        start_tick=len(cut[0]),
        first_tick_at=cut[0].start,
    )
    days = len(cut[0]) * cut[0].tick_s / 86_400
    zones = tuple(trace.zone for trace in cut)
    counted = f"{len(zones)} zones" if len(zones) > 1 else "one zone"
    source = f"{counted} watched for {days:.1f} days, to {cut[0].end:%Y-%m-%d %H:%M} UTC"
    return Knowledge(
        zones=zones,
        past=past,
        prior=_prior(own_runs, band),
        on_demand_price=price,
        in_usd=True,
        sources=(source, *_said_of(own_runs)),
    )


def knowledge_without_history(
    *,
    past: Past,
    zones: Sequence[str],
    on_demand_price: float | None,
    sources: Sequence[str],
    own_runs: Spells | None = None,
    band: str = WORST_BAND,
) -> Knowledge:
    """Return the knowledge from prices, scores, runs and the published band, where capacity was not watched.

    Args:
        past: Prices and chances now, if any.
        zones: The zones' names.
        on_demand_price: USD per hour, if known.
        sources: The sources of the past.
        own_runs: Runs and droughts that earlier runs have seen, if any.
        band: The published interruption band of the type, one of `interruption_bands.SHARE_RECLAIMED`.
    """
    in_usd = on_demand_price is not None
    if not in_usd and past.price_now is not None:
        past = Past.without_capacity(
            tick_s=past.tick_s, now=past.first_tick_at, zones=len(zones), chance_now=past.chance_now
        )
    return Knowledge(
        zones=tuple(zones),
        past=past,
        prior=_prior(own_runs, band),
        on_demand_price=on_demand_price if on_demand_price is not None else 1.0,
        in_usd=in_usd,
        sources=(*sources, f"interruption band {band} of the Spot Instance Advisor", *_said_of(own_runs)),
    )


def make_plan(
    job: PlannedJob, knowledge: Knowledge, *, compare: bool = False, save_cost_s: float = 0.0, seed: int = 0
) -> CapacityPlan:
    """Forecast a job.

    Args:
        job: The job, with the advised checkpoint interval where a save has a cost.
        knowledge: The knowledge of capacity.
        compare: True to forecast the other policies too.
        save_cost_s: The seconds for which training stands still for a save.
        seed: The same seed gives the same plan.

    Raises:
        PlanError: The deadline cannot be kept even on demand.
    """
    models = fitted_models(knowledge.past, prior=knowledge.prior)
    of_themselves = fitted_models(knowledge.past, prior=knowledge.prior, worth_endings=PRIOR_WORTH_ENDINGS)
    hazards = np.mean([model.hazard_per_s for model in of_themselves], axis=0)
    interval = advise_interval(hazards, save_cost_s=save_cost_s, restart_s=job.restart_s, work_s=job.work_s)
    if save_cost_s and not job.checkpoint_interval_s:
        job = replace(job, checkpoint_interval_s=interval.interval_s, checkpoint_cost_s=save_cost_s)
    if job.uninterrupted_s > job.deadline_s:
        raise PlanError(
            f"{job.deadline_s / _HOUR_S:.1f} h are not enough: the work, its saves and one start take "
            f"{job.uninterrupted_s / _HOUR_S:.1f} h without any interruption"
        )
    ours = SurvivalPolicy(prior=knowledge.prior)
    policies: list[Policy] = [Guarded(policy=ours)]
    if compare:
        policies += [uniform_progress(), greedy(), OnDemand()]
    forecasts = tuple(_forecast(job, policy, knowledge, past=knowledge.past, seed=seed) for policy in policies)
    table = decision_table(
        ours, job=job, past=knowledge.past, zones=knowledge.zones, on_demand_price=knowledge.on_demand_price
    )
    # The one zone that there is has been forecast.
    together = forecasts[0].cost_usd if len(models) == 1 else None
    outlooks = [
        _outlook(job, ours, knowledge, zone=zone, hazards=models[zone].hazard_per_s, cost=together, seed=seed)
        for zone in range(len(models))
    ]
    return CapacityPlan(
        job=job,
        knowledge=knowledge,
        forecasts=forecasts,
        zones=tuple(sorted(outlooks, key=lambda outlook: (outlook.cost.mean, outlook.zone))),
        interval=interval,
        thresholds=tuple(_threshold(table, work_left_s=job.work_s * share) for share in (1.0, 0.5, 0.1)),
        latest_on_demand_s=max(0.0, job.deadline_s - job.uninterrupted_s),
        table=table,
    )


def _forecast(
    job: PlannedJob, policy: Policy, knowledge: Knowledge, *, past: Past, futures: int = FUTURES, seed: int
) -> Forecast:
    return forecast(
        job,
        policy,
        past=past,
        prior=knowledge.prior,
        on_demand_price=knowledge.on_demand_price,
        futures=futures,
        seed=seed,
    )


def _outlook(
    job: PlannedJob,
    ours: SurvivalPolicy,
    knowledge: Knowledge,
    *,
    zone: int,
    hazards: np.ndarray,
    cost: Distribution | None,
    seed: int,
) -> ZoneOutlook:
    past = knowledge.past
    alone = past.of_zone(zone)
    if cost is None:
        cost = _forecast(job, Guarded(policy=ours), knowledge, past=alone, futures=_FEW_FUTURES, seed=seed).cost_usd
    rest_s = expected_rest_of_run_s(hazards, horizons_s=(_LONG_RUN_S,))[BAND_AFTER_AN_HOUR, 0]
    return ZoneOutlook(
        zone=knowledge.zones[zone],
        spot_price=float(usual_prices(alone, ticks=past.start_tick, on_demand_price=knowledge.on_demand_price)[0]),
        availability=float(past.available[zone].mean()) if past.start_tick else None,
        run_s=float(rest_s),
        cost=cost,
    )


_FEW_FUTURES = 100


def _threshold(table: DecisionTable, *, work_left_s: float) -> Threshold:
    row = table.from_nothing_s[BAND_AFTER_AN_HOUR]
    column = min(round(work_left_s / table.work_step_s), len(row) - 1)
    return Threshold(work_left_s=work_left_s, slack_s=max(0.0, row[column]))


def _prior(own_runs: Spells | None, band: str) -> Prior:
    known = prior_from_band(band)
    return known_prior(known if own_runs is None else known.updated(own_runs, worth_endings=float(known.endings.max())))


def _said_of(own_runs: Spells | None) -> tuple[str, ...]:
    if own_runs is None or not own_runs.seen_s.any():
        return ()
    hours = own_runs.seen_s[1].sum() / _HOUR_S
    taken = int(own_runs.endings[1].sum())
    return (f"this deployment's own runs: {hours:.0f} h on spot, {taken} interruptions",)


def _forecast_document(each: Forecast) -> dict[str, Any]:
    return {
        "policy": each.policy,
        "chance_in_time": round(each.chance_in_time, 4),
        "chance_of_on_demand": round(each.chance_of_on_demand, 4),
        "cost": _distribution_document(each.cost_usd),
        "finish_s": _distribution_document(each.finish_s),
        "interruptions": _distribution_document(each.interruptions),
        "on_demand_s": _distribution_document(each.on_demand_s),
        "waiting_s": _distribution_document(each.waiting_s),
        "futures": len(each.outcomes.cost_usd),
    }


def _distribution_document(spread: Distribution) -> dict[str, float]:
    return {
        name: round(value, 4)
        for name, value in (("mean", spread.mean), ("p10", spread.p10), ("p50", spread.p50), ("p90", spread.p90))
    }
