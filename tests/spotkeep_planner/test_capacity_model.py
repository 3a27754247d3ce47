"""The fit finds the law of capacity that has one, says how well it knows it, and counts only what it saw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_planner.capacity_model import (
    AGE_EDGES_S,
    BANDS,
    DROUGHT,
    RUN,
    CapacityModel,
    SeenSpell,
    Spells,
    ages_s,
    expected_rest_of_run_s,
    fit,
    spells_of,
    step_matrix,
    watch,
    watch_zone_changes,
)
from spotkeep_planner.interruption_bands import SHARE_RECLAIMED, prior_from_band
from tests.models.capacity_traces import capacity_with_known_law

HOUR_S = 3600.0


def constant(*, run_h: float, drought_h: float) -> np.ndarray:
    return np.stack([np.full(BANDS, 1 / (drought_h * HOUR_S)), np.full(BANDS, 1 / (run_h * HOUR_S))])


@given(st.lists(st.booleans(), min_size=1, max_size=80))
def test_ages_count_from_the_last_change(capacity: list[bool]) -> None:
    expected, age = [], 0.0
    for number, there in enumerate(capacity):
        age = age + 60.0 if number and there == capacity[number - 1] else 0.0
        expected.append(age)
    assert ages_s(np.array(capacity), tick_s=60.0).tolist() == expected


@given(st.lists(st.booleans(), min_size=2, max_size=200))
def test_every_tick_is_watched_once_and_every_change_is_one_ending(capacity: list[bool]) -> None:
    there = np.array(capacity)
    seen = watch(there, tick_s=600.0)
    assert seen.seen_s.sum() == pytest.approx(600.0 * (len(there) - 1))
    assert seen.endings.sum() == (there[1:] != there[:-1]).sum()
    assert seen.seen_s[RUN].sum() == pytest.approx(600.0 * there[:-1].sum())


def test_time_and_endings_fall_into_their_age_bands() -> None:
    seen = spells_of(
        [
            SeenSpell(with_capacity=True, length_s=2 * HOUR_S, ended=True),
            SeenSpell(with_capacity=False, length_s=600.0, ended=True),
            SeenSpell(with_capacity=True, length_s=30 * HOUR_S, ended=False),
        ]
    )
    assert seen.seen_s[RUN].sum() == 32 * HOUR_S
    assert seen.endings[RUN].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert seen.endings[DROUGHT].tolist() == [0, 1, 0, 0, 0, 0, 0]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 500)), min_size=2, max_size=12))
def test_a_trace_given_as_spells_is_seen_as_the_trace_is(lengths: list[tuple[bool, int]]) -> None:
    """Up to the one tick by which a probe sees an ending later."""
    alternating = [(bool(number % 2), length) for number, (_, length) in enumerate(lengths)]
    trace = np.concatenate([np.full(length, state) for state, length in alternating])
    watched = watch(trace, tick_s=60.0)
    reported = spells_of(
        SeenSpell(with_capacity=state, length_s=length * 60.0, ended=number < len(alternating) - 1)
        for number, (state, length) in enumerate(alternating)
    )
    assert reported.endings.sum() == watched.endings.sum()
    assert reported.seen_s.sum() == pytest.approx(watched.seen_s.sum() + 60.0)
    assert reported.seen_s == pytest.approx(watched.seen_s, abs=60.0 * len(lengths) + 60)


def test_the_hazards_of_capacity_with_a_law_are_found() -> None:
    trace = capacity_with_known_law(ticks=60_000, tick_s=300.0, run_h=5, drought_h=2, seed=1)
    model = fit([watch(trace.available, tick_s=300.0)], prior=prior_from_band(), worth_endings=0.5)
    middle = slice(1, 5)
    assert model.hazard_per_s[RUN, middle] * 5 * HOUR_S == pytest.approx(np.ones(4), rel=0.25)
    assert model.hazard_per_s[DROUGHT, middle] * 2 * HOUR_S == pytest.approx(np.ones(4), rel=0.25)


def test_a_prior_fades_as_more_is_seen() -> None:
    prior = prior_from_band()
    seen = Spells(endings=np.full((2, BANDS), 4000.0), seen_s=np.full((2, BANDS), 4000 * HOUR_S))
    often = prior.updated(seen, worth_endings=0.5).hazard_per_s * HOUR_S
    assert often == pytest.approx(np.ones((2, BANDS)), rel=0.05)


def test_a_prior_is_never_worth_more_than_it_saw() -> None:
    prior = prior_from_band()
    assert prior.updated(Spells.none(), worth_endings=50.0).endings.tolist() == prior.endings.tolist()


def test_caution_takes_runs_for_shorter_and_droughts_for_longer_and_vanishes_with_evidence() -> None:
    little = CapacityModel(endings=np.full((2, BANDS), 2.0), seen_s=np.full((2, BANDS), 2 * HOUR_S))
    much = CapacityModel(endings=np.full((2, BANDS), 2000.0), seen_s=np.full((2, BANDS), 2000 * HOUR_S))
    for model, least in ((little, 0.3), (much, 0.0)):
        cautious = model.cautious(0.5)
        assert (cautious[RUN] > model.hazard_per_s[RUN]).all()
        assert (cautious[DROUGHT] < model.hazard_per_s[DROUGHT]).all()
        assert abs(cautious / model.hazard_per_s - 1).min() >= least
    assert abs(much.cautious(0.5) / much.hazard_per_s - 1).max() < 0.02


def test_draws_are_seeded_and_spread_as_the_fit_leaves_open() -> None:
    model = CapacityModel(endings=np.full((2, BANDS), 4.0), seen_s=np.full((2, BANDS), 4 * HOUR_S))
    drawn = model.draws(4000, random=np.random.default_rng(7))
    assert (drawn == model.draws(4000, random=np.random.default_rng(7))).all()
    assert drawn.mean(axis=0) * HOUR_S == pytest.approx(np.ones((2, BANDS)), rel=0.05)
    assert drawn.std(axis=0) * HOUR_S == pytest.approx(np.full((2, BANDS), 0.5), rel=0.1)


@given(
    run_h=st.floats(0.05, 500), drought_h=st.floats(0.05, 500), ticks=st.integers(1, 12), tick_s=st.integers(30, 3600)
)
def test_the_chain_is_one_and_survives_as_the_hazard_says(
    run_h: float, drought_h: float, ticks: int, tick_s: int
) -> None:
    hazards = constant(run_h=run_h, drought_h=drought_h)
    chain = step_matrix(hazards, step_s=ticks * tick_s, tick_s=tick_s)
    assert chain.sum(axis=1) == pytest.approx(np.ones(2 * BANDS))
    assert (chain >= 0).all()
    one = step_matrix(hazards, step_s=tick_s, tick_s=tick_s)
    assert one[BANDS:, :BANDS].sum(axis=1) == pytest.approx(np.full(BANDS, -np.expm1(-tick_s / (run_h * HOUR_S))))


def test_the_rest_of_a_run_is_the_integral_of_its_survival() -> None:
    rest = expected_rest_of_run_s(constant(run_h=5, drought_h=1), horizons_s=(HOUR_S, 1000 * HOUR_S))
    assert rest[:, 0] == pytest.approx(np.full(BANDS, 5 * HOUR_S * -np.expm1(-1 / 5)))
    assert rest[:, 1] == pytest.approx(np.full(BANDS, 5 * HOUR_S))


def test_changes_of_zone_are_those_that_need_no_wait() -> None:
    cheap = [1, 1, 0, 0, 0, 1, 1, 0]
    dear = [0, 1, 1, 1, 0, 0, 1, 1]
    seen = watch_zone_changes(np.array([cheap, dear], dtype=bool), np.array([1.0, 2.0]), tick_s=600.0)
    assert seen.changes == 2
    assert seen.used_s == 600.0 * 7
    assert watch_zone_changes(np.ones((1, 9), dtype=bool), np.array([1.0]), tick_s=600.0).changes == 0


def test_a_worse_band_ends_runs_sooner_and_every_band_is_known_badly() -> None:
    hazards = [prior_from_band(band).hazard_per_s[RUN].mean() for band in SHARE_RECLAIMED]
    assert hazards == sorted(hazards)
    assert len(set(hazards)) == len(hazards)
    assert prior_from_band().endings.max() < 1
    assert len(AGE_EDGES_S) == BANDS - 1
