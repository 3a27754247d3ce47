"""Reads the controller's event. It comes from a queue, AWS, a schedule, the clock, CloudFormation or a person.

Pure. An event only names the thing to reconcile. The controller believes nothing else in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.stack_deletion.stack_requests import stack_request

TRAINING_JOB_CHANGED: Final = "SageMaker Training Job State Change"

AGENT_SOURCE: Final = "spotkeep.agent"
FLEET_CHANGES: Final = (
    "EC2 Fleet State Change",
    "EC2 Fleet Instance Change",
    "EC2 Fleet Error",
    "EC2 Fleet Information",
)
SERVICE_JOB_CHANGES: Final = (
    "Batch Service Job Queue Blocked",
    "Batch Service Job State Change",
    "Batch Service Job Preemption Started",
    "Batch Service Job Preemption Completed",
)
_DETAIL_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "aws.sagemaker": (TRAINING_JOB_CHANGED,),
    "aws.ec2fleet": FLEET_CHANGES,
    AGENT_SOURCE: ("Spotkeep Instance Change",),
    "aws.batch": SERVICE_JOB_CHANGES,
}
_FLEET: Final = re.compile(r"arn:[^:]+:ec2:[^:]*:[^:]*:fleet/(fleet-[0-9a-f-]{8,36})")
_SERVICE_JOB: Final = re.compile(r"arn:[^:]+:batch:[^:]*:[^:]*:service-job/([0-9a-zA-Z-]{1,64})")
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")
_MOST_ATTEMPTS: Final = 999_999
CLOCK_EVENT: Final = {"reconcile": "everything"}
"""The event that the five-minute schedule sends to the controller. A test compares the construct's event with it."""
CLEAR_DELETION: Final = {"clear": "deletion"}
"""The event that the deployment's operator sends to the controller after a deletion that failed."""


class Subject(StrEnum):
    """The kind of thing that an event is about."""

    TRAINING_JOB = "training job"
    """An attempt, by the name of its job. An agent's event names the attempt on a fleet in the same way."""
    FLEET = "fleet"
    """A fleet of EC2. The event does not name the fleet's run."""
    SERVICE_JOB = "service job"
    """A service job of AWS Batch, by its id. An event of a preemption does not name the job's run."""


@dataclass(frozen=True, kw_only=True)
class Hint:
    """Something happened.

    Attributes:
        subject: The kind of thing that it happened to.
        name: The name or id of that thing.
        deployment: The value of a training job's tag `spotkeep:deployment`, from the event, or None without the tag.
        run: The value of its tag `spotkeep:run`, because AWS Batch chooses the names of a queue's training jobs.
    """

    subject: Subject
    name: str
    deployment: str | None = None
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """The hints in a batch of messages, each job once. SageMaker sends several events for one change.

    Attributes:
        messages: The ids of the messages that hint at a job, by hint, in the order in which the jobs came first.
        problems: A sentence for each message that gives no hint.
    """

    messages: Mapping[Hint, Sequence[str]]
    problems: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class PoolCheck:
    """A one-time schedule says that a pool's reminder or expiry is due.

    Attributes:
        run: The pool's run.
        attempt: The attempt with the job that left the pool.
    """

    run: str
    attempt: int


@dataclass(frozen=True)
class ClockTick:
    """Everything in flight is to be reconciled."""


@dataclass(frozen=True)
class DeletionClearing:
    """A deletion of the deployment that failed is to refuse nothing any more."""


ControllerEvent = EventBatch | Hint | PoolCheck | StackRequest | ClockTick | DeletionClearing


class UnknownEventError(ValueError):
    """The controller does not know this kind of event. The message says why."""


def controller_event_of(event: object, *, now: datetime) -> ControllerEvent:
    """Read the event that the controller was invoked with.

    An invocation without a payload sends None or an empty object. Both mean the same as the clock's event.

    Args:
        event: The event from Lambda, EventBridge, a schedule or CloudFormation, or any value from another caller.
        now: The time, aware.

    Raises:
        UnknownEventError: The event is none of these.
    """
    if event is None or event in ({}, CLOCK_EVENT):
        return ClockTick()
    if event == CLEAR_DELETION:
        return DeletionClearing()
    if not isinstance(event, Mapping):
        raise UnknownEventError(f"the event is a {type(event).__name__}, not an object")
    if isinstance(records := event.get("Records"), list):
        return _batch_of(records)
    if (request := stack_request(event, now=now)) is not None:
        return request
    if "run" in event:
        return _pool_check_of(event)
    return hint_of(event)


