"""What a deployment's own runs have seen of capacity: evidence that improves with use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spotkeep_planner.capacity_model import AGE_EDGES_S, BANDS, DROUGHT, RUN, Spells


@dataclass(frozen=True, kw_only=True)
class SeenSpell:
    """One stretch with capacity, or one of waiting for it.

    Attributes:
        with_capacity: Whether it was a stretch with capacity.
        length_s: How long it was watched, from its beginning.
        ended: Whether it ended by itself: capacity was taken, or came. A run that was done, or is still under way, did
            not see the end.
    """

    with_capacity: bool
    length_s: float
    ended: bool


def spells_of(seen: Iterable[SeenSpell]) -> Spells:
    """Return the endings and the time watched, by age, as a fit needs them."""
    edges = np.array((0.0, *AGE_EDGES_S, np.inf))
    endings, seen_s = np.zeros((2, BANDS)), np.zeros((2, BANDS))
    for spell in seen:
        row = RUN if spell.with_capacity else DROUGHT
        length_s = max(0.0, spell.length_s)
        seen_s[row] += np.clip(length_s - edges[:-1], 0.0, edges[1:] - edges[:-1])
        if spell.ended:
            endings[row, int(np.searchsorted(AGE_EDGES_S, length_s, side="right"))] += 1
    return Spells(endings=endings, seen_s=seen_s)
