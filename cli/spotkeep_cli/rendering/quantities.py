"""Writes durations, money, sizes and times the same way everywhere."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "-"


def duration(seconds: float | None) -> str:
    """Return two units at most, such as `45s`, `12m 30s`, `3h 05m` or `2d 4h`."""
    if seconds is None:
        return UNKNOWN
    sign = "-" if seconds < 0 else ""
    whole = round(abs(seconds))
    if whole < 60:
        return f"{sign}{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{sign}{minutes}m {rest:02d}s" if rest else f"{sign}{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{sign}{hours}h {minutes:02d}m" if minutes else f"{sign}{hours}h"
    days, hours = divmod(hours, 24)
    return f"{sign}{days}d {hours}h" if hours else f"{sign}{days}d"


def dollars(amount: float | None) -> str:
    """Return an amount in US dollars. Small amounts keep enough digits to differ from nothing."""
    if amount is None:
        return UNKNOWN
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    if 0 < size < 0.00005:
        return f"{sign}<$0.0001"
    if 0 < size < 0.01:
        return f"{sign}${size:.4f}"
    return f"{sign}${size:,.2f}"


def percent(share: float | None, *, at_most: bool = False) -> str:
    """Return a percentage without decimals, such as `63%`, or `≤63%` where it is at most that."""
    return UNKNOWN if share is None else f"{'≤' if at_most else ''}{round(share)}%"


def size(count: int) -> str:
    """Return bytes in decimal units, such as `34.1 kB`."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 1000:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def counted(count: int, thing: str) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def moment(time: datetime | None) -> str:
    """Return a time in UTC to the second, such as `2026-11-21 03:30:19`."""
    return UNKNOWN if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def age(time: datetime | None, *, now: datetime) -> str:
    """Return the time since a moment in one unit, such as `3m`."""
    if time is None:
        return UNKNOWN
    whole = max(0, round((now - time).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= length:
            return f"{whole // length}{unit}"
    return f"{whole}s"
