"""Search for training jobs by what describes them and by their tags: the part of the API that finds jobs in bulk.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_Search.html
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.service_base.aws_service import ValidationError
from spotkeep_local.training.description import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_local.training.job import TrainingJob

_DEFAULT_PAGE = 10
_UNKNOWN_FIELDS = ("NestedFilters", "SubExpressions")


def search_jobs(jobs: Iterable[TrainingJob], request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a Search request that fits the service model, in the order of the jobs' names.

    Every filter must hold. Resources other than training jobs, operators other than Equals and nested expressions are
    refused.

    Raises:
        ValidationError: The request asks for what the local AWS does not have; names every such thing.
    """
    expression = request.get("SearchExpression", {})
    filters = expression.get("Filters", [])
    if problems := _problems(request, expression, filters):
        raise ValidationError.of(problems)
    now = time.time()
    after = request.get("NextToken", "")
    found = sorted((job for job in jobs if job.name > after and _matches(job, filters, now)), key=lambda job: job.name)
    limit = request.get("MaxResults", _DEFAULT_PAGE)
    page = found[:limit]
    answer: dict[str, Any] = {"Results": [{"TrainingJob": _record(job, now)} for job in page]}
    if len(found) > limit:
        answer["NextToken"] = page[-1].name
    return answer


def _problems(request: dict[str, Any], expression: dict[str, Any], filters: list[dict[str, Any]]) -> list[str]:
    problems = []
    if request["Resource"] != "TrainingJob":
        problems.append(f"the local AWS searches TrainingJob only, not {request['Resource']}")
    problems += [f"the local AWS knows no {name} in a search" for name in _UNKNOWN_FIELDS if expression.get(name)]
    if expression.get("Operator", "And") != "And":
        problems.append("the local AWS joins the filters of a search with And only")
    operators = {each.get("Operator", "Equals") for each in filters}
    problems += [f"the local AWS knows no operator {name} in a search" for name in sorted(operators - {"Equals"})]
    return problems


def _matches(job: TrainingJob, filters: list[dict[str, Any]], now: float) -> bool:
    described = describe(job, now=now)
    return all(_holds(job, described, each) for each in filters)


def _holds(job: TrainingJob, described: dict[str, Any], wanted: dict[str, Any]) -> bool:
    name = wanted["Name"]
    found = job.tags.get(name.removeprefix("Tags.")) if name.startswith("Tags.") else described.get(name)
    return found is not None and str(found) == wanted.get("Value", "")


def _record(job: TrainingJob, now: float) -> dict[str, Any]:
    return describe(job, now=now) | {"Tags": [{"Key": key, "Value": value} for key, value in job.tags.items()]}
