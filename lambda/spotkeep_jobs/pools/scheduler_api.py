"""One-time schedules in EventBridge Scheduler: the only module that calls its client.

Source: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError

if TYPE_CHECKING:
    from spotkeep_jobs.pools.pool_schedules import PlannedSchedule

_RETRIES: Final = 20
_LONGEST_RETRY_SECONDS: Final = 3600
_SCHEDULES_A_PAGE: Final = 100


class ScheduleNotMadeError(SpotkeepJobsError):
    """A schedule could not be made; the controller reconciles the pool every few minutes anyway."""

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"schedule {name} was not made: {reason}. The controller reconciles the pool in its next pass")


@dataclass(frozen=True, kw_only=True)
class ScheduleTarget:
    """Where schedules live and what they do.

    Attributes:
        group: The schedule group.
        function_arn: The function they invoke.
        role_arn: The role they invoke it with.
        dead_letter_arn: The queue for what could not be delivered: a schedule deletes itself even then.
    """

    group: str
    function_arn: str
    role_arn: str
    dead_letter_arn: str


class Schedules:
    """Makes one-time schedules."""

    def __init__(self, client: Any, *, target: ScheduleTarget) -> None:
        """Bind the group.

        Args:
            client: A client of EventBridge Scheduler.
            target: Where schedules live and what they do.
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
                Target={
                    "Arn": self._target.function_arn,
                    "RoleArn": self._target.role_arn,
                    "Input": json.dumps(schedule.payload),
                    "DeadLetterConfig": {"Arn": self._target.dead_letter_arn},
                    "RetryPolicy": {
                        "MaximumRetryAttempts": _RETRIES,
                        "MaximumEventAgeInSeconds": _LONGEST_RETRY_SECONDS,
                    },
                },
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConflictException":
                raise ScheduleNotMadeError(name=schedule.name, reason=str(error)) from error
        except BotoCoreError as error:
            raise ScheduleNotMadeError(name=schedule.name, reason=str(error)) from error
