"""Durations, money and sizes read the same everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.rendering import quantities


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (0.4, "0s"),
        (59.6, "1m"),
        (61, "1m 01s"),
        (3600, "1h"),
        (3_900, "1h 05m"),
        (86_400, "24h"),
        (200_000, "2d 7h"),
        (-90, "-1m 30s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert quantities.duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "-"),
        (0, "$0.00"),
        (0.0042, "$0.0042"),
        (-0.0042, "-$0.0042"),
        (1234.5, "$1,234.50"),
        (0.00004, "<$0.0001"),
        (-3, "-$3.00"),
    ],
)
def test_money(amount: float | None, text: str) -> None:
    assert quantities.dollars(amount) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (34_100, "34.1 kB"), (5 * 10**12, "5.0 TB")])
def test_sizes(count: int, text: str) -> None:
    assert quantities.size(count) == text


@given(st.floats(min_value=0, max_value=56 * 86_400))
def test_a_duration_has_two_units_at_most_and_is_short(seconds: float) -> None:
    text = quantities.duration(seconds)
    assert len(text.split()) <= 2
    assert len(text) <= 8


@given(st.integers(min_value=0, max_value=10**8))
def test_a_longer_time_is_an_older_age(seconds: int) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    assert quantities.age(now - timedelta(seconds=seconds), now=now)[-1] in "smhd"
    assert quantities.age(now + timedelta(seconds=5), now=now) == "0s"
