"""The schedule of a job document, with the times and the documents of its firings. Pure.

The fields beside `schedule` are the job document that each firing launches, with or without `sweep`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from spotkeep_jobs.document.reading import MAX_RUN_ID_LENGTH, DocumentModel, problems_of, shown, wrong
from spotkeep_jobs.document.request import kind_of
from spotkeep_jobs.document.times import read_deadline
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.ids import id_of_firing
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.schedules.expression import Rate, next_after, read_expression, read_zone, zone_of
from spotkeep_jobs.sweeps.document import read_sweep
from spotkeep_jobs.sweeps.trial_documents import id_of

_FIRING_DIGITS: Final = len("-20261125-0200")


def _checked_expression(value: object) -> object:
    read_expression(value)
    return value


def _with_expression(value: object) -> object:
    """Return a schedule that was written as its expression alone, with its field's name."""
    if isinstance(value, str):
        return {"expression": value}
    if not isinstance(value, Mapping):
        raise wrong("is no schedule", "Write cron(0 2 * * ? *), or {expression: cron(0 2 * * ? *), timezone: UTC}")
    return value


class ScheduleRequest(DocumentModel):
    """When a document is launched, again and again."""

    expression: Annotated[str, BeforeValidator(_checked_expression)] = Field(examples=["cron(0 2 * * ? *)"])
    """cron(minute hour day-of-month month day-of-week year) or rate(12 hours), as EventBridge Scheduler reads them."""
    timezone: Annotated[str, BeforeValidator(read_zone)] = Field(default="UTC", examples=["Europe/Berlin"])
    """The time zone of a cron expression. Default: UTC."""


class _Document(DocumentModel):
    """The part of a document that is judged here."""

    model_config = ConfigDict(extra="ignore")
    schedule: Annotated[ScheduleRequest, BeforeValidator(_with_expression)]
    """When the document is launched."""


def launched_by_a_schedule(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of the job or the sweep that a schedule's document launches."""
    return {name: value for name, value in document.items() if name != "schedule"}


def read_schedule(document: Mapping[str, Any], *, now: datetime) -> tuple[ScheduleRequest | None, list[Problem]]:
    """Read the schedule of a document.

    Args:
        document: A job document with `schedule`.
        now: The time, aware.

    Returns:
        The request, or None if it cannot be read, and the problems of the schedule, alone and with the fields beside
        it.
    """
    try:
        request = _Document.model_validate(document).schedule
    except ValidationError as error:
        return None, [*problems_of(error, _Document, document=document), *_beside(document)]
    problems = _beside(document)
    if zone_of(request.timezone) is not None and first_firing(request, now=now) is None:
        problem, fix = "never fires any more", "Name days that are still to come: cron(0 2 * * ? *)."
        problems.append(Problem(field="schedule", found=shown(request.expression), problem=problem, fix=fix))
    return request, problems


def _beside(document: Mapping[str, Any]) -> list[Problem]:
    problems = []
    run = document.get("run")
    longest = MAX_RUN_ID_LENGTH - _behind_the_id(document)
    if isinstance(run, str) and len(run) > longest:
        problem = f"has {len(run)} characters; with the time of a firing behind it {longest} fit"
        problems.append(Problem(field="run", found=shown(run), problem=problem, fix="Shorten it."))
    deadline = document.get("deadline")
    try:
        is_a_time = isinstance(read_deadline(deadline), datetime)
    except PydanticCustomError:
        is_a_time = False  # The document is refused for it, where there is one.
    if deadline is not None and is_a_time:
        problem, fix = "is one time, and a schedule fires again and again", "Write how long after each firing: 12h."
        problems.append(Problem(field="deadline", found=shown(deadline), problem=problem, fix=fix))
    return problems


def _behind_the_id(document: Mapping[str, Any]) -> int:
    """Return the number of characters behind a schedule's id in the ids of the runs and trials that it launches."""
    of_sweep = kind_of(launched_by_a_schedule(document)) == "sweep"
    sweep = read_sweep(document, tpe=True)[0] if of_sweep else None
    return _FIRING_DIGITS + (0 if sweep is None else 1 + len(str(sweep.most_trials)))


def schedule_id_for(document: Mapping[str, Any], *, token: str) -> str:
    """Return the id of a schedule.

    It is the id in the document. Without one it is the document's name and the beginning of its token's hash.

    Args:
        document: The document.
        token: The launch's token.
    """
    return id_of(document, token=token, behind=_behind_the_id(document), nameless="schedule")


def first_firing(request: ScheduleRequest, *, now: datetime) -> datetime | None:
    """Return the first firing of a new schedule. None if it never fires, or if its time zone is not known here."""
    return next_after(request.expression, request.timezone, at=now, begins_at=begins_at(request, now=now))


def next_firing(schedule: Schedule, *, now: datetime) -> datetime | None:
    """Return the next firing of a schedule. None if it never fires, or if its time zone is not known here."""
    return next_after(schedule.expression, schedule.timezone, at=now, begins_at=schedule.begins_at)


def begins_at(request: ScheduleRequest, *, now: datetime) -> datetime:
    """Return the time before which a new schedule does not fire. For a rate this is its first firing.

    Without such a time EventBridge Scheduler fires a rate at once. A user that wants an immediate launch also launches
    the document by itself.
    """
    read = read_expression(request.expression)
    now = now.replace(microsecond=0)
    return now + timedelta(seconds=read.seconds) if isinstance(read, Rate) else now


def firing_document(schedule: Schedule, *, at: datetime) -> dict[str, Any]:
    """Return the job document that a firing launches. The same firing always has the same run and token.

    Args:
        schedule: The schedule.
        at: The scheduled time of the firing.
    """
    run = id_of_firing(schedule.schedule, at)
    return {
        **schedule.document,
        "run": run,
        "token": hashlib.sha256(f"{schedule.token}\n{run}".encode()).hexdigest(),
    }
