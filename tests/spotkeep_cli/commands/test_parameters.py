"""`--since` takes how long ago, or a date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spotkeep_cli.commands.parameters import parse_since
from spotkeep_cli.errors import UsageError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", NOW - timedelta(days=7)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T08:00:00", datetime(2026, 11, 1, 8, tzinfo=UTC)),
        ("2026-11-01T08:00:00+02:00", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ],
)
def test_durations_and_dates(text: str, expected: datetime) -> None:
    assert parse_since(text, now=NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "7 fortnights", "99999999999999d", ""])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_since(text, now=NOW)
    assert "--since 7d" in refusal.value.hint