def hint_of(event: object) -> Hint:
    """Read an event.

    Args:
        event: The event from EventBridge, or any value from another caller.

    Raises:
        UnknownEventError: It is no change of a training job, a service job or a fleet.
    """
    if not isinstance(event, Mapping):
        raise UnknownEventError(f"the event is a {type(event).__name__}, not an object")
    source = event.get("source")
    if not isinstance(source, str) or source not in _DETAIL_TYPES:
        raise UnknownEventError(f"its source is not one of: {', '.join(_DETAIL_TYPES)}")
    detail_type = event.get("detail-type")
    if not isinstance(detail_type, str) or detail_type not in _DETAIL_TYPES[source]:
        raise UnknownEventError(f"its detail-type is not one of: {', '.join(_DETAIL_TYPES[source])}")
    detail = event.get("detail")
    fields = detail if isinstance(detail, Mapping) else {}
    if source == AGENT_SOURCE:
        return _of_an_agent(fields)
    if source == "aws.ec2fleet":
        return _named_by_resources(event, Subject.FLEET, _FLEET)
    if source == "aws.batch":
        return _named_by_resources(event, Subject.SERVICE_JOB, _SERVICE_JOB)
    run = _tagged(fields, RUN_TAG)
    return replace(
        _job_named(fields, "TrainingJobName"),
        deployment=_tagged(fields, DEPLOYMENT_TAG),
        run=run if run is not None and _NAME.fullmatch(run) else None,
    )


def _tagged(fields: Mapping[str, object], key: str) -> str | None:
    tags = fields.get("Tags")
    value = tags.get(key) if isinstance(tags, Mapping) else None
    return value if isinstance(value, str) else None


def _job_named(fields: Mapping[str, object], field: str) -> Hint:
    name = fields.get(field)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnknownEventError(f"its detail has no {field} that could be the name of a training job")
    return Hint(subject=Subject.TRAINING_JOB, name=name)


def _of_an_agent(fields: Mapping[str, object]) -> Hint:
    run, attempt = fields.get("run"), fields.get("attempt")
    name = f"{run}-{attempt}"
    if not isinstance(run, str) or not isinstance(attempt, int) or isinstance(attempt, bool):
        raise UnknownEventError("its detail has no run and attempt")
    return _job_named({"run": name}, "run")


def _named_by_resources(event: Mapping[str, object], subject: Subject, form: re.Pattern[str]) -> Hint:
    resources = event.get("resources")
    for resource in resources if isinstance(resources, list) else ():
        found = form.fullmatch(resource) if isinstance(resource, str) else None
        if found is not None:
            return Hint(subject=subject, name=found[1])
    raise UnknownEventError(f"its resources name no {subject}")


def _pool_check_of(event: Mapping[str, object]) -> PoolCheck:
    run, attempt = event.get("run"), event.get("attempt")
    if not isinstance(run, str) or not _NAME.fullmatch(run):
        raise UnknownEventError("it has no `run` that could be a run's id")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or not 1 <= attempt <= _MOST_ATTEMPTS:
        raise UnknownEventError("it has no `attempt` that is a number from 1")
    return PoolCheck(run=run, attempt=attempt)


def _batch_of(records: Sequence[object]) -> EventBatch:
    """Read the messages of a queue as the hints they hold.

    Source: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
    """
    messages: dict[Hint, list[str]] = {}
    problems: list[str] = []
    for record in records:
        try:
            message_id, hint = _message_of(record)
        except UnknownEventError as error:
            problems.append(str(error))
        else:
            messages.setdefault(hint, []).append(message_id)
    return EventBatch(messages=messages, problems=problems)


def _message_of(record: object) -> tuple[str, Hint]:
    fields = record if isinstance(record, Mapping) else {}
    message_id, body = fields.get("messageId"), fields.get("body")
    if not isinstance(message_id, str) or not message_id or not isinstance(body, str):
        raise UnknownEventError("the record is no message of a queue: it has no messageId or no body")
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnknownEventError(f"the body of message {message_id} is no JSON: {error}") from error
    try:
        return message_id, hint_of(event)
    except UnknownEventError as error:
        raise UnknownEventError(f"message {message_id} holds no hint: {error}") from error
