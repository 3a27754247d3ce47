"""What a schedule fired with: a run and an attempt, or a word about what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warm_pools.firings import NotAFiringError, PoolFiring, firing_of


def test_it_names_a_run_and_an_attempt() -> None:
    assert firing_of({"run": "first", "attempt": 2, "firing": "expiry"}) == PoolFiring(run="first", attempt=2)


@pytest.mark.parametrize(
    "event",
    [None, [], "first", {}, {"run": "first"}, {"run": "first", "attempt": 0}, {"run": "first", "attempt": True},
     {"run": "a/b", "attempt": 1}, {"run": "x" * 64, "attempt": 1}, {"run": "first", "attempt": "1"}],
)  # fmt: skip
def test_anything_else_names_none(event: object) -> None:
    with pytest.raises(NotAFiringError):
        firing_of(event)


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(_ANYTHING | st.fixed_dictionaries({"run": _ANYTHING, "attempt": _ANYTHING}))
def test_nothing_breaks_it(event: object) -> None:
    try:
        firing = firing_of(event)
    except NotAFiringError:
        return
    assert isinstance(event, dict)
    assert (firing.run, firing.attempt) == (event["run"], event["attempt"])
