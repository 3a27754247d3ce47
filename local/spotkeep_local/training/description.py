"""The answers about a job, which are DescribeTrainingJob, ListTrainingJobs summaries and EventBridge events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.service_base.aws_service import ValidationError
from spotkeep_local.training.job import SecondaryStatusTransition, TrainingJob
from spotkeep_local.training.request_rules import instance_count, instance_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_IN_EVENTS = (
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "CheckpointConfig",
)
_ECHOED = (
    "HyperParameters",
    *_IN_EVENTS,
    "DebugHookConfig",
    "ExperimentConfig",
    "DebugRuleConfigurations",
    "TensorBoardOutputConfig",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "Environment",
    "RetryStrategy",
    "RemoteDebugConfig",
    "InfraCheckConfig",
    "MlflowConfig",
)

EVENT_DETAIL_TYPE = "SageMaker Training Job State Change"


_DEFAULT_PAGE = 10
_PAGES = frozenset({"MaxResults", "NextToken", "SortBy", "SortOrder"})
_FILTERS: dict[str, Callable[[TrainingJob, Any], bool]] = {
    "NameContains": lambda job, text: text.lower() in job.name.lower(),
    "StatusEquals": lambda job, status: bool(job.status == status),
    "CreationTimeAfter": lambda job, moment: bool(job.created_at >= moment),
    "LastModifiedTimeAfter": lambda job, moment: bool(job.updated_at >= moment),
    "WarmPoolStatusEquals": lambda job, status: job.warm_pool is not None and job.warm_pool.status == status,
}


_UNKNOWN_FIELDS = ("NestedFilters", "SubExpressions")


def describe(job: TrainingJob, *, now: float) -> dict[str, Any]:
    """Return the answer to DescribeTrainingJob. Times are epoch seconds."""
    return {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "TrainingJobStatus": job.status.value,
        "SecondaryStatus": job.secondary.value,
        "FailureReason": job.failure_reason,
        "ModelArtifacts": {"S3ModelArtifacts": job.model_artifacts or ""},
        "CreationTime": job.created_at,
        "TrainingStartTime": job.training_started_at,
        "TrainingEndTime": job.ended_at,
        "LastModifiedTime": job.updated_at,
        "SecondaryStatusTransitions": [_transition(t, unit=1) for t in job.transitions],
        "TrainingTimeInSeconds": job.training_time_seconds(now),
        "BillableTimeInSeconds": job.billable_time_seconds(now),
        "EnableNetworkIsolation": job.request.get("EnableNetworkIsolation", False),
        "EnableInterContainerTrafficEncryption": job.request.get("EnableInterContainerTrafficEncryption", False),
        "EnableManagedSpotTraining": job.spot,
        "ProfilingStatus": "Disabled",
        "WarmPoolStatus": _warm_pool(job, now=now),
    } | {name: _echoed(job, name) for name in _ECHOED if name in job.request}


def _warm_pool(job: TrainingJob, *, now: float) -> dict[str, Any] | None:
    pool = job.warm_pool
    if pool is None:
        return None
    return {
        "Status": pool.status.value,
        "ResourceRetainedBillableTimeInSeconds": pool.idle_seconds(now),
        "ReusedByJob": pool.reused_by,
    }


def _echoed(job: TrainingJob, name: str) -> Any:
    value = job.request[name]
    if name == "ResourceConfig" and "InstancePreferences" in value:
        selected = {"SelectedInstanceType": instance_type(job.request)}
        return value | selected | {"SelectedInstanceCount": instance_count(job.request)}
    return value


def summarize(job: TrainingJob, *, now: float) -> dict[str, Any]:
    """Return the job's line in the answer to ListTrainingJobs."""
    return {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "CreationTime": job.created_at,
        "TrainingEndTime": job.ended_at,
        "LastModifiedTime": job.updated_at,
        "TrainingJobStatus": job.status.value,
        "SecondaryStatus": job.secondary.value,
        "WarmPoolStatus": _warm_pool(job, now=now),
    }


def event_detail(job: TrainingJob) -> dict[str, Any]:
    """Return the detail of a state-change event. Times are epoch milliseconds, and there is no billable time.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/automating-sagemaker-with-eventbridge.html
    """
    detail: dict[str, Any] = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "TrainingJobStatus": job.status.value,
        "SecondaryStatus": job.secondary.value,
        "FailureReason": job.failure_reason,
        "HyperParameters": job.request.get("HyperParameters", {}),
        "CreationTime": _milliseconds(job.created_at),
        "TrainingStartTime": _milliseconds(job.training_started_at),
        "TrainingEndTime": _milliseconds(job.ended_at),
        "LastModifiedTime": _milliseconds(job.updated_at),
        "SecondaryStatusTransitions": [_transition(t, unit=1000) for t in job.transitions],
        "Tags": job.tags,
    }
    if job.model_artifacts:
        detail["ModelArtifacts"] = {"S3ModelArtifacts": job.model_artifacts}
    for name in _IN_EVENTS:
        if name in job.request:
            detail[name] = job.request[name]
    return {name: value for name, value in detail.items() if value is not None}


def _transition(transition: SecondaryStatusTransition, *, unit: int) -> dict[str, Any]:
    in_unit = _milliseconds if unit == 1000 else (lambda seconds: seconds)
    shown = {
        "Status": transition.status.value,
        "StartTime": in_unit(transition.start),
        "EndTime": in_unit(transition.end),
        "StatusMessage": transition.message,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


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
    """Return the place where a page begins.

    A token names the last job of a page, so jobs that start between two requests shift nothing.
    """
    if token is None:
        return 0
    names = [job.name for job in jobs]
    if token not in names:
        raise ValidationError("The NextToken is not valid.")
    return names.index(token) + 1


def search_jobs(jobs: Iterable[TrainingJob], request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a Search request that fits the service model, in the order of the jobs' names.

    Every filter must hold. Resources other than training jobs, operators other than Equals and nested expressions are
    refused.

    Raises:
        ValidationError: The request uses features that the local AWS lacks. Names all of them.
    """
    expression = request.get("SearchExpression", {})
    filters = expression.get("Filters", [])
    if problems := _problems_of_search(request, expression, filters):
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


def _problems_of_search(
    request: dict[str, Any], expression: dict[str, Any], filters: list[dict[str, Any]]
) -> list[str]:
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
