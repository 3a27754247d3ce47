"""Asha promotes exactly the best of each rung, as the paper's algorithm does."""

from __future__ import annotations

import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.asha import promotions, rungs_of
from spotkeep_jobs.sweeps.search.moves import Begin, TrialResult
from spotkeep_jobs.sweeps.search.search import SearchPlan, is_exhausted, next_moves

from .searching import Record, chance_of, loss, plan

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
