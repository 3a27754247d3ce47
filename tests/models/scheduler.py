"""EventBridge Scheduler in memory: the one-time schedules of a group, spelled as boto3's client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.models.faults import Called, Model, client_error


class Schedules(Model):
    """One-time schedules, which delete themselves when their time has come.

    Attributes:
        made: When each that was made and has not fired fires, by name.
    """

    def __init__(self, called: Called | None = None, *, now: Callable[[], datetime]) -> None:
        super().__init__(called)
        self._now = now
        self.made: dict[str, datetime] = {}

    def create_schedule(self, **schedule: Any) -> None:
        self._call("CreateSchedule", lambda: self._create(schedule))

    def _create(self, schedule: dict[str, Any]) -> None:
        self._fire()
        if schedule["Name"] in self.made:
            raise client_error("CreateSchedule", "ConflictException")
        at = datetime.fromisoformat(schedule["ScheduleExpression"].removeprefix("at(").rstrip(")")).replace(tzinfo=UTC)
        self.made[schedule["Name"]] = at

    def _fire(self) -> None:
        """Who is invoked by it, and when, is the story's choice."""
        now = self._now()
        self.made = {name: at for name, at in self.made.items() if at > now}
