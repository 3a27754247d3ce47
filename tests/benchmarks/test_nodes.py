"""What both sides of the measurement of lost nodes print is read as what it is, or passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nodes.ours import phases_of
from benchmarks.nodes.training import step_of


@given(at=st.integers(0, 10**10), step=st.integers(0, 10**6), ranks=st.integers(1, 999))
def test_a_step_is_read_with_its_time_and_its_ranks(at: int, step: int, ranks: int) -> None:
    assert step_of(f"{at}.250 step {step} of {ranks} ranks\n") == (at + 0.25, step, ranks)


@pytest.mark.parametrize(
    "line", ["", "epoch 1", "12.5 step 3 of four ranks", "soon step 3 of 4 ranks", "12.5 step 3 of 4 ranks more"]
)
def test_another_line_is_no_step(line: str) -> None:
    assert step_of(line) is None


def test_phases_are_those_between_the_loss_and_the_next_step() -> None:
    lines = [
        'spotkeep-event: {"event":"start","time":5.0}',
        'spotkeep-event: {"event":"world-began","time":11.5}',
        'spotkeep-event: {"event":"start","time":12.0}',
        "11.0 step 7 of 4 ranks",
        'spotkeep-event: {"event":"resume","ti',
        'spotkeep-event: {"event":"resume","time":15.25}',
    ]
    found = phases_of("\n".join(lines), since=10.0, until=15.5)
    assert found == {"world-began": 1.5, "start": 0.5, "resume": 3.25, "step": 0.25}
