"""Random search: independent draws, none of them twice.

Source: Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.search.distinct import distinct
from spotkeep_jobs.sweeps.space import Space


def random_combinations(space: Space, *, seed: int) -> Iterator[dict[str, ParameterValue]]:
    """Yield combinations that are drawn at random, the same ones for the same seed.

    Args:
        space: The space.
        seed: Not negative.
    """
    return distinct(space, _points(len(space.root), seed=seed))


def _points(dimensions: int, *, seed: int) -> Iterator[list[float]]:
    # Of `random`, Python promises that this method alone gives the same numbers in every version.
    draw = Random(seed).random  # noqa: S311 -- no secret depends on it
    while True:
        yield [draw() for _ in range(dimensions)]
