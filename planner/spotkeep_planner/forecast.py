"""Distributions of cost, end and interruptions of a run, from the fitted model.

The policy that would steer the run is played on many imagined futures. Each future draws its own hazards from the range
that the fit leaves open. A frailty comes on top, as days differ by more than chance. Prices go on as they went in some
stretch of the past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotkeep_planner import capacity_model
from spotkeep_planner.capacity_model import BAND_AFTER_AN_HOUR, RUN, CapacityModel
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import WORTH_ENDINGS, Prior, usual_prices
from spotkeep_planner.replay import IntArray, Outcomes, Past, Policy, replay
from spotkeep_planner.traces import BoolArray, FloatArray

FUTURES = 400
COURSE_TIMES = 120
"""The number of times at which the course of the futures is kept for a picture."""
FRAILTY = 0.15
"""Standard deviation of the logarithm by which a future's hazards differ from the fitted ones.

Days differ by more than the fit leaves open. `make bench-policy` measures whether intervals hold with it.
"""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The spread of a figure over the futures.

    Attributes:
        mean: Its mean.
        p10: One in ten is below. With `p90` it bounds the 80% interval.
        p50: The middle.
        p90: One in ten is above.
    """

    mean: float
    p10: float
    p50: float
    p90: float

    @classmethod
    def of(cls, values: FloatArray | IntArray) -> Distribution:
        """Return the distribution of some values."""
        p10, p50, p90 = np.percentile(values, [10, 50, 90])
        return cls(mean=float(values.mean()), p10=float(p10), p50=float(p50), p90=float(p90))


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """The expected course of a job under a policy.

    Attributes:
        policy: Its name.
        cost_usd: The cost of all capacity, in US dollars.
        finish_s: Seconds from the start to the end of the work.
        interruptions: The number of times that spot is taken.
        on_demand_s: Seconds on on-demand capacity.
        waiting_s: Seconds without capacity.
        chance_in_time: The share of futures in which the deadline is kept.
        chance_of_on_demand: The share in which on-demand is used at all.
        outcomes: Every future, for plots.
    """

    policy: str
    cost_usd: Distribution
    finish_s: Distribution
    interruptions: Distribution
    on_demand_s: Distribution
    waiting_s: Distribution
    chance_in_time: float
    chance_of_on_demand: float
    outcomes: Outcomes


class ImaginedWindows:
    """Futures that could follow a past.

    Args:
        past: The known past.
        models: One a zone.
        count: The number of futures.
        ticks: The length of each future, in ticks.
        on_demand_price: USD per hour.
        seed: The seed of the draws. The same seed gives the same futures.
        frailty: See `FRAILTY`.
    """

    def __init__(
        self,
        past: Past,
        *,
        models: Sequence[CapacityModel],
        count: int,
        ticks: int,
        on_demand_price: float,
        seed: int,
        frailty: float,
    ) -> None:
        self.tick_s = past.tick_s
        self.on_demand_price = on_demand_price
        self._past = past
        self._count = count
        random = np.random.default_rng(seed)
        self._available = np.stack(
            [
                _imagine(model, past, zone=zone, count=count, ticks=ticks, frailty=frailty, random=random)
                for zone, model in enumerate(models)
            ],
            axis=1,
        )
        self._spot_price = _imagine_prices(
            past, count=count, ticks=ticks, on_demand_price=on_demand_price, random=random
        )

    def __len__(self) -> int:
        return self._count

    def ticks_for(self, job: PlannedJob) -> int:
        """Return how many decisions there are until the deadline."""
        return math.ceil(job.deadline_s / self.tick_s)

    def at(self, tick: int) -> tuple[BoolArray, FloatArray]:
        """Return capacity and USD per hour in a tick, each (windows, zones)."""
        return self._available[:, :, tick], self._spot_price[:, :, tick]

    def pasts(self) -> tuple[Past, ...]:
        """Return the known past before the futures begin, the same for each."""
        return (self._past,) * self._count


