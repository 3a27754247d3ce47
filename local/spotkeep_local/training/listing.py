"""ListTrainingJobs: by the filters that have callers, in the order of creation, page by page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.service_base.aws_service import ValidationError
from spotkeep_local.training.description import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from spotkeep_local.training.job import TrainingJob

_DEFAULT_PAGE = 10
_PAGES = frozenset({"MaxResults", "NextToken", "SortBy", "SortOrder"})
_FILTERS: dict[str, Callable[[TrainingJob, Any], bool]] = {
    "NameContains": lambda job, text: text.lower() in job.name.lower(),
    "StatusEquals": lambda job, status: bool(job.status == status),
    "CreationTimeAfter": lambda job, moment: bool(job.created_at >= moment),
    "LastModifiedTimeAfter": lambda job, moment: bool(job.updated_at >= moment),
    "WarmPoolStatusEquals": lambda job, status: job.warm_pool is not None and job.warm_pool.status == status,
}


def list_jobs(jobs: Iterable[TrainingJob], request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a ListTrainingJobs request that fits the service model.

    Raises:
        ValidationError: The local AWS has no such filter or order, or the token is not one of ours.
    """
    if problems := list(_problems(request)):
        raise ValidationError.of(problems)
    ordered = sorted(jobs, key=lambda job: (job.created_at, job.name), reverse=request.get("SortOrder") == "Descending")
    wanted = [(_FILTERS[name], value) for name, value in request.items() if name in _FILTERS]
    left = ordered[_place_after(request.get("NextToken"), ordered) :]
    found = [job for job in left if all(passes(job, value) for passes, value in wanted)]
    limit = request.get("MaxResults", _DEFAULT_PAGE)
    page = found[:limit]
    answer: dict[str, Any] = {"TrainingJobSummaries": [summarize(job, now=time.time()) for job in page]}
    if len(found) > limit:
        answer["NextToken"] = page[-1].name
    return answer


def _problems(request: dict[str, Any]) -> Iterator[str]:
    for name in request.keys() - _FILTERS.keys() - _PAGES:
        yield f"the local AWS lists training jobs by {', '.join(_FILTERS)}, not by {name}"
    if (order := request.get("SortBy", "CreationTime")) != "CreationTime":
        yield f"the local AWS lists training jobs in the order of their CreationTime, not of their {order}"


def _place_after(token: str | None, jobs: list[TrainingJob]) -> int:
    """Return where a page begins. A token names the last job of a page: jobs that start between two shift nothing."""
    if token is None:
        return 0
    names = [job.name for job in jobs]
    if token not in names:
        raise ValidationError("The NextToken is not valid.")
    return names.index(token) + 1
