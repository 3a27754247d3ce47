"""Which trials follow: never too many, none twice, and the same ones after any interruption.

Asha promotes exactly the best of each rung, as the paper's algorithm does.

Sobol' points are those that SciPy computes from the same table, and stay evenly spread when they are shifted.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from itertools import islice
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.search import (
    Begin,
    SearchPlan,
    TrialResult,
    is_exhausted,
    next_moves,
    promotions,
    rungs_of,
    sobol_combinations,
    sobol_points,
)
from spotkeep_jobs.sweeps.space import Space

from .searching import Record, chance_of, loss, plan

CONTINUOUS = {"lr": {"log_uniform": [1e-5, 1e-2]}, "depth": [18, 34, 50]}
DISCRETE = {"depth": [18, 34, 50], "seed": {"range": [0, 8]}, "batch": {"log_int_uniform": [8, 512]}}
SMALL = {"depth": [18, 34, 50], "bias": [True, False]}
ASHA = {"goal": "minimize", "min_steps": 1, "max_steps": 27, "reduction_factor": 3}


@st.composite
def plans(draw: st.DrawFn) -> SearchPlan:
    search = draw(st.sampled_from(["grid", "random", "sobol", "asha"]))
    parameters = draw(st.sampled_from([DISCRETE, SMALL] if search == "grid" else [CONTINUOUS, DISCRETE, SMALL]))
    fields: dict[str, Any] = {}
    if search == "asha":
        fields = {
            "goal": draw(st.sampled_from(["minimize", "maximize"])),
            "min_steps": draw(st.integers(1, 5)),
            "max_steps": draw(st.integers(1, 60)),
            "reduction_factor": draw(st.integers(2, 4)),
        }
    return plan(parameters, search=search, trials=draw(st.integers(1, 25)), seed=draw(st.integers(0, 99)), **fields)


def searched(searched_plan: SearchPlan, *, parallel: int, order: int = 0, fails: float = 0.0) -> Record:
    """Search to the end: trials report one after the other, in an order of chance."""
    record, chance = Record(fails=fails, seed=order), chance_of(order)
    is_over = False
    while True:
        trials = list(record.trials.values())
        chance.shuffle(trials)
        is_over = is_over or is_exhausted(searched_plan, trials=trials)
        moves = next_moves(searched_plan, trials=trials, free=parallel - len(record.running))
        assert len(moves) <= parallel - len(record.running)
        assert not (is_over and moves), "an exhausted search has no move, whatever is reported"
        record.write(moves)
        if not record.running:
            assert is_exhausted(searched_plan, trials=trials)
            return record
        record.report(chance.choice(record.running))


class TestEverySearch:
    @given(plans(), st.integers(1, 12), st.integers(0, 99), st.sampled_from([0.0, 0.3]))
    def test_each_trial_is_begun_once_and_what_it_tries_does_not_depend_on_the_others(
        self, searched_plan: SearchPlan, parallel: int, order: int, fails: float
    ) -> None:
        record = searched(searched_plan, parallel=parallel, order=order, fails=fails)
        expected = min(searched_plan.trials, searched_plan.space.size or searched_plan.trials)
        assert sorted(record.trials) == list(range(1, expected + 1))
        assert len({tuple(trial.parameters.items()) for trial in record.trials.values()}) == expected
        alone = next_moves(searched_plan, trials=(), free=searched_plan.trials)
        assert {move.number: move.parameters for move in alone if isinstance(move, Begin)} == {
            number: trial.parameters for number, trial in record.trials.items()
        }

    @given(plans(), st.integers(1, 12), st.integers(0, 99), st.randoms(use_true_random=False))
    def test_the_order_in_which_trials_are_read_does_not_matter(
        self, searched_plan: SearchPlan, free: int, order: int, chance: random.Random
    ) -> None:
        record = searched(searched_plan, parallel=5, order=order, fails=0.1)
        trials = [trial for trial in record.trials.values() if chance.random() < 0.8]
        shuffled = chance.sample(trials, len(trials))
        assert next_moves(searched_plan, trials=shuffled, free=free) == next_moves(
            searched_plan, trials=trials, free=free
        )
        assert is_exhausted(searched_plan, trials=shuffled) == is_exhausted(searched_plan, trials=trials)

    @given(plans(), st.integers(1, 6), st.randoms(use_true_random=False))
    def test_a_search_that_is_interrupted_anywhere_goes_on_as_if_it_had_not_been(
        self, searched_plan: SearchPlan, parallel: int, chance: random.Random
    ) -> None:
        """Each function dies before it has written, after, or between; each report is lost for a while, or doubled."""
        undisturbed, disturbed = Record(), Record()
        for _ in range(1_000):
            for record, is_disturbed in ((undisturbed, False), (disturbed, True)):
                trials = list(record.trials.values())
                moves = next_moves(searched_plan, trials=trials, free=parallel - len(record.running))
                if is_disturbed and chance.random() < 0.5:
                    # It died before the transaction; another one reads, in another order.
                    chance.shuffle(trials)
                    moves = next_moves(searched_plan, trials=trials, free=parallel - len(record.running))
                record.write(moves)
                if is_disturbed and chance.random() < 0.5:
                    again = next_moves(
                        searched_plan, trials=list(record.trials.values()), free=parallel - len(record.running)
                    )
                    assert again == ()
            assert disturbed.trials == undisturbed.trials
            if not undisturbed.running:
                break
            number = chance.choice(undisturbed.running)
            undisturbed.report(number)
            for _ in range(chance.choice([1, 2])):
                disturbed.report(number)
        else:
            pytest.fail("the search does not end")

    @given(plans())
    def test_nothing_begins_where_no_place_is_free(self, searched_plan: SearchPlan) -> None:
        assert next_moves(searched_plan, trials=(), free=0) == ()
        assert next_moves(searched_plan, trials=(), free=-1) == ()

    def test_a_trial_whose_number_is_missing_is_begun(self) -> None:
        searched_plan = plan(CONTINUOUS, search="random", trials=4)
        record = searched(searched_plan, parallel=2)
        missing = record.trials.pop(2)
        assert not is_exhausted(searched_plan, trials=list(record.trials.values()))
        [begin] = next_moves(searched_plan, trials=list(record.trials.values()), free=4)
        assert begin == Begin(number=2, parameters=missing.parameters, pause_at_step=None)

    @pytest.mark.parametrize("search", ["random", "sobol", "grid"])
    def test_more_trials_go_on_where_fewer_ended(self, search: str) -> None:
        few = next_moves(plan(DISCRETE, search=search, trials=10), trials=(), free=50)
        many = next_moves(plan(DISCRETE, search=search, trials=50), trials=(), free=50)
        assert many[:10] == few
        assert len(many) == 50


class TestGrid:
    def test_the_last_parameter_changes_fastest(self) -> None:
        moves = next_moves(plan(SMALL, search="grid", trials=99), trials=(), free=99)
        assert [tuple(move.parameters.values()) for move in moves if isinstance(move, Begin)] == list(
            itertools.product([18, 34, 50], [True, False])
        )

    def test_a_grid_far_too_large_to_list_is_searched_from_its_beginning(self) -> None:
        huge = {name: {"int_uniform": [1, 10**15]} for name in "abcdefgh"}
        [first, second] = next_moves(plan(huge, search="grid", trials=10_000), trials=(), free=2)
        assert isinstance(first, Begin)
        assert isinstance(second, Begin)
        assert (first.parameters["h"], second.parameters["h"]) == (1, 2)


class TestRandom:
    def test_the_same_seed_tries_the_same_in_every_version_and_another_seed_others(self) -> None:
        """A sweep goes on after an update: what its numbers stand for is written down here."""
        moves = next_moves(plan(CONTINUOUS, search="random", seed=7), trials=(), free=2)
        assert [move.parameters for move in moves if isinstance(move, Begin)] == [
            {"lr": 9.3648e-05, "depth": 18},
            {"lr": 0.000897023, "depth": 18},
        ]
        assert next_moves(plan(CONTINUOUS, search="random", seed=8), trials=(), free=2) != moves

    @pytest.mark.parametrize("search", ["random", "sobol"])
    def test_a_space_of_thousands_is_used_up_in_no_time(self, search: str) -> None:
        uneven = {"a": {"log_int_uniform": [1, 45]}, "b": {"log_int_uniform": [1, 45]}}
        moves = next_moves(plan(uneven, search=search, trials=10_000), trials=(), free=10_000)
        assert len({tuple(move.parameters.values()) for move in moves if isinstance(move, Begin)}) == 2_025

    def test_a_list_of_values_and_a_range_are_drawn_evenly(self) -> None:
        moves = next_moves(
            plan({"x": [1, 2], "y": {"uniform": [0, 1]}}, search="random", trials=2_000), trials=(), free=2_000
        )
        values = [move.parameters for move in moves if isinstance(move, Begin)]
        assert sum(each["x"] == 1 for each in values) == pytest.approx(1_000, abs=120)
        assert sum(float(each["y"]) < 0.25 for each in values) == pytest.approx(500, abs=100)


class TestTpe:
    def test_tpe_is_answered_elsewhere_and_ends_here(self) -> None:
        searched_plan = plan(SMALL, search="tpe", trials=99, goal="minimize")
        with pytest.raises(ValueError, match="the function `search` answers"):
            next_moves(searched_plan, trials=(), free=1)
        record = searched(plan(SMALL, search="grid", trials=99), parallel=3)
        trials = list(record.trials.values())
        assert not is_exhausted(searched_plan, trials=trials[:5])
        assert is_exhausted(searched_plan, trials=trials)
        assert all(trial.state is TrialState.COMPLETED for trial in trials)


RUNNING, PAUSED, COMPLETED, FAILED = TrialState.RUNNING, TrialState.PAUSED, TrialState.COMPLETED, TrialState.FAILED


def asha(**fields: object) -> SearchPlan:
    given_fields = {"goal": "minimize", "min_steps": 1, "max_steps": 27, "reduction_factor": 3, "trials": 30, **fields}
    return plan({"lr": {"log_uniform": [1e-5, 1e-2]}}, search="asha", **given_fields)  # type: ignore[arg-type]


def trial(number: int, state: TrialState, **values: float) -> TrialResult:
    return TrialResult(number=number, parameters={}, state=state, values={int(s[1:]): v for s, v in values.items()})


def promoted(*trials: TrialResult, goal: Literal["minimize", "maximize"] = "minimize") -> list[tuple[int, int | None]]:
    found = promotions(trials, rungs=(1, 3, 9), reduction_factor=3, goal=goal)
    return [(each.number, each.pause_at_step) for each in found]


class TestRungs:
    def test_each_rung_is_the_reduction_factor_further_and_the_last_stretch_has_no_pause(self) -> None:
        assert rungs_of(min_steps=100, max_steps=2700, reduction_factor=3) == (100, 300, 900)
        assert rungs_of(min_steps=100, max_steps=2000, reduction_factor=3) == (100, 300, 900)
        assert rungs_of(min_steps=5, max_steps=5, reduction_factor=2) == ()

    @pytest.mark.parametrize(("steps", "pause"), [((100, 2700), 100), ((5, 5), None)])
    def test_a_trial_begins_with_the_first_rung_as_its_pause_if_there_is_one(
        self, steps: tuple[int, int], pause: int | None
    ) -> None:
        [begin] = next_moves(asha(min_steps=steps[0], max_steps=steps[1]), trials=(), free=1)
        assert isinstance(begin, Begin)
        assert begin.pause_at_step == pause


class TestPromotions:
    def test_one_of_three_is_promoted_and_none_of_two(self) -> None:
        two = trial(1, PAUSED, s1=0.5), trial(2, PAUSED, s1=0.4)
        assert promoted(*two) == []
        assert promoted(*two, trial(3, RUNNING)) == []
        assert promoted(*two, trial(3, PAUSED, s1=0.6)) == [(2, 3)]

    def test_where_the_goal_is_to_maximize_the_largest_is_the_best(self) -> None:
        assert promoted(*(trial(n, PAUSED, s1=n / 10) for n in (1, 2, 3)), goal="maximize") == [(3, 3)]

    def test_a_trial_that_was_passed_over_is_promoted_when_others_follow_it(self) -> None:
        trials = [trial(1, RUNNING, s1=0.1), *(trial(n, PAUSED, s1=n / 10) for n in (2, 3, 4, 5))]
        assert promoted(*trials) == []
        assert promoted(*trials, trial(6, PAUSED, s1=0.9)) == [(2, 3)]

    def test_the_highest_rung_comes_first_and_after_the_last_one_there_is_no_pause(self) -> None:
        low = [trial(n, PAUSED, s1=1.0 + n) for n in range(10, 22)]
        high = [trial(n, PAUSED, s1=n / 10, s3=n / 10, s9=n / 10) for n in (1, 2, 3)]
        assert promoted(*low, *high) == [(1, None), (10, 3), (11, 3)]

    def test_of_equals_the_first_number_is_promoted(self) -> None:
        assert promoted(*(trial(n, PAUSED, s1=0.5) for n in (3, 1, 2))) == [(1, 3)]

    def test_who_has_failed_or_completed_takes_a_place_and_is_not_promoted(self) -> None:
        others = [trial(n, PAUSED, s1=n / 10) for n in (2, 3)]
        assert promoted(trial(1, FAILED, s1=0.1), *others) == []
        assert promoted(trial(1, COMPLETED, s1=0.1), *others) == []
        assert promoted(trial(1, FAILED), *others) == []

    def test_what_is_no_finite_number_is_never_promoted(self) -> None:
        worst = [trial(1, PAUSED, s1=math.nan), trial(2, PAUSED, s1=math.inf)]
        assert promoted(*worst, trial(3, PAUSED, s1=9.0)) == [(3, 3)]
        assert promoted(*worst, trial(3, PAUSED, s1=math.nan)) == []
        assert promoted(*(trial(n, PAUSED, s1=-math.inf) for n in (1, 2, 3)), goal="maximize") == []


def paper(searched: SearchPlan, *, parallel: int, order: int) -> list[tuple[int, int]]:
    """Run the paper's algorithm as it is printed: one job at a time, with the sets of what was promoted.

    Returns:
        The trial and the rung of each job, in the order in which jobs begin.
    """
    chance, factor = chance_of(order), searched.reduction_factor
    last = len(searched.rungs)
    reported: list[dict[int, float]] = [{} for _ in range(last + 1)]
    were_promoted: list[set[int]] = [set() for _ in range(last + 1)]
    jobs: list[tuple[int, int]] = []
    running: list[tuple[int, int]] = []
    begun = 0

    def get_job() -> tuple[int, int] | None:
        nonlocal begun
        for rung in reversed(range(last)):
            best = sorted(reported[rung], key=lambda number: (reported[rung][number], number))
            candidates = [number for number in best[: len(best) // factor] if number not in were_promoted[rung]]
            if candidates:
                were_promoted[rung].add(candidates[0])
                return candidates[0], rung + 1
        if begun == searched.trials:
            return None
        begun += 1
        return begun, 0

    while True:
        while len(running) < parallel and (job := get_job()) is not None:
            running.append(job)
            jobs.append(job)
        if not running:
            return jobs
        number, rung = running.pop(chance.randrange(len(running)))
        reported[rung][number] = loss(number, searched.rungs[rung]) if rung < last else 0.0


@given(
    st.integers(1, 8), st.integers(0, 999), st.integers(1, 40),
    st.sampled_from([(1, 27, 3), (1, 16, 2), (2, 100, 4), (5, 5, 2)]),
)  # fmt: skip
def test_a_search_is_the_papers(parallel: int, order: int, trials: int, steps: tuple[int, int, int]) -> None:
    low, high, factor = steps
    searched = asha(trials=trials, min_steps=low, max_steps=high, reduction_factor=factor)
    record, chance = Record(), chance_of(order)
    rungs = {steps: rung for rung, steps in enumerate(searched.rungs)} | {None: len(searched.rungs)}
    jobs: list[tuple[int, int]] = []
    running: list[int] = []
    while True:
        moves = next_moves(searched, trials=list(record.trials.values()), free=parallel - len(running))
        record.write(moves)
        jobs += [(move.number, rungs[move.pause_at_step]) for move in moves]
        running += [move.number for move in moves]
        if not running:
            break
        record.report(running.pop(chance.randrange(len(running))))
    assert jobs == paper(searched, parallel=parallel, order=order)
    assert is_exhausted(searched, trials=list(record.trials.values()))


@pytest.mark.parametrize("state", [COMPLETED, FAILED, TrialState.STOPPED])
def test_a_search_is_over_when_no_running_trial_can_bring_a_promotion(state: TrialState) -> None:
    searched = asha(trials=3)
    ended = [trial(1, state, s1=0.1), trial(2, PAUSED, s1=0.2)]
    assert not is_exhausted(searched, trials=[*ended, trial(3, RUNNING)])
    assert is_exhausted(searched, trials=[*ended, trial(3, FAILED)])
    assert is_exhausted(searched, trials=[*ended, trial(3, RUNNING, s1=0.3)])


def test_the_points_are_those_of_scipy() -> None:
    """Of `scipy.stats.qmc.Sobol(100, scramble=False, bits=32).random(1024) * 2**32`, whose import takes a second."""
    points = [[int(each) for each in point] for point in islice(sobol_points(100), 1024)]
    assert points[5][:4] == [3758096384, 3758096384, 536870912, 1610612736]
    digest = hashlib.sha256(str(points).encode()).hexdigest()
    assert digest == "288ac078ada941d41e6283c4401514092c3769abf5c5e7880ee605b801b39d3e"


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_each_of_the_first_values_of_a_parameter_comes_equally_often(seed: int, power: int) -> None:
    """The property that makes the sequence: of 2^n points each 2^n-th part of a range holds one."""
    space = Space.model_validate({f"p{number}": {"uniform": [0, 1]} for number in range(5)})
    combinations = list(islice(sobol_combinations(space, seed=seed), 2**power))
    for name in space.root:
        # A value may be rounded to the end of its part.
        parts = sorted(float(each[name]) * 2**power for each in combinations)
        assert all(number - 0.01 <= part <= number + 1.01 for number, part in enumerate(parts))


def test_another_seed_gives_other_points() -> None:
    space = Space.model_validate({"lr": {"log_uniform": [1e-5, 1e-2]}})
    first, second = (list(islice(sobol_combinations(space, seed=seed), 8)) for seed in (0, 1))
    assert first != second
    assert not any(each in second for each in first)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_a_discrete_space_is_used_up(seed: int) -> None:
    space = Space.model_validate({"a": [1, 2, 3], "b": {"log_int_uniform": [1, 100]}})
    combinations = list(sobol_combinations(space, seed=seed))
    assert len(combinations) == space.size == len({tuple(each.values()) for each in combinations})
