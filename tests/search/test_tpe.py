"""TPE on the trials' records: the same choices in each process, none twice, and better ones than chance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.handler import chosen_trials
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.search import Begin, SearchPlan, TrialResult, is_exhausted, next_moves
from spotkeep_jobs.sweeps.search.tpe_request import MOST_AT_ONCE, TpeRequest
from spotkeep_jobs.sweeps.space import ContinuousParameter, DiscreteParameter, Space

MIXED = {
    "lr": {"log_uniform": [1e-5, 1e-1]}, "dropout": {"uniform": [0, 0.5]}, "depth": [18, 34, 50],
    "batch": {"log_int_uniform": [8, 512]}, "even": {"range": [8, 0, -2]}, "bias": [True, False], "act": ["relu"],
}  # fmt: skip
SMALL = {"depth": [18, 34, 50], "bias": [True, False]}


def plan(parameters: Mapping[str, Any], *, trials: int = 50, seed: int = 0, goal: Any = "minimize") -> SearchPlan:
    return SearchPlan(space=Space.model_validate(parameters), search="tpe", trials=trials, seed=seed, goal=goal)


def moves(searched: SearchPlan, trials: Sequence[TrialResult], *, free: int) -> list[Begin]:
    request = TpeRequest.of(searched, trials=trials, free=free)
    # As the function gets it.
    return chosen_trials(TpeRequest.model_validate_json(request.model_dump_json()))


def running(begin: Begin) -> TrialResult:
    return TrialResult(number=begin.number, parameters=begin.parameters, state=TrialState.RUNNING, values={})


def completed(begin: Begin | TrialResult, value: float, state: TrialState = TrialState.COMPLETED) -> TrialResult:
    return TrialResult(number=begin.number, parameters=begin.parameters, state=state, values={100: value})


def searched_to_the_end(
    searched: SearchPlan, loss: Callable[[Mapping[str, Any]], float], *, parallel: int
) -> list[TrialResult]:
    trials: list[TrialResult] = []
    while begun := moves(searched, trials, free=parallel):
        trials += [completed(each, loss(each.parameters)) for each in begun]
    assert is_exhausted(searched, trials=trials)
    return trials


def some_results(searched: SearchPlan, *, count: int) -> list[TrialResult]:
    """Return trials in every state."""
    states = [TrialState.COMPLETED, TrialState.COMPLETED, TrialState.FAILED, TrialState.STOPPED, TrialState.RUNNING]
    trials: list[TrialResult] = []
    while len(trials) < count and (begun := moves(searched, trials, free=1)):
        number = begun[0].number
        trials.append(completed(begun[0], math.sin(number), states[number % 5]))
    return trials


@given(st.integers(0, 2**32 - 1), st.sampled_from([MIXED, SMALL]), st.integers(0, 18), st.integers(1, 4))
@settings(max_examples=5)
def test_many_at_once_are_those_that_come_one_by_one(seed: int, parameters: Any, count: int, free: int) -> None:
    """A launcher that dies after it has recorded some of them changes nothing; running trials count."""
    searched = plan(parameters, seed=seed)
    trials = some_results(searched, count=count)
    at_once = moves(searched, trials, free=free)
    one_by_one: list[Begin] = []
    for _ in range(free):
        one_by_one += moves(searched, [*trials, *map(running, one_by_one)], free=1)
    assert one_by_one == at_once
    assert moves(searched, trials[::-1], free=free) == at_once


@given(st.integers(0, 99))
@settings(max_examples=3)
def test_every_value_is_one_of_its_parameters_and_is_rounded(seed: int) -> None:
    searched = plan(MIXED, seed=seed)
    for trial in some_results(searched, count=15):
        assert list(trial.parameters) == list(MIXED)
        for name, parameter in searched.space.root.items():
            value = trial.parameters[name]
            if isinstance(parameter, DiscreteParameter):
                assert value in parameter.values
                assert type(value) is type(parameter.values[parameter.values.index(value)])
            else:
                assert isinstance(parameter, ContinuousParameter)
                assert parameter.rounded(float(value)) == value


@given(st.integers(0, 99), st.integers(1, 8))
@settings(max_examples=10)
def test_a_finite_space_is_used_up_and_nothing_is_tried_twice(seed: int, parallel: int) -> None:
    trials = searched_to_the_end(
        plan(SMALL, seed=seed), lambda parameters: float(parameters["depth"]), parallel=parallel
    )
    assert sorted(trial.number for trial in trials) == [1, 2, 3, 4, 5, 6]
    assert len({tuple(trial.parameters.values()) for trial in trials}) == 6


def test_a_missing_number_is_chosen_first() -> None:
    searched = plan(MIXED)
    trials = some_results(searched, count=12)
    del trials[4]
    assert [begin.number for begin in moves(searched, trials, free=3)] == [5, 13, 14]
    few = plan(MIXED, trials=13)
    assert [begin.number for begin in moves(few, trials, free=9)] == [5, 13], "no more begin than are asked for"
    assert moves(few, trials, free=0) == []


def test_one_invocation_chooses_so_many_that_it_ends_in_time() -> None:
    assert len(moves(plan(MIXED), (), free=50)) == MOST_AT_ONCE


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_it_finds_better_values_than_chance(goal: str) -> None:
    """The last third of the trials is better than as many random ones."""

    def distance(parameters: Mapping[str, Any]) -> float:
        from_best = (math.log10(float(parameters["lr"])) + 3) ** 2 + (float(parameters["dropout"]) - 0.3) ** 2
        return from_best if goal == "minimize" else -from_best

    space = {name: MIXED[name] for name in ("lr", "dropout")}
    tpe = searched_to_the_end(plan(space, trials=45, goal=goal), distance, parallel=3)
    chance = SearchPlan(space=Space.model_validate(space), search="random", trials=45)
    drawn = [distance(each.parameters) for each in next_moves(chance, trials=(), free=45) if isinstance(each, Begin)]
    last = [abs(next(iter(trial.values.values()))) for trial in tpe[30:]]
    assert statistics.median(last) < statistics.median(abs(value) for value in drawn) / 2


def test_trials_without_a_value_do_not_steer_it() -> None:
    searched = plan(MIXED)
    trials = some_results(searched, count=12)
    failed = [completed(each, math.nan, TrialState.FAILED) for each in trials]
    none = [completed(each, math.nan) for each in trials]
    assert moves(searched, failed, free=2) == moves(searched, none, free=2)


def test_a_search_without_a_goal_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="tpe needs the goal"):
        TpeRequest.of(plan(MIXED, goal=None), trials=(), free=1)
