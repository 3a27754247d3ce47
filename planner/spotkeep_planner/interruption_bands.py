"""What to expect of capacity that was not watched yet: a wide prior from AWS's published interruption bands.

The Spot Instance Advisor says how often a type was reclaimed in the trailing month, in five bands. Read as the share
of instances taken within a month, a share f means a hazard of -ln(1 - f) a month. The prior takes the band for the
mean over a run's life, lets the hazard fall with age as every public trace does, and takes droughts for long, since no
one publishes their length. It is worth half an ending in each age band, so a few hours of a zone's own history
outweigh it.

Source: https://aws.amazon.com/ec2/spot/instance-advisor/ (bands <5%, 5-10%, 10-15%, 15-20%, >20%). The shape over age
is this project's: hazards fall about as age to the power -0.8 in the V100 traces of 2023 (docs/planning.md).
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from spotkeep_planner.capacity_model import AGE_EDGES_S, CapacityModel

_MONTH_S = 730 * 3600.0
_HOUR_S = 3600.0
_WORTH_ENDINGS = 0.5
_FALL = 0.8
_DROUGHT_AT_AN_HOUR_PER_S = 0.4 / _HOUR_S
_LEAST_RUN_HAZARD_AT_AN_HOUR_PER_S = 0.1 / _HOUR_S


class InterruptionBand(Enum):
    """A band of the Spot Instance Advisor, by the middle of its share of instances reclaimed in a month."""

    BELOW_5 = 0.025
    FROM_5_TO_10 = 0.075
    FROM_10_TO_15 = 0.125
    FROM_15_TO_20 = 0.175
    ABOVE_20 = 0.35


def prior_from_band(band: InterruptionBand = InterruptionBand.ABOVE_20) -> CapacityModel:
    """Return a capacity model for a type of which only its band is known.

    The hazard of young runs is never taken for lower than one in ten an hour, whatever the band says: bands speak of
    instances that run, and a planner's first hours are spent on capacity that has just come.

    Args:
        band: The band; the worst where none is known.
    """
    edges = np.array((0.0, *AGE_EDGES_S, 3 * AGE_EDGES_S[-1]))
    middle_h = np.maximum(0.1, np.sqrt(np.maximum(edges[:-1], 60.0) * edges[1:]) / _HOUR_S)
    shape = middle_h**-_FALL
    monthly_per_s = -np.log1p(-band.value) / _MONTH_S
    runs = np.maximum(
        monthly_per_s, _LEAST_RUN_HAZARD_AT_AN_HOUR_PER_S * (band.value / InterruptionBand.ABOVE_20.value) ** 0.5
    )
    hazards = np.stack([_DROUGHT_AT_AN_HOUR_PER_S * shape, runs * shape])
    endings = np.full_like(hazards, _WORTH_ENDINGS)
    return CapacityModel(endings=endings, seen_s=endings / hazards)