def forecast(
    job: PlannedJob,
    policy: Policy,
    *,
    past: Past,
    prior: Prior,
    on_demand_price: float,
    futures: int = FUTURES,
    seed: int = 0,
    frailty: float = FRAILTY,
) -> Forecast:
    """Return the expected course, under a policy, of a job that starts where the past ends.

    Args:
        job: The job.
        policy: The policy that would steer it.
        past: The known past of the zones.
        prior: The knowledge without it.
        on_demand_price: USD per hour.
        futures: The number of futures to imagine.
        seed: The same seed gives the same forecast.
        frailty: See `FRAILTY`.
    """
    capacity = ImaginedWindows(
        past,
        models=fitted_models(past, prior=prior),
        count=futures,
        ticks=math.ceil(job.deadline_s / past.tick_s),
        on_demand_price=on_demand_price,
        seed=seed,
        frailty=frailty,
    )
    return summarize(policy.name, replay(job, capacity, policy, times=COURSE_TIMES))


def summarize(policy: str, outcomes: Outcomes) -> Forecast:
    """Return the forecast that some outcomes make."""
    return Forecast(
        policy=policy,
        cost_usd=Distribution.of(outcomes.cost_usd),
        finish_s=Distribution.of(outcomes.finish_s),
        interruptions=Distribution.of(outcomes.interruptions),
        on_demand_s=Distribution.of(outcomes.on_demand_s),
        waiting_s=Distribution.of(outcomes.waiting_s),
        chance_in_time=float(1.0 - outcomes.missed.mean()),
        chance_of_on_demand=float(outcomes.used_on_demand.mean()),
        outcomes=outcomes,
    )


def fitted_models(past: Past, *, prior: Prior, worth_endings: float = WORTH_ENDINGS) -> list[CapacityModel]:
    """Return a capacity model for each zone, fitted on all of its past and on a prior.

    Args:
        past: The known past.
        prior: The knowledge without it.
        worth_endings: The number of endings in each age band that the prior is worth.
    """
    known = prior(past.moment(past.start_tick))
    return [
        known.updated(capacity_model.watch(zone, tick_s=past.tick_s), worth_endings=worth_endings)
        for zone in past.available
    ]


def _imagine(
    model: CapacityModel,
    past: Past,
    *,
    zone: int,
    count: int,
    ticks: int,
    frailty: float,
    random: np.random.Generator,
) -> BoolArray:
    hazards = model.draws(count, random=random)
    hazards *= np.exp(frailty * random.standard_normal((count, 2, 1)) - frailty**2 / 2)
    each = np.arange(count)
    tick_s, before = past.tick_s, past.available[zone]
    ends = -np.expm1(-hazards * tick_s)
    if len(before):
        state = np.full(count, before[-1])
        age_s = np.full(count, capacity_model.ages_s(before, tick_s=tick_s)[-1])
    else:
        state = random.random(count) < _chance_now(model, past, zone=zone)
        age_s = np.zeros(count)
    available = np.empty((count, ticks), dtype=np.bool_)
    chance = random.random((ticks, count), dtype=np.float32)
    for tick in range(ticks):
        flips = chance[tick] < ends[each, np.where(state, RUN, 0), capacity_model.band_of(age_s)]
        state = state ^ flips
        age_s = np.where(flips, 0.0, age_s + tick_s)
        available[:, tick] = state
    return available


def _chance_now(model: CapacityModel, past: Past, *, zone: int) -> float:
    """Return the chance of capacity at the start of a future of which nothing was seen."""
    if past.chance_now is not None and not np.isnan(past.chance_now[zone]):
        return float(past.chance_now[zone])
    by_an_hour = model.hazard_per_s[:, BAND_AFTER_AN_HOUR]
    return float(by_an_hour[0] / by_an_hour.sum())


def _imagine_prices(
    past: Past, *, count: int, ticks: int, on_demand_price: float, random: np.random.Generator
) -> FloatArray:
    zones = len(past.spot_price)
    if not past.start_tick:
        usual = usual_prices(past, ticks=0, on_demand_price=on_demand_price)
        return np.broadcast_to(usual[None, :, None], (count, zones, ticks)).copy()
    begins = random.integers(0, past.start_tick, size=count)
    at = np.minimum(begins[:, None] + np.arange(ticks), past.start_tick - 1)
    moved = past.spot_price[:, at] / past.spot_price[:, begins][:, :, None]
    prices = past.spot_price[:, -1][:, None, None] * moved
    return np.minimum(prices, on_demand_price).transpose(1, 0, 2)
