"""How the time of a notice is divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_agent.leaving import divide


@given(st.floats(0, 900))
def test_each_part_ends_before_the_next_and_all_before_the_machine_goes(seconds: float) -> None:
    box = divide(seconds)
    assert 0 <= box.save <= box.copy <= box.let_go <= seconds


@pytest.mark.parametrize(("seconds", "save", "let_go"), [(120.0, 70.0, 12.0), (30.0, 15.0, 4.0), (1.0, 0.5, 0.1)])
def test_saving_gets_most_and_the_volume_always_something(seconds: float, save: float, let_go: float) -> None:
    box = divide(seconds)
    assert box.save >= save
    assert box.let_go - box.copy >= let_go
