"""One-time schedules in EventBridge Scheduler, and the target of every schedule of a deployment.

Source: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError

if TYPE_CHECKING:
    from spotkeep_jobs.pools.warm_pool import PlannedSchedule
    from spotkeep_jobs.settings import DeploymentSettings

_RETRIES: Final = 20
_LONGEST_RETRY_SECONDS: Final = 3600


class ScheduleNotMadeError(SpotkeepJobsError):
    """A schedule could not be made. The controller reconciles the pool every few minutes anyway."""

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"schedule {name} was not made: {reason}. The controller reconciles the pool in its next pass")


@dataclass(frozen=True, kw_only=True)
class ScheduleTarget:
    """The group and the target of schedules.

    Attributes:
        group: The schedule group.
        function_arn: The function they invoke.
        role_arn: The role they invoke it with.
        dead_letter_arn: The queue for undelivered events. A schedule deletes itself even then.
    """

    group: str
    function_arn: str
    role_arn: str
    dead_letter_arn: str

    @classmethod
    def of(cls, settings: DeploymentSettings) -> Self:
        """Return the target of the schedules that a function makes.

        Args:
            settings: The function's settings.
        """
        return cls(
            group=settings.schedule_group,
            function_arn=settings.schedule_function_arn,
            role_arn=settings.schedule_role_arn,
            dead_letter_arn=settings.schedule_dead_letter_arn,
        )

    def as_target(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schedule's target, as Scheduler takes it. Scheduler retries for an hour, then the event is kept.

        Args:
            payload: The event that the function receives.
        """
        return {
            "Arn": self.function_arn,
            "RoleArn": self.role_arn,
            "Input": json.dumps(payload),
            "DeadLetterConfig": {"Arn": self.dead_letter_arn},
            "RetryPolicy": {
                "MaximumRetryAttempts": _RETRIES,
                "MaximumEventAgeInSeconds": _LONGEST_RETRY_SECONDS,
            },
        }


class OneTimeSchedules:
    """Makes one-time schedules."""

    def __init__(self, client: Any, *, target: ScheduleTarget) -> None:
        """Bind the group.

        Args:
            client: A client of EventBridge Scheduler.
            target: The group and the target of schedules.
        """
        self._client = client
        self._target = target

    def create(self, schedule: PlannedSchedule, /) -> None:
        """Make a schedule that deletes itself when it has fired, unless one of its name is there.

        Raises:
            ScheduleNotMadeError: It was refused, or that is not known.
        """
        try:
            self._client.create_schedule(
                Name=schedule.name,
                GroupName=self._target.group,
                ScheduleExpression=schedule.expression,
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target=self._target.as_target(schedule.payload),
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConflictException":
                raise ScheduleNotMadeError(name=schedule.name, reason=str(error)) from error
        except BotoCoreError as error:
            raise ScheduleNotMadeError(name=schedule.name, reason=str(error)) from error
