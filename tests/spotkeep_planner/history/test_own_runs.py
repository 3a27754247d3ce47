"""What runs have seen counts as much as what a trace saw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_planner.capacity_model import DROUGHT, RUN, watch
from spotkeep_planner.history.own_runs import SeenSpell, spells_of

HOUR_S = 3600.0


def test_time_and_endings_fall_into_their_age_bands() -> None:
    seen = spells_of(
        [
            SeenSpell(with_capacity=True, length_s=2 * HOUR_S, ended=True),
            SeenSpell(with_capacity=False, length_s=600.0, ended=True),
            SeenSpell(with_capacity=True, length_s=30 * HOUR_S, ended=False),
        ]
    )
    assert seen.seen_s[RUN].sum() == 32 * HOUR_S
    assert seen.endings[RUN].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert seen.endings[DROUGHT].tolist() == [0, 1, 0, 0, 0, 0, 0]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 500)), min_size=2, max_size=12))
def test_a_trace_given_as_spells_is_seen_as_the_trace_is(lengths: list[tuple[bool, int]]) -> None:
    """Up to the one tick by which a probe sees an ending later."""
    alternating = [(bool(number % 2), length) for number, (_, length) in enumerate(lengths)]
    trace = np.concatenate([np.full(length, state) for state, length in alternating])
    watched = watch(trace, tick_s=60.0)
    reported = spells_of(
        SeenSpell(with_capacity=state, length_s=length * 60.0, ended=number < len(alternating) - 1)
        for number, (state, length) in enumerate(alternating)
    )
    assert reported.endings.sum() == watched.endings.sum()
    assert reported.seen_s.sum() == pytest.approx(watched.seen_s.sum() + 60.0)
    assert reported.seen_s == pytest.approx(watched.seen_s, abs=60.0 * len(lengths) + 60)
