"""Reads events as hints: what to look at. Pure; nothing else in an event is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TRAINING_JOB_CHANGED: Final = "SageMaker Training Job State Change"
TUNING_JOB_CHANGED: Final = "SageMaker HyperParameter Tuning Job State Change"

_NAME_FIELDS: Final = {
    TRAINING_JOB_CHANGED: "TrainingJobName",
    TUNING_JOB_CHANGED: "HyperParameterTuningJobName",
}
AGENT_SOURCE: Final = "spotkeep.agent"
FLEET_CHANGES: Final = (
    "EC2 Fleet State Change",
    "EC2 Fleet Instance Change",
    "EC2 Fleet Error",
    "EC2 Fleet Information",
)
_DETAIL_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "aws.sagemaker": tuple(_NAME_FIELDS),
    "aws.ec2fleet": FLEET_CHANGES,
    AGENT_SOURCE: ("Spotkeep Instance Change",),
}
_FLEET_ID: Final = re.compile(r"fleet-[0-9a-f-]{8,36}")
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")


class Subject(StrEnum):
    """What an event is about."""

    TRAINING_JOB = "training job"
    """An attempt, by the name of its job; that of an attempt on a fleet, too, when its instance tells."""
    TUNING_JOB = "tuning job"
    FLEET = "fleet"
    """Of EC2: whose it is, the event does not say."""


@dataclass(frozen=True, kw_only=True)
class Hint:
    """Something happened.

    Attributes:
        subject: To what kind of thing.
        name: Its name or id.
    """

    subject: Subject
    name: str


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a batch of messages says, each job once: SageMaker sends several events for one change.

    Attributes:
        messages: The ids of the messages that hint at a job, by hint, in the order in which the jobs came first.
        problems: Of the messages that hint at nothing, what is wrong.
    """

    messages: Mapping[Hint, Sequence[str]]
    problems: Sequence[str]


class NotAHintError(ValueError):
    """The event is none of those the tracker is subscribed to; it says what is wrong with it."""


def hint_of(event: object) -> Hint:
    """Read an event.

    Args:
        event: As EventBridge delivers it; anything at all, when somebody else calls.

    Raises:
        NotAHintError: It is no change of a training or tuning job or a fleet.
    """
    if not isinstance(event, Mapping):
        raise NotAHintError(f"the event is a {type(event).__name__}, not an object")
    source = event.get("source")
    if not isinstance(source, str) or source not in _DETAIL_TYPES:
        raise NotAHintError(f"its source is not one of: {', '.join(_DETAIL_TYPES)}")
    detail_type = event.get("detail-type")
    if not isinstance(detail_type, str) or detail_type not in _DETAIL_TYPES[source]:
        raise NotAHintError(f"its detail-type is not one of: {', '.join(_DETAIL_TYPES[source])}")
    detail = event.get("detail")
    fields = detail if isinstance(detail, Mapping) else {}
    if source == AGENT_SOURCE:
        return _of_an_agent(fields)
    if source == "aws.ec2fleet":
        return _of_a_fleet(event)
    subject = Subject.TUNING_JOB if detail_type == TUNING_JOB_CHANGED else Subject.TRAINING_JOB
    return _named(fields, _NAME_FIELDS[detail_type], subject)


def _named(fields: Mapping[str, object], field: str, subject: Subject) -> Hint:
    name = fields.get(field)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NotAHintError(f"its detail has no {field} that could be the name of a {subject}")
    return Hint(subject=subject, name=name)


def _of_an_agent(fields: Mapping[str, object]) -> Hint:
    run, attempt = fields.get("run"), fields.get("attempt")
    name = f"{run}-{attempt}"
    if not isinstance(run, str) or not isinstance(attempt, int) or isinstance(attempt, bool):
        raise NotAHintError("its detail has no run and attempt")
    return _named({"run": name}, "run", Subject.TRAINING_JOB)


def _of_a_fleet(event: Mapping[str, object]) -> Hint:
    resources = event.get("resources")
    for resource in resources if isinstance(resources, list) else ():
        found = _FLEET_ID.search(resource) if isinstance(resource, str) else None
        if found is not None:
            return Hint(subject=Subject.FLEET, name=found.group())
    raise NotAHintError("its resources name no fleet")


def batch_of(event: object) -> Batch | None:
    """Read the messages of a queue as the hints they hold.

    Args:
        event: As Lambda delivers a batch of SQS; anything at all, when somebody else calls.

    Returns:
        None when it is no batch, but perhaps an event itself.
        Source: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        return None
    messages: dict[Hint, list[str]] = {}
    problems: list[str] = []
    for record in records:
        try:
            message_id, hint = _message_of(record)
        except NotAHintError as error:
            problems.append(str(error))
        else:
            messages.setdefault(hint, []).append(message_id)
    return Batch(messages=messages, problems=problems)


def _message_of(record: object) -> tuple[str, Hint]:
    fields = record if isinstance(record, Mapping) else {}
    message_id, body = fields.get("messageId"), fields.get("body")
    if not isinstance(message_id, str) or not message_id or not isinstance(body, str):
        raise NotAHintError("the record is no message of a queue: it has no messageId or no body")
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotAHintError(f"the body of message {message_id} is no JSON: {error}") from error
    try:
        return message_id, hint_of(event)
    except NotAHintError as error:
        raise NotAHintError(f"message {message_id} holds no hint: {error}") from error
