"""EventBridge Scheduler in memory: the one-time schedules of a group, spelled as boto3's client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.models.faults import Called, client_error


class Schedules:
    """One-time schedules, which delete themselves when their time has come.

    Attributes:
        made: What was made and has not fired, by name: when it fires, its input, when it was made.
    """

    def __init__(self, called: Called, *, removing: Callable[[str, str], None], now: Callable[[], datetime]) -> None:
        self._called = called
        self._removing = removing
        self._now = now
        self.made: dict[str, tuple[datetime, str, datetime]] = {}

    def create_schedule(self, **schedule: Any) -> None:
        self._called("CreateSchedule", lambda: self._create(schedule))

    def list_schedules(self, *, GroupName: str, MaxResults: int, NextToken: str = "0") -> Any:  # noqa: N803
        return self._called("ListSchedules", lambda: self._page(int(NextToken), MaxResults))

    def get_schedule(self, *, GroupName: str, Name: str) -> Any:  # noqa: N803
        return self._called("GetSchedule", lambda: {"Target": {"Input": self._found(Name)[1]}})

    def delete_schedule(self, *, GroupName: str, Name: str) -> None:  # noqa: N803
        def delete() -> None:
            self._removing("schedule", self._found(Name)[1])
            del self.made[Name]

        self._called("DeleteSchedule", delete)

    def _create(self, schedule: dict[str, Any]) -> None:
        self._fire()
        if schedule["Name"] in self.made:
            raise client_error("CreateSchedule", "ConflictException")
        at = datetime.fromisoformat(schedule["ScheduleExpression"].removeprefix("at(").rstrip(")")).replace(tzinfo=UTC)
        self.made[schedule["Name"]] = (at, schedule["Target"]["Input"], self._now())

    def _page(self, first: int, size: int) -> dict[str, Any]:
        self._fire()
        listed = [{"Name": name, "CreationDate": made_at} for name, (_, _, made_at) in sorted(self.made.items())]
        page: dict[str, Any] = {"Schedules": listed[first : first + size]}
        return page | ({"NextToken": str(first + size)} if first + size < len(listed) else {})

    def _found(self, name: str) -> tuple[datetime, str, datetime]:
        self._fire()
        if name not in self.made:
            raise client_error("GetSchedule", "ResourceNotFoundException")
        return self.made[name]

    def _fire(self) -> None:
        """Who is invoked by it, and when, is the story's choice."""
        now = self._now()
        self.made = {name: each for name, each in self.made.items() if each[0] > now}
