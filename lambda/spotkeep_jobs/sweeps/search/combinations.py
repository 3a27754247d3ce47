"""The combinations of a space in the order in which a grid, random draws or any sequence of points gives them. Pure.

Source: Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.space import Space

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
