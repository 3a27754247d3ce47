"""One-time schedules in EventBridge Scheduler: the only module that calls its client.

Source: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError

if TYPE_CHECKING:
    from datetime import datetime

    from spotkeep_jobs.pools.pool_schedules import PlannedSchedule

_RETRIES: Final = 20
_LONGEST_RETRY_SECONDS: Final = 3600
_SCHEDULES_A_PAGE: Final = 100


class ScheduleNotMadeError(SpotkeepJobsError):
    """A schedule could not be made; the controller looks every few minutes anyway."""

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"schedule {name} was not made: {reason}. The controller looks at the pool instead")


class ScheduleGroupUnreadableError(SpotkeepJobsError):
    """The schedules of a group could not be listed, read or deleted."""

    def __init__(self, *, group: str, reason: str) -> None:
        super().__init__(f"the schedule group {group} could not be worked on: {reason}")


@dataclass(frozen=True, kw_only=True)
class ListedSchedule:
    """A schedule, as a list of its group tells it.

    Attributes:
        name: Its name.
        made_at: When it was made.
    """

    name: str
    made_at: datetime


class ScheduleGroup(Protocol):
    """The seam: the schedules that were made and have not fired."""

    def listed(self) -> Iterator[ListedSchedule]:
        """Every schedule of the group.

        Raises:
            ScheduleGroupUnreadableError: It was refused, or that is not known.
        """
        ...

    def payload(self, name: str, /) -> Mapping[str, Any] | None:
        """What a schedule gives its target; None when there is none of that name (any more), empty when it is not ours.

        Raises:
            ScheduleGroupUnreadableError: It was refused, or that is not known.
        """
        ...

    def delete(self, name: str, /) -> None:
        """Delete a schedule, if it is there.

        Raises:
            ScheduleGroupUnreadableError: It was refused, or that is not known.
        """
        ...


class Schedules(Protocol):
    """The seam: where one-time schedules are made."""

    def create(self, schedule: PlannedSchedule, /) -> None:
        """Make a schedule, unless one of its name is there.

        Raises:
            ScheduleNotMadeError: It was refused, or that is not known.
        """
        ...


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


class EventBridgeSchedules:
    """The seam, on a boto3 client of `scheduler`."""

    def __init__(self, client: Any, *, target: ScheduleTarget) -> None:
        self._client = client
        self._target = target

    def create(self, schedule: PlannedSchedule, /) -> None:
        """Make a schedule that deletes itself when it has fired; see `Schedules.create`."""
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


class EventBridgeScheduleGroup:
    """The schedules of one group, on a boto3 client of `scheduler`; see `ScheduleGroup`."""

    def __init__(self, client: Any, *, group: str) -> None:
        self._client = client
        self._group = group

    def listed(self) -> Iterator[ListedSchedule]:
        """List the group; see `ScheduleGroup.listed`."""
        query: dict[str, Any] = {"GroupName": self._group, "MaxResults": _SCHEDULES_A_PAGE}
        while True:
            page = self._called(lambda: self._client.list_schedules(**query))
            if page is None:
                return  # The group itself is gone, and all its schedules with it.
            for entry in page["Schedules"]:
                yield ListedSchedule(name=entry["Name"], made_at=entry["CreationDate"])
            if not page.get("NextToken"):
                return
            query["NextToken"] = page["NextToken"]

    def payload(self, name: str, /) -> Mapping[str, Any] | None:
        """Read a schedule; see `ScheduleGroup.payload`."""
        found = self._called(lambda: self._client.get_schedule(GroupName=self._group, Name=name))
        if found is None:
            return None
        try:
            given = json.loads(found["Target"].get("Input", ""))
        except ValueError:
            return {}
        return given if isinstance(given, Mapping) else {}

    def delete(self, name: str, /) -> None:
        """Delete a schedule; see `ScheduleGroup.delete`."""
        self._called(lambda: self._client.delete_schedule(GroupName=self._group, Name=name))

    def _called(self, call: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
        try:
            return call()
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return None
            raise ScheduleGroupUnreadableError(group=self._group, reason=str(error)) from error
        except BotoCoreError as error:
            raise ScheduleGroupUnreadableError(group=self._group, reason=str(error)) from error
