"""The combinations of a space that a sequence of points stands for, each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.space import Space

_MOST_REPEATED: Final = 20
"""Points in a row that stand for nothing new: the space is then almost used up, and its order finds what is left."""


def distinct(space: Space, points: Iterable[Sequence[float]]) -> Iterator[dict[str, ParameterValue]]:
    """Yield combinations in the order of their points, none twice; it ends when a space of so many has no other.

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
