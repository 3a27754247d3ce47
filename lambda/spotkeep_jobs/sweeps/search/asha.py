"""Asynchronous successive halving (ASHA) in the form that promotes, where the best of the trials train longer. Pure.

Trials are compared after certain numbers of steps, which Li et al. call rungs. A trial pauses at each of them, with its
checkpoint. As soon as it is among the best there, it may go on to the next. Until then new trials begin, so no place
waits. A trial that is not promoted can still be, when others follow it.

Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.moves import Promote, TrialResult


def rungs_of(*, min_steps: int, max_steps: int, reduction_factor: int) -> tuple[int, ...]:
    """Return the steps at which trials pause. After the last of them a trial trains to its end.

    Args:
        min_steps: The steps after which trials are compared for the first time.
        max_steps: The steps of a whole training.
        reduction_factor: The factor from one of these numbers of steps to the next.
    """
    rungs = []
    while min_steps < max_steps:
        rungs.append(min_steps)
        min_steps *= reduction_factor
    return tuple(rungs)


def promotions(
    trials: Sequence[TrialResult],
    *,
    rungs: Sequence[int],
    reduction_factor: int,
    goal: Literal["minimize", "maximize"],
) -> list[Promote]:
    """Return the trials that go on, from the highest number of steps down, and the best first.

    Of the trials that have paused after a number of steps, the reduction factor says how many are the best. A trial of
    these that has failed, was stopped or has completed takes its place and is not promoted.

    Args:
        trials: Those that were begun.
        rungs: The steps at which they pause.
        reduction_factor: One of so many trials is promoted.
        goal: Says if small or large values are better.
    """
    found = []
    for rung, steps in reversed(tuple(enumerate(rungs))):
        reached = [trial for trial in trials if steps in trial.values]
        ranked = sorted(reached, key=lambda trial: (_loss(trial.values[steps], goal), trial.number))
        following = rungs[rung + 1] if rung + 1 < len(rungs) else None
        found += [
            Promote(number=trial.number, pause_at_step=following)
            for trial in ranked[: len(ranked) // reduction_factor]
            if trial.state is TrialState.PAUSED and max(trial.values) == steps and math.isfinite(trial.values[steps])
        ]
    return found


def may_promote_later(trials: Sequence[TrialResult], *, rungs: Sequence[int], reduction_factor: int) -> bool:
    """Return True if reports of the running trials alone could still promote a trial.

    Args:
        trials: Those that were begun.
        rungs: The steps at which they pause.
        reduction_factor: One of so many trials is promoted.
    """
    for before, steps in zip((0, *rungs), rungs, strict=False):
        reached = sum(steps in trial.values for trial in trials)
        on_the_way = sum(
            trial.state is TrialState.RUNNING and max(trial.values, default=0) == before for trial in trials
        )
        if on_the_way and reached + on_the_way >= reduction_factor:
            return True
    return False


def _loss(value: float, goal: Literal["minimize", "maximize"]) -> float:
    """Return the value that is to be small. A value that is no number is the worst."""
    if math.isnan(value):
        return math.inf
    return -value if goal == "maximize" else value
