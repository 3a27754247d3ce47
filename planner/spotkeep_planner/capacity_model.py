"""A stochastic model of a zone's spot capacity, and its fit on the past.

Capacity alternates between runs (there is some) and droughts (there is none). The chance that a run or a drought ends
depends on its age. Most are short, and those that have lasted tend to last. So the model is an alternating renewal
process with a piecewise constant hazard by age, one for runs and one for droughts:

    hazard of age band b = (endings seen in b + n0) / (time seen in b + n0 / h0_b)

This is the mean of a Gamma distribution. It rests on n0 endings' worth of a prior hazard h0_b, and on the zone's own
past. The prior hazard comes from other zones or from published interruption bands. The distribution also shows the
uncertainty, as it is wide where little was seen (`draws`, for forecasts). The hazards can be taken to the cautious side
by a share of its standard deviation (`cautious`, for policies).

Sources:
    - Friedman, Annals of Statistics 10 (1982), on piecewise exponential survival models
    - Gelman et al., Bayesian Data Analysis, section 2.6, on Gamma-Poisson updating
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spotkeep_planner.traces import BoolArray, FloatArray

_HOUR_S = 3600.0
AGE_EDGES_S = tuple(hours * _HOUR_S for hours in (0.1, 0.35, 1.0, 3.0, 8.0, 20.0))
"""The ends of the age bands, in seconds.

