"""ListTrainingJobs: which jobs, in which order, page by page."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.aws_service import ValidationError
from spotkeep_local.training.description import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spotkeep_local.training.job import TrainingJob

_DEFAULT_PAGE = 10

_SORT_KEYS: dict[str, Callable[[TrainingJob], tuple[Any, str]]] = {
    "CreationTime": lambda job: (job.created_at, job.name),
    "Name": lambda job: (job.name, job.name),
    "Status": lambda job: (job.status.value, job.name),
}


def list_jobs(jobs: Iterable[TrainingJob], request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a ListTrainingJobs request that fits the service model.

    A token holds the place in the order, not a count: jobs that start or end between two pages shift nothing.

    Raises:
        ValidationError: The token is not one of ours.
    """
    key = _SORT_KEYS[request.get("SortBy", "CreationTime")]
    descending = request.get("SortOrder", "Ascending") == "Descending"
    ordered = sorted((job for job in jobs if _matches(job, request)), key=key, reverse=descending)
    if token := request.get("NextToken"):
        last = _read_token(token)
        ordered = [job for job in ordered if (key(job) < last if descending else key(job) > last)]
    limit = request.get("MaxResults", _DEFAULT_PAGE)
    page, more = ordered[:limit], ordered[limit:]
    answer: dict[str, Any] = {"TrainingJobSummaries": [summarize(job, now=time.time()) for job in page]}
    if more:
        answer["NextToken"] = _write_token(key(page[-1]))
    return answer


def _matches(job: TrainingJob, request: dict[str, Any]) -> bool:
    created, modified = job.created_at, job.updated_at
    return (
        request.get("NameContains", "").lower() in job.name.lower()
        and request.get("StatusEquals", job.status) == job.status
        and created >= request.get("CreationTimeAfter", created)
        and created <= request.get("CreationTimeBefore", created)
        and modified >= request.get("LastModifiedTimeAfter", modified)
        and modified <= request.get("LastModifiedTimeBefore", modified)
        and ("WarmPoolStatusEquals" not in request or _has_pool(job, request["WarmPoolStatusEquals"]))
        # No job here ever has a training plan.
        and "TrainingPlanArnEquals" not in request
    )


def _has_pool(job: TrainingJob, status: str) -> bool:
    return job.warm_pool is not None and job.warm_pool.status == status


def _write_token(place: tuple[Any, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_token(token: str) -> tuple[Any, str]:
    try:
        value, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise ValidationError("The NextToken is not valid.") from error
    return value, name
