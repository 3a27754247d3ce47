"""Recurring schedules in EventBridge Scheduler. No other module makes or deletes them.

Source: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.errors import AwsCallError
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from spotkeep_jobs.pools.scheduler_api import ScheduleTarget
    from spotkeep_jobs.record.schedule import Schedule

LAUNCH_SCHEDULED: Final = "launch-scheduled"
"""The launcher's action that a schedule asks for. It works only in an invocation, never at the function's URL."""
SCHEDULED_TIME: Final = "<aws.scheduler.scheduled-time>"
"""Scheduler writes the firing's time in its place, the same at each try.
Source: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html"""


class RecurringSchedules:
    """The schedules of a group that launch documents."""

    def __init__(self, client: Callable[[], Any], *, target: ScheduleTarget) -> None:
        """Bind the group.

        Args:
            client: Makes the client of EventBridge Scheduler, when it is needed.
            target: The group and the target of the schedules.
        """
        self._client = client
        self._target = target

    def create(self, schedule: Schedule, *, now: datetime) -> None:
        """Make a schedule, unless one of its name is there.

        Args:
            schedule: Its item.
            now: The time, aware.

        Raises:
            AwsRefusedError: AWS will not take it.
            AwsBusyError: It is not known if the schedule was created.
        """
        payload = {"action": LAUNCH_SCHEDULED, "schedule": schedule.schedule, "firing": SCHEDULED_TIME}
        self._call(
            "create_schedule",
            unless="ConflictException",
            Name=schedule.schedule,
            GroupName=self._target.group,
            ScheduleExpression=schedule.expression,
            ScheduleExpressionTimezone=schedule.timezone,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=self._target.as_target(payload),
            # AWS takes no time that is over.
            **({"StartDate": schedule.begins_at} if schedule.begins_at > now else {}),
        )

    def delete(self, schedule: str) -> None:
        """Delete a schedule, if it is there.

        Raises:
            AwsRefusedError: AWS does not do it.
            AwsBusyError: It is not known if the schedule was deleted.
        """
        self._call("delete_schedule", unless="ResourceNotFoundException", Name=schedule, GroupName=self._target.group)

    def _call(self, method: str, *, unless: str, **parameters: Any) -> None:
        try:
            with typed_errors(method):
                getattr(self._client(), method)(**parameters)
        except AwsCallError as error:
            if error.code != unless:
                raise
