"""Reads `--since`: how long ago (`7d`), or a date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spotkeep_cli.errors import UsageError
from spotkeep_jobs.document.durations import parse_duration
from spotkeep_jobs.errors import DurationError


def parse_since(text: str, *, now: datetime) -> datetime:
    """The time meant by `7d`, `12h`, `2026-11-01` or `2026-11-01T08:00:00Z`; a time without a zone is UTC.

    Raises:
        UsageError: It is neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=parse_duration(text))
        except (DurationError, OverflowError) as error:
            raise UsageError(
                f"--since takes a duration or a date, found {text!r}",
                hint="for example: --since 7d, --since 2026-11-01",
            ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
