"""Reads events as hints: which jobs to look at. Pure; nothing else in an event is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

TRAINING_JOB_CHANGED: Final = "SageMaker Training Job State Change"
TUNING_JOB_CHANGED: Final = "SageMaker HyperParameter Tuning Job State Change"

_NAME_FIELDS: Final = {
    TRAINING_JOB_CHANGED: "TrainingJobName",
    TUNING_JOB_CHANGED: "HyperParameterTuningJobName",
}
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")


@dataclass(frozen=True, kw_only=True)
class Hint:
    """Something happened to a job.

    Attributes:
        job_name: The job.
        tuning: Whether it is a tuning job, not a training job.
    """

    job_name: str
    tuning: bool


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
        NotAHintError: It is no state change of a training or tuning job.
    """
    if not isinstance(event, Mapping):
        raise NotAHintError(f"the event is a {type(event).__name__}, not an object")
    if event.get("source") != "aws.sagemaker":
        raise NotAHintError("its source is not aws.sagemaker")
    detail_type = event.get("detail-type")
    if not isinstance(detail_type, str) or detail_type not in _NAME_FIELDS:
        raise NotAHintError(f"its detail-type is not one of: {', '.join(_NAME_FIELDS)}")
    field = _NAME_FIELDS[detail_type]
    detail = event.get("detail")
    name = detail.get(field) if isinstance(detail, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NotAHintError(f"its detail has no {field} that could be a job's name")
    return Hint(job_name=name, tuning=detail_type == TUNING_JOB_CHANGED)


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
