"""Sobol' search, a sequence of points that spread evenly over the space, however many of them are taken. Pure.

Each coordinate is a digital sequence in base 2, in the order of the Gray code. It is built from a primitive polynomial
over GF(2) and initial direction numbers. The seed moves all points by one random digital shift, which keeps them even.

Sources:
    - Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30, 2008
    - Bratley and Fox, "Algorithm 659: Implementing Sobol's quasirandom sequence generator", ACM TOMS 14, 1988
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.search.combinations import distinct
from spotkeep_jobs.sweeps.search.direction_numbers import DIRECTION_NUMBERS
from spotkeep_jobs.sweeps.space import Space

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
