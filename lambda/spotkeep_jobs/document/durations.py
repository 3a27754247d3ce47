"""Durations as people write them (`90m`, `4h`, `1h30m`, `3600`) and as SageMaker wants them (seconds)."""

from __future__ import annotations

import re

from spotkeep_jobs.errors import DurationError

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WRITTEN = re.compile(r"(?:(\d{1,9})d)?\s*(?:(\d{1,9})h)?\s*(?:(\d{1,9})m)?\s*(?:(\d{1,9})s)?", re.ASCII)
_WORDS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_LIKELY_UNIT = {
    "d": 86_400, "day": 86_400, "days": 86_400,
    "h": 3_600, "hr": 3_600, "hrs": 3_600, "hour": 3_600, "hours": 3_600,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip
_MANY_DIGITS = 15
FORMS = "Write seconds (5400), or a number with d, h, m or s: 90m, 4h, 2d, 1h30m"


def parse_duration(value: object) -> int:
    """Read a duration.

    Args:
        value: a whole number of seconds, or a string such as `90m`, `4h`, `2d`, `1h30m`, `3600`; units from the
            largest to the smallest, each at most once.

    Returns:
        The duration in seconds, 0 or more.

    Raises:
        DurationError: the value is no such thing; it says how to write what was probably meant.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DurationError(problem="is not a duration", fix=f"{FORMS}.")
    if isinstance(value, int | float):
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            raise DurationError(problem="is not a whole number of seconds", fix=f"{FORMS}.")
        if value < 0:
            raise DurationError(problem="is below zero", fix=f"{FORMS}.")
        return int(value)
    text = value.strip()
    if text.isascii() and text.isdigit() and len(text) <= _MANY_DIGITS:
        return int(text)
    match = _WRITTEN.fullmatch(text)
    if text and match:
        return sum(
            int(count) * seconds for count, seconds in zip(match.groups(), _SECONDS.values(), strict=True) if count
        )
    raise DurationError(problem="is not a duration Spotkeep can read", fix=_likely_meaning(text))


def format_duration(seconds: int) -> str:
    """Write a duration the shortest exact way: 5400 becomes `1h30m`, 0 becomes `0s`.

    Args:
        seconds: the duration, 0 or more.
    """
    parts = []
    for unit, size in _SECONDS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _likely_meaning(text: str) -> str:
    match = _WORDS.fullmatch(text)
    size = _LIKELY_UNIT.get(match.group(2).lower()) if match else None
    if match is None or size is None:
        return f"{FORMS}."
    return (
        f"If {match.group(1)} {match.group(2)} was meant, write {format_duration(round(float(match.group(1)) * size))}."
    )
