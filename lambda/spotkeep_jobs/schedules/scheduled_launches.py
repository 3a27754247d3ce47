"""Schedules from their launch to their removal, and the launches of their firings.

The record comes first and decides. A schedule of EventBridge Scheduler without a record does nothing when it fires. A
firing launches a document like any other. The document is judged again at the firing, in the name of the schedule's
creator.

No other module makes or deletes recurring schedules in EventBridge Scheduler.

Source: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.document.reading import shown, too_large
from spotkeep_jobs.errors import AwsCallError, AwsRefusedError, Problem, RequestRefusedError
from spotkeep_jobs.notifications.texts.composition import addressed, clock, command_lines, quoted_reason, wrapped
from spotkeep_jobs.pools.scheduler_api import ScheduleTarget
from spotkeep_jobs.record.fields import MAX_SWEEP_BYTES, Caller, with_changes
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.schedule_store import ScheduleExistsError
from spotkeep_jobs.record.states import NotificationKind
from spotkeep_jobs.record.table_client import until_written
from spotkeep_jobs.runs.acceptance import problems_of_schedule_id
from spotkeep_jobs.runs.callers import with_owner
from spotkeep_jobs.runs.launch_completion import CALL_AGAIN, not_recorded, unfinished_without_an_answer
from spotkeep_jobs.schedules.document import (
    begins_at,
    firing_document,
    first_firing,
    next_firing,
    read_schedule,
    schedule_id_for,
)
from spotkeep_jobs.schedules.expression import expression_warnings
from spotkeep_jobs.sweeps.launch import notify_of
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings


def refused_firing_notification(
    *,
    schedule: Schedule,
    fired_at: datetime,
    refusal: str,
    next_firing: datetime | None,
    deployment: str,
    now: datetime,
) -> Notification:
    """Compose the notification that a firing launched nothing.

    Args:
        schedule: The schedule's item.
        fired_at: The schedule's time of the firing. Each try of it has the same.
        refusal: The launcher's refusal of its document.
        next_firing: The time of the next firing. None for never, or for an unknown one.
        deployment: The deployment's name.
        now: The time when the notification is written.
    """
    again = "" if next_firing is None else f"It fires again at {clock(next_firing)}. "
    lines = [
        *wrapped(
            f"Your schedule {schedule.schedule} fired at {clock(fired_at)}, and launched nothing: the deployment "
            "refuses its job file."
        ),
        *quoted_reason(refusal),
        "",
        *wrapped(f"{again}While it is refused for the same reason, no other notification is sent."),
        "",
        "Next",
        *command_lines(
            ("spotkeep schedules ls", "when it fires, and what it launched last"),
            (f"spotkeep schedules rm {schedule.schedule}", "remove it, then launch the changed file"),
        ),
    ]
    return addressed(
        what="schedule",
        subject_id=schedule.schedule,
        name=schedule.name,
        owner=schedule.owner,
        deployment=deployment,
        kind=NotificationKind.FAILED,
        nth=int(fired_at.timestamp()),
        subject="launched nothing: its job file is refused",
        lines=lines,
        facts={"refusal": refusal},
        happened_at=fired_at,
        created_at=now,
    )


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


_SHORTEN: Final = "Put long texts into a file of the source."
_OF_THE_LAUNCH: Final = frozenset({"schedule", "run", "token", "plan"})
"""The fields of a document that belong to the schedule itself, or that each launch sets anew."""
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class AskedSchedule:
    """A document with a schedule, as it was read.

    Attributes:
        schedule: The item that would be recorded, or None if the document's schedule cannot be read.
        judged: The document of the first firing, which is judged in place of the schedule's.
        first_firing: The time of the first firing, or None for a time zone that is not known here.
        problems: The schedule's faults.
        warnings: Probable mistakes in its expression.
    """

    schedule: Schedule | None
    judged: Mapping[str, Any]
    first_firing: datetime | None
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Firing:
    """A launch that a schedule asks for.

    Attributes:
        schedule: The schedule.
        at: The scheduled time of the firing, which is the same at each try.
        document: The document to launch.
        caller: The user that the launch is made for.
    """

    schedule: Schedule
    at: datetime
    document: Mapping[str, Any]
    caller: Caller | None


@dataclass(frozen=True)
class ScheduledLaunches:
    """Records schedules, and returns the documents that they launch."""

    deployment: Deployment[LauncherSettings]

    @property
    def _recurring(self) -> RecurringSchedules:
        deployment = self.deployment
        return RecurringSchedules(lambda: deployment.clients.scheduler, target=ScheduleTarget.of(deployment.settings))

    def read(self, document: Mapping[str, Any], *, default_token: str, caller: Caller | None) -> AskedSchedule:
        """Read a document with a schedule. Nothing is recorded.

        Args:
            document: A job document with `schedule`.
            default_token: The token of a document that has none.
            caller: The caller, if known.
        """
        now = self.deployment.now()
        request, problems = read_schedule(document, now=now)
        if self.deployment.settings.verify_callers and caller is not None:
            document = dict(with_owner(document, caller=caller))  # type: ignore[call-overload]
        launched = {name: value for name, value in document.items() if name not in _OF_THE_LAUNCH}
        if request is None:
            return AskedSchedule(schedule=None, judged=launched, first_firing=None, problems=tuple(problems))
        problems += too_large(launched, most=MAX_SWEEP_BYTES, record="a schedule's", fix=_SHORTEN)
        owner, team = document.get("owner"), document.get("team")
        token = document.get("token")
        schedule = Schedule(
            schedule=schedule_id_for(document, token=str(token or default_token)),
            name=str(document.get("name")),
            owner=owner if isinstance(owner, str) else None,
            launched_by=caller,
            team=team if isinstance(team, str) else None,
            expression=request.expression,
            timezone=request.timezone,
            created_at=now,
            begins_at=begins_at(request, now=now),
            token=str(token or default_token),
            document=launched,
        )
        known = self.deployment.table.schedules.get(schedule.schedule)
        if known is None:
            problems += problems_of_schedule_id(self.deployment.table, schedule.schedule, now=now)
        if known is not None and known.token != schedule.token:
            problems.append(schedule_exists(schedule.schedule))
        elif known is not None and not _asks_for_the_same(known, schedule):
            problems.append(_another_document(schedule))
        fires_at = first_firing(request, now=now)
        judged = firing_document(schedule, at=fires_at or now)
        if not isinstance(token, str | None):
            judged["token"] = token  # It is refused for it.
        return AskedSchedule(
            schedule=known or schedule,
            judged=judged,
            first_firing=fires_at,
            problems=tuple(problems),
            warnings=tuple(expression_warnings(request.expression)),
        )

    def begin(self, schedule: Schedule) -> tuple[Schedule, bool]:
        """Record a schedule that was judged, and create it in EventBridge Scheduler.

        Returns:
            Its item, and whether the same token began it before.

        Raises:
            RequestRefusedError: The schedule's id is taken, an id of its future runs is taken, or AWS refused it.
            LaunchUnfinishedError: AWS did not answer for certain. Call again with the same token.
        """
        scheduling = f"schedule {schedule.schedule!r}"
        try:
            with unfinished_without_an_answer(scheduling, then=not_recorded(schedule.token)):
                recorded, replayed = until_written(
                    lambda: self.deployment.table.schedules.open(schedule), pause=self.deployment.pause
                )
        except ScheduleExistsError:
            raise RequestRefusedError([schedule_exists(schedule.schedule)]) from None
        # From here on nothing gets an id of what it launches, but a job of another client, whatever its name. What was
        # launched a moment before may have one.
        if not replayed and (
            taken := problems_of_schedule_id(self.deployment.table, schedule.schedule, now=recorded.created_at)
        ):
            self.deployment.table.schedules.forget(schedule.schedule)
            raise RequestRefusedError(taken)
        try:
            with unfinished_without_an_answer(scheduling, then=_recorded_alone(schedule.token)):
                self._create(recorded)
        except RequestRefusedError:
            if not replayed:
                self.deployment.table.schedules.forget(schedule.schedule)
            raise
        return recorded, replayed

    def _create(self, schedule: Schedule) -> None:
        try:
            self._recurring.create(schedule, now=self.deployment.now())
        except AwsRefusedError as error:
            fix = "Change it as AWS says, or ask who runs the deployment."
            problem = f"is refused by EventBridge Scheduler: {error.reason}"
            found = shown(f"{schedule.expression}, {schedule.timezone}")
            raise RequestRefusedError([Problem(field="schedule", found=found, problem=problem, fix=fix)]) from error

    def known(self, schedule: str) -> Schedule:
        """Return a schedule's item.

        Raises:
            RequestRefusedError: The schedule is not known.
        """
        item = self.deployment.table.schedules.get(schedule)
        if item is None:
            fix = "See those there are: spotkeep schedules ls"
            problem = "is not a schedule of this deployment"
            raise RequestRefusedError([Problem(field="schedule", found=shown(schedule), problem=problem, fix=fix)])
        return item

    def remove(self, schedule: Schedule) -> None:
        """Remove a schedule. The runs that it launched go on.

        Raises:
            LaunchUnfinishedError: AWS did not do it for certain. Call again.
        """
        with unfinished_without_an_answer(f"removing schedule {schedule.schedule!r}", then=CALL_AGAIN):
            self._recurring.delete(schedule.schedule)
        self.deployment.table.schedules.forget(schedule.schedule)

    def firing(self, schedule: object, at: object) -> Firing | None:
        """Return the launch of a firing. None if the schedule is not recorded, or was not recorded at the firing.

        Args:
            schedule: The schedule's id from EventBridge Scheduler.
            at: The time of the firing from EventBridge Scheduler, such as `2026-11-26T02:00:00Z`.
        """
        item = self.deployment.table.schedules.get(schedule) if isinstance(schedule, str) and schedule else None
        fires_at = _time_of(at)
        if item is None or fires_at is None:
            return None
        if not item.begins_at - _CLOCKS_DIFFER <= fires_at <= self.deployment.now() + _CLOCKS_DIFFER:
            return None
        # A deployment may begin to verify callers later: one who was not verified when they asked is then unknown.
        caller = item.launched_by
        if self.deployment.settings.verify_callers and caller is not None and not caller.verified:
            caller = None
        return Firing(schedule=item, at=fires_at, document=firing_document(item, at=fires_at), caller=caller)

    def keep(self, firing: Firing, *, launched: str | None = None, refusal: str | None = None) -> None:
        """Record the result of a firing, and notify the schedule's owner of a new refusal.

        A refusal is new if the firing before did not have it. A late try does not change the record of a later firing.
        If the table is busy, the function fails. AWS Lambda then tries its event again, which launches nothing twice.

        Args:
            firing: The firing.
            launched: The id of the run or sweep that it launched.
            refusal: The reason why it launched nothing.

        Raises:
            RunChangedError: Another transaction was at the record. Nothing was written.
        """
        before = firing.schedule
        if before.last_firing is not None and before.last_firing > firing.at:
            return
        after = with_changes(before, last_firing=firing.at, last_launched=launched, last_refusal=refusal)
        notifications = []
        if refusal is not None and refusal != before.last_refusal and _wants_to_know(before):
            now = self.deployment.now()
            notifications = [
                refused_firing_notification(
                    schedule=after,
                    fired_at=firing.at,
                    refusal=refusal,
                    next_firing=next_firing(after, now=now),
                    deployment=self.deployment.name,
                    now=now,
                )
            ]
        self.deployment.table.schedules.keep_firing(after, notifications=notifications)


def _recorded_alone(token: str) -> str:
    """Return the state and the next step of a schedule that EventBridge Scheduler may not have."""
    return (
        "The schedule is recorded, and EventBridge Scheduler may not have it yet. Call again with the same document "
        f"and token {token}"
    )


def _wants_to_know(schedule: Schedule) -> bool:
    """Return True if the owner asked for notifications of failures."""
    return NotificationKind.FAILED in notify_of(schedule.document)


def _time_of(at: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(at) if isinstance(at, str) else None
    except ValueError:
        return None
    return None if time is None or time.tzinfo is None else time.astimezone(UTC)


def _asks_for_the_same(known: Schedule, asked: Schedule) -> bool:
    return (known.expression, known.timezone, known.document) == (asked.expression, asked.timezone, asked.document)


def _another_document(schedule: Schedule) -> Problem:
    return Problem(
        field="token",
        found=shown(schedule.token),
        problem=f"was used before, for schedule {schedule.schedule}, with another document",
        fix="Use a new token and another `run`, or send the first document again.",
    )


def schedule_exists(schedule: str) -> Problem:
    """Return the problem that the id is taken."""
    return Problem(
        field="run",
        found=shown(schedule),
        problem="is the name of a schedule that exists already",
        fix=f"Choose another, or remove that one first: spotkeep schedules rm {schedule}",
    )
