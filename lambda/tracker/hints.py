"""Reads an event as a hint: which job to look at. Pure; nothing else in an event is believed."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
