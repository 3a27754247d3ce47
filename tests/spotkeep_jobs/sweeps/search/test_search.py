"""Which trials follow: never too many, none twice, and the same ones after any interruption."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.moves import Begin
from spotkeep_jobs.sweeps.search.search import SearchPlan, is_exhausted, next_moves

from .searching import Record, chance_of, plan

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
