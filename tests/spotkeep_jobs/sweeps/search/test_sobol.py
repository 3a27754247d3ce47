"""Sobol' points are those that SciPy computes from the same table, and stay evenly spread when they are shifted."""

from __future__ import annotations

import hashlib
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.sweeps.search.sobol import sobol_combinations, sobol_points
from spotkeep_jobs.sweeps.space import Space


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
