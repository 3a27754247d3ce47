"""Parses the launcher's payload once, into a type. It refuses all errors of the payload at once.

Pure. A payload without an action is a document to launch. Other modules read the documents, each for its kind of
launch. A plan may come with the document of one run. It has the solved policy as a table, and the forecasts.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ValidationError

from spotkeep_jobs.document.reading import nearest, outlined, shown
from spotkeep_jobs.document.times import parse_duration
from spotkeep_jobs.errors import DurationError, Problem, RequestRefusedError
from spotkeep_jobs.record.fields import MAX_PLAN_BYTES
from spotkeep_jobs.record.record import Plan
from spotkeep_jobs.schedules.scheduled_launches import LAUNCH_SCHEDULED
from spotkeep_jobs.sweeps.launcher_function import ADVANCE
from spotkeep_planner.steering import DecisionTable

ACTIONS: Final = (
    "launch",
    "validate",
    "stop",
    "resume",
    "describe",
    "replay-notifications",
    "pause",
    "priority",
    "shell",
    "pools",
    "extend-pool",
    "stop-pool",
    "remove-schedule",
)
"""The actions that users may ask for."""
_LONGEST_ID: Final = 63
_LONGEST_COMMAND: Final = 4_000
_MOST_UNKNOWN_FIELDS: Final = 100


@dataclass(frozen=True, kw_only=True)
class DocumentAction:
    """A job, a sweep or a schedule is launched, or judged only.

    Attributes:
        document: The document, of any JSON type.
        action: The action on the document.
    """

    document: Any
    action: Literal["launch", "validate"]


@dataclass(frozen=True, kw_only=True)
class RunAction:
    """An action on a run.

    Attributes:
        action: The name of the action.
        run: The run's id.
        changes: The fields that a resume changes.
    """

    action: Literal["stop", "resume", "describe", "replay-notifications"]
    run: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepAction:
    """An action on a sweep.

    Attributes:
        action: The name of the action.
        sweep: The sweep's id.
        changes: The fields that a resume changes.
        first: The number of the first described trial.
    """

    action: Literal["stop", "pause", "resume", "describe"]
    sweep: str
    changes: Mapping[str, Any]
    first: int = 1


@dataclass(frozen=True, kw_only=True)
class PriorityChange:
    """A run in a queue gets another priority.

    Attributes:
        run: Its id.
        priority: The new priority, of any type. The code of the queues checks it.
    """

    run: str
    priority: object


@dataclass(frozen=True, kw_only=True)
class ShellOpening:
    """A shell is opened in a run's training job, or on its instance.

    Attributes:
        run: The run's id.
        command: The command to run, or None for a shell.
        host: The number of the job's machine, from 1.
    """

    run: str
    command: str | None
    host: int


@dataclass(frozen=True)
class PoolListing:
    """The warm pools are listed."""


@dataclass(frozen=True, kw_only=True)
class PoolExtension:
    """The warm pool that a run leaves is kept for longer.

    Attributes:
        run: The run's id.
        seconds: By how much.
        kept_until: The end time that the caller saw, so that a repeat of the call adds nothing, or None for its present
            end.
    """

    run: str
    seconds: int
    kept_until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PoolEnd:
    """The warm pool that a run leaves is ended.

    Attributes:
        run: The run's id.
    """

    run: str


@dataclass(frozen=True, kw_only=True)
class ScheduleRemoval:
    """A schedule of a document is removed.

    Attributes:
        schedule: Its name.
    """

    schedule: str


Action = (
    DocumentAction
    | RunAction
    | SweepAction
    | PriorityChange
    | ShellOpening
    | PoolListing
    | PoolExtension
    | PoolEnd
    | ScheduleRemoval
)


def read_action(payload: object) -> Action:
    """Read the action that a user asks for.

    Args:
        payload: The payload, of any JSON type.

    Raises:
        RequestRefusedError: It is no action, or lacks a field of the action. It carries every problem.
    """
    if not isinstance(payload, Mapping) or "action" not in payload:
        return DocumentAction(document=payload, action="launch")
    action = payload["action"]
    given = {name: value for name, value in payload.items() if name != "action"}
    match action:
        case "launch" | "validate":
            return DocumentAction(document=given, action=action)
        case "resume" if "sweep" in given:
            return SweepAction(action=action, **_read(given, sweep=_sweep_id, changes=_changes))
        case "describe" if "sweep" in given:
            fields = _read(given, **{"sweep": _sweep_id, "from": _first})
            return SweepAction(action=action, sweep=fields["sweep"], changes={}, first=fields["from"])
        case "pause" | "stop" if action == "pause" or "sweep" in given:
            return SweepAction(action=action, **_read(given, sweep=_sweep_id), changes={})
        case "resume":
            return RunAction(action=action, **_read(given, run=_run_id, changes=_changes))
        case "stop" | "describe" | "replay-notifications":
            return RunAction(action=action, **_read(given, run=_run_id), changes={})
        case "priority":
            return PriorityChange(**_read(given, run=_run_id, priority=lambda value: value))
        case "shell":
            return ShellOpening(**_read(given, run=_run_id, command=_command, host=_host))
        case "pools":
            _read(given)
            return PoolListing()
        case "extend-pool":
            fields = _read(given, **{"run": _run_id, "for": _seconds, "kept_until": _kept_until})
            return PoolExtension(run=fields["run"], seconds=fields["for"], kept_until=fields["kept_until"])
        case "stop-pool":
            return PoolEnd(**_read(given, run=_run_id))
        case "remove-schedule":
            return ScheduleRemoval(**_read(given, schedule=_schedule_name))
    raise _refused("action", action, f"is not one of {', '.join(ACTIONS)}", nearest(action, ACTIONS))


@dataclass(frozen=True, kw_only=True)
class SweepAdvance:
    """A sweep's next trials begin. The controller asks for it, and so does a launcher that ran out of time.

    Attributes:
        sweep: The sweep's id.
        ended_runs: The runs of trials that something happened to, or None to have them all read.
        in_a_row: Number of functions in a row before this one that had no time left, and asked the next.
    """

    sweep: str
    ended_runs: Collection[Any] | None = None
    in_a_row: int = 0


@dataclass(frozen=True, kw_only=True)
class ScheduleFiring:
    """EventBridge Scheduler says that a schedule of a document is due. Both values are of any type.

    Attributes:
        schedule: Its name.
        firing: The time when it was due.
    """

    schedule: object
    firing: object


def read_own_event(event: object) -> SweepAdvance | ScheduleFiring | None:
    """Read an event that the deployment itself sends to the launcher. None for a user's event.

    The event names no caller. The record holds the action, and the name of the user that it is done for.

    Args:
        event: The event of the invocation. The body of a request to the URL always counts as a user's.

    Raises:
        RequestRefusedError: It names no sweep to advance.
    """
    action = event.get("action") if isinstance(event, Mapping) else None
    if not isinstance(event, Mapping) or action not in (ADVANCE, LAUNCH_SCHEDULED):
        return None
    if action == LAUNCH_SCHEDULED:
        return ScheduleFiring(schedule=event.get("schedule"), firing=event.get("firing"))
    sweep, runs = event.get("sweep"), event.get("runs")
    if not isinstance(sweep, str) or not (runs is None or isinstance(runs, Collection)):
        raise _refused("sweep", sweep, "is no sweep to advance", "Name one by its id.")
    in_a_row = event.get("in_a_row", 0)
    if not isinstance(in_a_row, int) or in_a_row < 0:
        raise _refused("in_a_row", in_a_row, "is no number of functions", "Leave it out.")
    return SweepAdvance(sweep=sweep, ended_runs=runs, in_a_row=in_a_row)


def _read(given: Mapping[Any, Any], **fields: Callable[[Any], Any]) -> dict[str, Any]:
    """Read the fields that an action takes, and refuse all errors in them at once (I7).

    Args:
        given: The payload without its action.
        fields: The function that reads each field. It is given None for a missing field.
    """
    takes = " and ".join(f"`{name}`" for name in fields) + " alone" if fields else "nothing"
    problems = [
        _problem(shown(field), value, "is not a field of this action", f"Remove it: this action takes {takes}.")
        for field, value in list(given.items())[:_MOST_UNKNOWN_FIELDS]
        if field not in fields
    ]
    values = {}
    for name, read in fields.items():
        try:
            values[name] = read(given.get(name))
        except RequestRefusedError as error:
            problems += error.problems
    if problems:
        raise RequestRefusedError(problems)
    return values


def _run_id(value: object) -> str:
    return _id(value, "run", what="run id", listed_by="spotkeep ps --all")


def _sweep_id(value: object) -> str:
    return _id(value, "sweep", what="sweep id", listed_by="spotkeep ps --all")


def _schedule_name(value: object) -> str:
    return _id(value, "schedule", what="schedule's name", listed_by="spotkeep schedules ls")


def _id(value: object, field: str, *, what: str, listed_by: str) -> str:
    if isinstance(value, str) and 1 <= len(value) <= _LONGEST_ID:
        return value
    raise _refused(field, value, f"is not a {what}", f"See the {field}s: {listed_by}")


def _changes(value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return value
    problem = "is no object of fields and their new values"
    fix = 'Write the fields as in a job document: {"source": {"uri": ..., "sha256": ...}}.'
    raise RequestRefusedError([Problem(field="changes", found=outlined(value), problem=problem, fix=fix)])


def _command(value: object) -> str | None:
    if value is None or (isinstance(value, str) and 0 < len(value) <= _LONGEST_COMMAND):
        return value
    fix = f"Write 1 to {_LONGEST_COMMAND:,} characters as a shell reads them, or leave it out for a shell."
    raise _refused("command", value, "is no command", fix)


def _host(value: object) -> int:
    if value is None:
        return 1
    if type(value) is int and value >= 1:
        return value
    raise _refused("host", value, "is not a number from 1", "Give 1, or leave it out.")


def _first(value: object) -> int:
    if value is None:
        return 1
    if type(value) is int and value >= 1:
        return value
    raise _refused("from", value, "is not the number of a trial", "Give 1 or more, or leave it out.")


def _kept_until(value: object) -> datetime | None:
    if value is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        if (time := datetime.fromisoformat(value)).tzinfo is not None:  # type: ignore[arg-type]
            return time
    fix = "Give the pool's kept_until as the launcher answers it, or leave it out."
    raise _refused("kept_until", value, "is not a time with its zone", fix)


def _seconds(value: object) -> int:
    try:
        seconds = parse_duration(value)
    except DurationError as error:
        raise _refused("for", value, error.problem, error.fix) from None
    if seconds < 1:
        fix = "Write a duration such as 30m; to end the pool, use stop-pool."
        raise _refused("for", value, "is no time: it says by how much longer to keep the pool", fix)
    return seconds


def _refused(field: str, value: object, problem: str, fix: str) -> RequestRefusedError:
    return RequestRefusedError([_problem(field, value, problem, fix)])


def _problem(field: str, value: object, problem: str, fix: str) -> Problem:
    return Problem(field=field, found=shown(value), problem=problem, fix=fix)


def plan_of(document: object) -> tuple[object, Plan | None, list[Problem]]:
    """Return a document without its plan, the plan, and the plan's problems.

    Args:
        document: A payload of any type.
    """
    if not isinstance(document, Mapping) or "plan" not in document:
        return document, None, []
    given = document["plan"]
    rest = {name: value for name, value in document.items() if name != "plan"}
    if given is None:
        return rest, None, []
    if document.get("runs") not in (None, 1):
        problem = "is of one run, and the document launches several"
        return rest, None, [Problem(field="plan", found=shown(given), problem=problem, fix="Remove it.")]
    try:
        return rest, _parsed_plan(given), []
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        return (
            rest,
            None,
            [_plan_problem(given, f"cannot be read ({where}: {detail['msg']})" if where else "cannot be read")],
        )
    except ValueError as error:  # DecisionTableError is one.
        return rest, None, [_plan_problem(given, f"cannot be used: {error}")]


def _parsed_plan(given: object) -> Plan:
    plan = Plan.model_validate(given)
    size = len(json.dumps(given, default=str))
    if size > MAX_PLAN_BYTES:
        raise ValueError(f"it has {size:,} bytes, {MAX_PLAN_BYTES:,} are allowed")
    table = DecisionTable.from_document(plan.table)
    if len(table.zones) != 1:
        raise ValueError("its table chooses among zones, and managed spot chooses them itself")
    return plan


def _plan_problem(given: object, problem: str) -> Problem:
    fix = "Launch with `spotkeep launch`, which makes one, or without: the guard alone then keeps the deadline."
    return Problem(field="plan", found=shown(given), problem=problem, fix=fix)
