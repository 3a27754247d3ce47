"""Chooses the moves that follow from the trials so far. Pure, as a search has no state of its own.

The parameters of a trial follow from the space, the seed and the trial's number. So an interrupted search goes on as if
it had not been interrupted. Only the search tpe depends on reported values, and another module asks it
(`tpe_function`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.search.asha import may_promote_later, promotions, rungs_of
from spotkeep_jobs.sweeps.search.combinations import grid_combinations, random_combinations
from spotkeep_jobs.sweeps.search.moves import Begin, Move, TrialResult
from spotkeep_jobs.sweeps.search.sobol import sobol_combinations
from spotkeep_jobs.sweeps.space import Space

SearchName: TypeAlias = Literal["grid", "random", "sobol", "tpe", "asha"]


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The space that is searched, and the way in which it is searched.

    Attributes:
        space: The values that each parameter may have. Discrete for a grid.
        search: The algorithm.
        trials: The most trials that begin.
        seed: The seed of random choices. Not negative.
        goal: Says if small or large values of the objective are better, for tpe and asha.
        min_steps: The steps after which asha compares trials for the first time.
        max_steps: The steps of a whole training, for asha.
        reduction_factor: Asha promotes one of so many trials, to so many times the steps.
    """

    space: Space
    search: SearchName
    trials: int
    seed: int = 0
    goal: Literal["minimize", "maximize"] | None = None
    min_steps: int | None = None
    max_steps: int | None = None
    reduction_factor: int = 3

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials pause. Empty where they train to their ends."""
        if self.search != "asha" or self.min_steps is None or self.max_steps is None:
            return ()
        return rungs_of(min_steps=self.min_steps, max_steps=self.max_steps, reduction_factor=self.reduction_factor)


def next_moves(plan: SearchPlan, *, trials: Sequence[TrialResult], free: int) -> tuple[Move, ...]:
    """Return the trials that begin or go on now.

    Args:
        plan: The plan of the search.
        trials: Those begun, each once, in any order.
        free: The number of further trials that may run.

    Returns:
        At most `free` moves. Fewer where nothing can follow, or nothing before a trial has reported.

    Raises:
        ValueError: The search is tpe, which its own function answers.
    """
    moves = itertools.chain(_promotions(plan, trials), _begins(plan, trials))
    return tuple(itertools.islice(moves, max(free, 0)))


def is_exhausted(plan: SearchPlan, *, trials: Sequence[TrialResult]) -> bool:
    """Return True if no move can ever follow, whatever the running trials report.

    Args:
        plan: The plan of the search.
        trials: Those begun, each once, in any order.
    """
    if plan.search == "tpe":
        return len(trials) >= min(plan.trials, plan.space.size or plan.trials)
    if next_moves(plan, trials=trials, free=1):
        return False
    return not may_promote_later(trials, rungs=plan.rungs, reduction_factor=plan.reduction_factor)


def _promotions(plan: SearchPlan, trials: Sequence[TrialResult]) -> Sequence[Move]:
    if plan.goal is None or not plan.rungs:
        return ()
    return promotions(trials, rungs=plan.rungs, reduction_factor=plan.reduction_factor, goal=plan.goal)


def _begins(plan: SearchPlan, trials: Sequence[TrialResult]) -> Iterator[Begin]:
    """Yield the trials that were not begun yet, by number."""
    begun = {trial.number for trial in trials}
    if len(begun) >= plan.trials:
        return
    for number, parameters in enumerate(itertools.islice(_combinations(plan), plan.trials), start=1):
        if number not in begun:
            yield Begin(number=number, parameters=parameters, pause_at_step=next(iter(plan.rungs), None))


def _combinations(plan: SearchPlan) -> Iterator[dict[str, ParameterValue]]:
    match plan.search:
        case "grid":
            return grid_combinations(plan.space)
        case "random" | "asha":
            return random_combinations(plan.space, seed=plan.seed)
        case "sobol":
            return sobol_combinations(plan.space, seed=plan.seed)
        case "tpe":
            raise ValueError("the function `search` answers which trials of tpe follow")
