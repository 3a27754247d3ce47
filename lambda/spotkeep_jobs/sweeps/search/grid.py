"""Grid search: every combination of a discrete space, the last written parameter fastest."""

from __future__ import annotations

from collections.abc import Iterator

from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.space import Space


def grid_combinations(space: Space) -> Iterator[dict[str, ParameterValue]]:
    """Yield all combinations of a space.

    Raises:
        TypeError: A parameter is continuous.
    """
    index = 0
    while space.size is None or index < space.size:
        yield space.combination(index)
        index += 1
