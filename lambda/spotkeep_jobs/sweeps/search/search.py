"""Chooses the moves that follow from the trials so far. Pure, as a search has no state of its own.

The parameters of a trial follow from the space, the seed and the trial's number. So an interrupted search goes on as if
it had not been interrupted. Only the search tpe depends on reported values, and another module asks it
(`tpe_function`).

A grid, random draws or a sequence of points gives the combinations of a space in an order. Asynchronous successive
halving (ASHA) is in the form that promotes, where the best of the trials train longer. Trials are compared after
certain numbers of steps, which Li et al. call rungs. A trial pauses at each of them, with its checkpoint. As soon as it
is among the best there, it may go on to the next. Until then new trials begin, so no place waits. A trial that is not
promoted can still be, when others follow it.

Sobol' search is a sequence of points that spread evenly over the space, however many of them are taken. Each coordinate
is a digital sequence in base 2, in the order of the Gray code. It is built from a primitive polynomial over GF(2) and
initial direction numbers. The seed moves all points by one random digital shift, which keeps them even.

Sources:
    - Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012
    - Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2
    - Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30, 2008
    - Bratley and Fox, "Algorithm 659: Implementing Sobol's quasirandom sequence generator", ACM TOMS 14, 1988
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, TypeAlias

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.search.direction_numbers import DIRECTION_NUMBERS
from spotkeep_jobs.sweeps.space import Space


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that was begun, and the values that it has reported.

    Attributes:
        number: From 1, in the order in which trials are chosen.
        parameters: By name.
        state: The state of the trial.
        values: The objective by completed steps, where the trial paused or ended. A paused trial without a value at its
            pause is never promoted.
    """

    number: int
    parameters: Mapping[str, ParameterValue]
    state: TrialState
    values: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Begin a trial.

    Attributes:
        number: Its number.
        parameters: By name.
        pause_at_step: The step at which it pauses, in completed steps. None to train to its end.
    """

    number: int
    parameters: Mapping[str, ParameterValue]
    pause_at_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Promote:
    """Let a paused trial go on from its checkpoint.

    Attributes:
        number: Its number.
        pause_at_step: The step at which it pauses next, in completed steps. None to train to its end.
    """

    number: int
    pause_at_step: int | None


Move: TypeAlias = Begin | Promote


_MOST_REPEATED: Final = 20
"""The number of points in a row that may stand for nothing new.

After that the space is almost used up, and the rest is found in the order of the space.
"""


def grid_combinations(space: Space) -> Iterator[dict[str, ParameterValue]]:
    """Yield all combinations of a discrete space, the last written parameter fastest.

    Raises:
        TypeError: A parameter is continuous.
    """
    index = 0
    while space.size is None or index < space.size:
        yield space.combination(index)
        index += 1


def random_combinations(space: Space, *, seed: int) -> Iterator[dict[str, ParameterValue]]:
    """Yield combinations that are drawn at random, none of them twice, the same ones for the same seed.

    Args:
        space: The space.
        seed: Not negative.
    """
    return distinct(space, _random_points(len(space.root), seed=seed))


def _random_points(dimensions: int, *, seed: int) -> Iterator[list[float]]:
    # Of `random`, Python promises that this method alone gives the same numbers in every version.
    draw = Random(seed).random  # noqa: S311 -- no secret depends on it
    while True:
        yield [draw() for _ in range(dimensions)]


def distinct(space: Space, points: Iterable[Sequence[float]]) -> Iterator[dict[str, ParameterValue]]:
    """Yield combinations in the order of their points, none twice. It ends when the space has no other.

    Args:
        space: The space.
        points: Points of the unit cube, without an end.
    """
    if space.size is not None:
        return (space.combination(index) for index in _distinct_indices(space, points, size=space.size))
    return _distinct_real(space, points)


def _distinct_real(space: Space, points: Iterable[Sequence[float]]) -> Iterator[dict[str, ParameterValue]]:
    tried: set[tuple[ParameterValue, ...]] = set()
    repeated = 0
    for point in points:
        combination = space.at(point)
        values = tuple(combination.values())
        if values not in tried:
            repeated = 0
            tried.add(values)
            yield combination
        elif (repeated := repeated + 1) == _MOST_REPEATED:
            return


def _distinct_indices(space: Space, points: Iterable[Sequence[float]], *, size: int) -> Iterator[int]:
    following: dict[int, int] = {}
    """For each index that was tried, one behind it that is nearer to the next free one."""
    repeated = 0
    for point in points:
        if len(following) == size:
            return
        index = space.index_at(point)
        if index in following and (repeated := repeated + 1) < _MOST_REPEATED:
            continue
        passed = []
        while index in following:
            passed.append(index)
            index = following[index]
        for each in passed:
            following[each] = index
        following[index] = (index + 1) % size
        repeated = 0
        yield index


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


_BITS: Final = 32


def sobol_combinations(space: Space, *, seed: int) -> Iterator[dict[str, ParameterValue]]:
    """Yield combinations that are spread evenly, the same ones for the same seed.

    Args:
        space: The space, of at most 100 parameters.
        seed: Not negative.
    """
    draw = Random(seed).random  # noqa: S311 -- no secret depends on it
    shift = [int(draw() * 2**_BITS) for _ in space.root]
    points = (
        [(each ^ by) / 2**_BITS for each, by in zip(point, shift, strict=True)] for point in sobol_points(len(shift))
    )
    return distinct(space, points)


def sobol_points(dimensions: int) -> Iterator[list[int]]:
    """Yield the points of the sequence, 2^32 of them, as whole numbers below 2^32.

    Args:
        dimensions: At most 100.
    """
    directions = [_directions(coordinate) for coordinate in range(dimensions)]
    point = [0] * dimensions
    yield list(point)
    for number in range(1, 2**_BITS):
        # The Gray codes of two neighbours differ in one bit: that of the lowest zero of the first number.
        changed = (number & -number).bit_length() - 1
        point = [each ^ direction[changed] for each, direction in zip(point, directions, strict=True)]
        yield point


def _directions(coordinate: int) -> list[int]:
    """Return the direction numbers of a coordinate, from the one for the lowest bit of the Gray code on."""
    if coordinate == 0:
        return [1 << (_BITS - 1 - bit) for bit in range(_BITS)]
    coefficients, *odd = DIRECTION_NUMBERS[coordinate - 1]
    degree = len(odd)
    for bit in range(degree, _BITS):
        following = odd[bit - degree] ^ (odd[bit - degree] << degree)
        for power in range(1, degree):
            if coefficients >> (degree - 1 - power) & 1:
                following ^= odd[bit - power] << power
        odd.append(following)
    return [number << (_BITS - 1 - bit) for bit, number in enumerate(odd)]


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
