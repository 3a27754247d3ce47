"""EventBridge Scheduler in memory, spelled as boto3's client: one-time and recurring schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.models.faults import Called, Model, client_error


class Schedules(Model):
    """The schedules of an account. A one-time one deletes itself when its time has come.

    Attributes:
        made: When each one-time schedule that was made and has not fired fires, by name.
        recurring: The requests that the recurring schedules there are were made with, by name.
        refuses: What AWS says to the next recurring schedule that is made; None where it takes it.
    """

    def __init__(self, called: Called | None = None, *, now: Callable[[], datetime]) -> None:
        super().__init__(called)
        self._now = now
        self.made: dict[str, datetime] = {}
        self.recurring: dict[str, dict[str, Any]] = {}
        self.refuses: str | None = None

    def create_schedule(self, **schedule: Any) -> None:
        self._call("CreateSchedule", lambda: self._create(schedule))

    def delete_schedule(self, *, Name: str, GroupName: str) -> None:  # noqa: N803
        def delete() -> None:
            if self.recurring.get(Name, {}).get("GroupName") != GroupName:
                raise client_error("DeleteSchedule", "ResourceNotFoundException")
            del self.recurring[Name]

        self._call("DeleteSchedule", delete)

    def fire(self, name: str, at: str) -> dict[str, Any] | None:
        """Return what a recurring schedule invokes its function with when it fires; None for one that is gone.

        Args:
            name: The schedule.
            at: The scheduled time, as AWS writes it.
        """
        if name not in self.recurring:
            return None
        payload: dict[str, Any] = json.loads(
            self.recurring[name]["Target"]["Input"].replace("<aws.scheduler.scheduled-time>", at)
        )
        return payload

    def _create(self, schedule: dict[str, Any]) -> None:
        self._fire()
        if schedule["Name"] in self.made or schedule["Name"] in self.recurring:
            raise client_error("CreateSchedule", "ConflictException")
        expression = schedule["ScheduleExpression"]
        if not expression.startswith("at("):
            if self.refuses is not None:
                raise client_error("CreateSchedule", "ValidationException", self.refuses)
            self.recurring[schedule["Name"]] = schedule
            return
        self.made[schedule["Name"]] = datetime.fromisoformat(expression.removeprefix("at(").rstrip(")")).replace(
            tzinfo=UTC
        )

    def _fire(self) -> None:
        """Who is invoked by it, and when, is the story's choice."""
        now = self._now()
        self.made = {name: at for name, at in self.made.items() if at > now}
