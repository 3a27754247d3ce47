"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.times import format_duration, parse_duration
from spotkeep_jobs.errors import DurationError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(5400, 5400), (5400.0, 5400), ("5400", 5400), (" 90m ", 5400), ("1h30m", 5400), ("1d 2h 3m 4s", 93_784), (0, 0)],
)
def test_reads_seconds_and_units(written: object, seconds: int) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", " ", "h", "-4h", "30m1h", "1h1h", "4H", "٤h", "9" * 40 + "h", "1.5h", "0x10"])
def test_refuses_what_is_not_exactly_a_duration(written: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(written)


@pytest.mark.parametrize("value", [True, None, [], -1, 1.5, float("nan"), float("inf"), b"4h"])
def test_refuses_other_types_and_numbers(value: object) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(value)
    assert "90m" in caught.value.fix


@pytest.mark.parametrize(
    ("written", "likely"),
    [("4 hours", "4h"), ("90 min", "1h30m"), ("1.5h", "1h30m"), ("2 weeks", "14d"), ("30 Seconds", "30s")],
)
def test_says_how_to_write_what_was_probably_meant(written: str, likely: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(written)
    assert caught.value.fix.endswith(f"write {likely}.")


@given(seconds=st.integers(0, 10**9))
def test_a_written_duration_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(value=st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.binary(), st.lists(st.text())))
def test_anything_is_a_number_of_seconds_or_a_duration_error(value: object) -> None:
    problem = ""
    seconds: object = None
    try:
        seconds = parse_duration(value)
    except DurationError as error:
        problem = error.problem and error.fix
    assert bool(problem) != (isinstance(seconds, int) and seconds >= 0)