The last band is open. Each end is about three times the one before, because hazards fall with age.
"""
BANDS = len(AGE_EDGES_S) + 1
BAND_AFTER_AN_HOUR = AGE_EDGES_S.index(_HOUR_S) + 1
DROUGHT, RUN = 0, 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Spells:
    """The runs and droughts that were seen, by age, which is all that a fit needs.

    Attributes:
        endings: (2, bands) how often a drought (row 0) or a run (row 1) ended at that age.
        seen_s: (2, bands) the seconds for which one of that age was watched.
    """

    endings: FloatArray
    seen_s: FloatArray

    def __add__(self, other: Spells) -> Spells:
        return Spells(endings=self.endings + other.endings, seen_s=self.seen_s + other.seen_s)

    @classmethod
    def none(cls) -> Spells:
        """Return spells of which nothing was seen."""
        return cls(endings=np.zeros((2, BANDS)), seen_s=np.zeros((2, BANDS)))


def ages_s(available: BoolArray, *, tick_s: float) -> FloatArray:
    """Return the age of the run or drought of each tick at its beginning. The first counts from the data's start.

    Args:
        available: (ticks,).
        tick_s: Seconds a tick.
    """
    ticks = np.arange(len(available))
    begins = np.concatenate([[True], available[1:] != available[:-1]])
    age_ticks = ticks - np.maximum.accumulate(np.where(begins, ticks, 0))
    return np.asarray(age_ticks * tick_s, dtype=np.float64)


def band_of(age_s: FloatArray) -> np.ndarray:
    """Return the age band of each age."""
    return np.searchsorted(AGE_EDGES_S, age_s, side="right")


def watch(available: BoolArray, *, tick_s: float) -> Spells:
    """Count the endings in a stretch of capacity.

    Args:
        available: (ticks,).
        tick_s: Seconds a tick.
    """
    if len(available) < 2:
        return Spells.none()
    cell = available[:-1] * BANDS + band_of(ages_s(available, tick_s=tick_s))[:-1]
    ended = available[1:] != available[:-1]
    return Spells(
        endings=np.bincount(cell[ended], minlength=2 * BANDS).reshape(2, BANDS).astype(np.float64),
        seen_s=np.bincount(cell, minlength=2 * BANDS).reshape(2, BANDS).astype(np.float64) * tick_s,
    )


@dataclass(frozen=True, kw_only=True)
class SeenSpell:
    """One stretch with capacity, or one of waiting for it, as a run of a deployment has seen it.

    Attributes:
        with_capacity: True if it was a stretch with capacity.
        length_s: The seconds for which it was watched, from its beginning.
        ended: True if it ended by itself, because capacity was taken, or came. A run that was done, or is still under
            way, did not see the end.
    """

    with_capacity: bool
    length_s: float
    ended: bool


def spells_of(seen: Iterable[SeenSpell]) -> Spells:
    """Return the endings and the time watched, by age, that runs have seen. This evidence improves with use."""
    edges = np.array((0.0, *AGE_EDGES_S, np.inf))
    endings, seen_s = np.zeros((2, BANDS)), np.zeros((2, BANDS))
    for spell in seen:
        row = RUN if spell.with_capacity else DROUGHT
        length_s = max(0.0, spell.length_s)
        seen_s[row] += np.clip(length_s - edges[:-1], 0.0, edges[1:] - edges[:-1])
        if spell.ended:
            endings[row, int(np.searchsorted(AGE_EDGES_S, length_s, side="right"))] += 1
    return Spells(endings=endings, seen_s=seen_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityModel:
    """Hazards by age, with how well they are known.

    Attributes:
        endings: (2, bands) the shape of the Gamma distribution of each hazard: endings seen, the prior's included.
        seen_s: (2, bands) its rate: time seen.
    """

    endings: FloatArray
    seen_s: FloatArray

    @property
    def hazard_per_s(self) -> FloatArray:
        """(2, bands) the mean hazards."""
        return self.endings / self.seen_s

    def updated(self, spells: Spells, *, worth_endings: float) -> CapacityModel:
        """Return this model as a prior for a zone that was watched for a while.

        Args:
            spells: The runs and droughts that were seen.
            worth_endings: The most endings in each band that the prior is worth.
        """
        weight = np.minimum(1.0, worth_endings / self.endings)
        return CapacityModel(
            endings=self.endings * weight + spells.endings, seen_s=self.seen_s * weight + spells.seen_s
        )

    def cautious(self, deviations: float) -> FloatArray:
        """Return (2, bands) hazards for the worse, by some standard deviations. Runs end sooner and droughts later."""
        spread = np.array([[-1.0], [1.0]]) * deviations * np.sqrt(self.endings) / self.seen_s
        return np.maximum(self.hazard_per_s * 0.1, self.hazard_per_s + spread)

    def draws(self, count: int, *, random: np.random.Generator) -> FloatArray:
        """Return (count, 2, bands) hazards that could be the true ones."""
        return random.gamma(self.endings, size=(count, *self.endings.shape)) / self.seen_s


def fit(spells: Iterable[Spells], *, prior: CapacityModel, worth_endings: float) -> CapacityModel:
    """Return the model of zones like these, from everything seen in them together, on a prior."""
    together = sum(spells, start=Spells.none())
    return prior.updated(together, worth_endings=worth_endings)


def step_matrix(hazard_per_s: FloatArray, *, step_s: float, tick_s: float) -> FloatArray:
    """Return the chain of capacity over one step, on the cells (drought, run) x age band.

    Within a band a run either ends or grows into the next band. The chance to grow is set so that a run survives the
    band exactly as often as its hazard says.

    Args:
        hazard_per_s: (2, bands).
        step_s: The step, a multiple of the tick.
        tick_s: Seconds a tick. Capacity changes at most once in it.

    Returns:
        (cells, cells) probabilities. Rows sum to 1, and a cell is state * bands + band.
    """
    edges = np.array((0.0, *AGE_EDGES_S))
    ticks_in_band = np.maximum(1.0, np.diff(edges) / tick_s)
    end = np.clip(-np.expm1(-hazard_per_s * tick_s), 1e-9, 1.0 - 1e-9)
    survive = np.exp(np.log1p(-end[:, :-1]) * ticks_in_band)
    grow = np.minimum(end[:, :-1] * survive / (1.0 - survive), 1.0 - end[:, :-1])
    chain = np.zeros((2, BANDS, 2, BANDS))
    for state in (DROUGHT, RUN):
        for band in range(BANDS):
            onward = grow[state, band] if band < BANDS - 1 else 0.0
            chain[state, band, 1 - state, 0] += end[state, band]
            chain[state, band, state, min(band + 1, BANDS - 1)] += onward
            chain[state, band, state, band] += 1.0 - end[state, band] - onward
    one_tick = chain.reshape(2 * BANDS, 2 * BANDS)
    return np.linalg.matrix_power(one_tick, max(1, round(step_s / tick_s)))


def expected_rest_of_run_s(hazard_per_s: FloatArray, *, horizons_s: Sequence[float]) -> FloatArray:
    """Return how long a run goes on from the middle of each age band, up to a horizon.

    This is the integral of its survival.

    Args:
        hazard_per_s: (2, bands).
        horizons_s: In seconds, increasing.

    Returns:
        (bands, horizons) seconds.
    """
    edges = np.array((0.0, *AGE_EDGES_S))
    middle = np.append((edges[:-1] + edges[1:]) / 2, edges[-1])
    rest = np.zeros((BANDS, len(horizons_s)))
    for number, horizon in enumerate(horizons_s):
        for band in range(BANDS):
            alive, at, end = 1.0, middle[band], middle[band] + horizon
            for later in range(band, BANDS):
                upto = end if later == BANDS - 1 else min(end, edges[later + 1])
                hazard, length = hazard_per_s[RUN, later], upto - at
                survive = np.exp(-hazard * length)
                rest[band, number] += alive * (-np.expm1(-hazard * length) / hazard)
                alive, at = alive * survive, upto
                if at >= end:
                    break
    return rest


@dataclass(frozen=True, kw_only=True)
class ZoneChanges:
    """Counts of changes of zone, for a job that stays in a zone until its capacity is taken.

    Attributes:
        changes: The number of changes to another zone without a wait.
        used_s: The seconds on spot capacity in which they happened.
    """

    changes: int
    used_s: float

    @property
    def per_s(self) -> float:
        """The rate, with a prior of one change in four hours worth half a change."""
        return (self.changes + _PRIOR_CHANGES) / (self.used_s + _PRIOR_CHANGES * 4 * _HOUR_S)


_PRIOR_CHANGES = 0.5


def watch_zone_changes(available: BoolArray, usual_price: FloatArray, *, tick_s: float) -> ZoneChanges:
    """Follow a job through several zones. It uses the cheapest zone that has capacity, until that is taken.

    Args:
        available: (zones, ticks).
        usual_price: (zones,) USD per hour.
        tick_s: Seconds a tick.
    """
    zones, ticks = available.shape
    if zones == 1 or ticks == 0:
        return ZoneChanges(changes=0, used_s=0.0)
    # For each zone and tick, the tick at which there is no capacity any more.
    none_at = np.where(available, ticks, np.arange(ticks))
    lasts_until = np.minimum.accumulate(none_at[:, ::-1], axis=1)[:, ::-1]
    some = np.flatnonzero(available.any(axis=0))
    cheapest_first = np.argsort(usual_price, kind="stable")
    changes, used, now, before = 0, 0, 0, -1
    while (place := np.searchsorted(some, now)) < len(some):
        now = int(some[place])
        zone = next(zone for zone in cheapest_first if available[zone, now])
        changes += now == before
        before = int(lasts_until[zone, now])
        used += before - now
        now = before
    return ZoneChanges(changes=changes, used_s=used * tick_s)
