"""What both sides of the measurement of lost nodes print is read as what it is, or passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nodes.training import step_of


@given(at=st.integers(0, 10**10), step=st.integers(0, 10**6), ranks=st.integers(1, 999))
def test_a_step_is_read_with_its_time_and_its_ranks(at: int, step: int, ranks: int) -> None:
    assert step_of(f"{at}.250 step {step} of {ranks} ranks\n") == (at + 0.25, step, ranks)


@pytest.mark.parametrize(
    "line", ["", "epoch 1", "12.5 step 3 of four ranks", "soon step 3 of 4 ranks", "12.5 step 3 of 4 ranks more"]
)
def test_another_line_is_no_step(line: str) -> None:
    assert step_of(line) is None
