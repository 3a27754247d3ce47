"""A wide prior for capacity that was not watched yet, from AWS's published interruption bands.

The Spot Instance Advisor says how often a type was reclaimed in the trailing month, in five bands. Read as the share of
instances taken within a month, a share f means a hazard of -ln(1 - f) a month. The prior takes the band for the mean
over a run's life. It lets the hazard fall with age as every public trace does. It takes droughts for long, since no one
publishes their length. It is worth half an ending in each age band, so a few hours of a zone's own history outweigh it.

Source: https://aws.amazon.com/ec2/spot/instance-advisor/ (bands <5%, 5-10%, 10-15%, 15-20%, >20%). The shape over age
is this project's. Hazards fall about as age to the power -0.8 in the V100 traces of 2023 (docs/planning.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from spotkeep_planner.capacity_model import AGE_EDGES_S, CapacityModel

_MONTH_S = 730 * 3600.0
_HOUR_S = 3600.0
_WORTH_ENDINGS = 0.5
_FALL = 0.8
_DROUGHT_AT_AN_HOUR_PER_S = 0.4 / _HOUR_S
_LEAST_RUN_HAZARD_AT_AN_HOUR_PER_S = 0.1 / _HOUR_S


SHARE_RECLAIMED: Mapping[str, float] = MappingProxyType(
    {"<5%": 0.025, "5-10%": 0.075, "10-15%": 0.125, "15-20%": 0.175, ">20%": 0.35}
)
"""The middle of each band, as the share of instances reclaimed in a month, by the band as the Advisor writes it."""
WORST_BAND = ">20%"


def prior_from_band(band: str = WORST_BAND) -> CapacityModel:
    """Return a capacity model for a type of which only its band is known.

    The hazard of young runs is never taken for lower than one in ten an hour, whatever the band says. Bands speak of
    instances that run, and a planner's first hours are spent on capacity that has just come.

    Args:
        band: One of `SHARE_RECLAIMED`. The worst where none is known.
    """
    edges = np.array((0.0, *AGE_EDGES_S, 3 * AGE_EDGES_S[-1]))
    middle_h = np.maximum(0.1, np.sqrt(np.maximum(edges[:-1], 60.0) * edges[1:]) / _HOUR_S)
    shape = middle_h**-_FALL
    share, worst = SHARE_RECLAIMED[band], SHARE_RECLAIMED[WORST_BAND]
    monthly_per_s = -np.log1p(-share) / _MONTH_S
    runs = np.maximum(monthly_per_s, _LEAST_RUN_HAZARD_AT_AN_HOUR_PER_S * (share / worst) ** 0.5)
    hazards = np.stack([_DROUGHT_AT_AN_HOUR_PER_S * shape, runs * shape])
    endings = np.full_like(hazards, _WORTH_ENDINGS)
    return CapacityModel(endings=endings, seen_s=endings / hazards)
