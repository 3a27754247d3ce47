"""I7: whatever a function is given, it answers, launches nothing and keeps secrets; in a short form."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.torture.control import bad_input


@pytest.mark.parametrize("function", bad_input.FUNCTIONS)
def test_i7_any_bad_input_is_answered_and_launches_nothing(function: str) -> None:
    fed = bad_input.InputCounts()
    how = settings(max_examples=60, suppress_health_check=list(HealthCheck))
    bad_input.trial(function, fed=fed, how=how)()
    assert fed.inputs >= 40
