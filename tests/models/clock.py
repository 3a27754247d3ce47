"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

NOON: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Clock:
    """A clock that stands until a test moves it; it begins at noon.

    Attributes:
        time: The time.
    """

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time

    @property
    def seconds(self) -> float:
        """The time, in seconds since noon."""
        return (self.time - NOON).total_seconds()

    @seconds.setter
    def seconds(self, value: float) -> None:
        self.time = NOON + timedelta(seconds=value)

    def pass_by(self, **delta: float) -> None:
        """Let time go by."""
        self.time += timedelta(**delta)
