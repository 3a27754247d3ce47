"""Batch's descriptions of its resources in answers, pages of lists and events. Times become epoch milliseconds.

Sources: DescribeServiceJob and ListServiceJobs in the AWS Batch API reference. "Service job state change events" and
"Service job preemption events" in its user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.batch.records import (
    SERVICE_JOBS,
    JobQueue,
    LocalServiceJob,
    QuotaShare,
    SchedulingPolicy,
    ServiceEnvironment,
    ServiceJobAttempt,
    SharingStrategy,
)
from spotkeep_local.batch.request_rules import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATE_CHANGE: Final = "Batch Service Job State Change"
QUEUE_BLOCKED: Final = "Batch Service Job Queue Blocked"
PREEMPTION_STARTED: Final = "Batch Service Job Preemption Started"
PREEMPTION_COMPLETED: Final = "Batch Service Job Preemption Completed"
_ECHOED: Final = (
    "retryStrategy",
    "serviceRequestPayload",
    "quotaShareName",
    "preemptionConfiguration",
    "timeoutConfig",
)
_NOT_IN_EVENTS: Final = ("serviceRequestPayload", "tags")
_LONGEST_PAGE: Final = 100


def environment(described: ServiceEnvironment) -> dict[str, Any]:
    """Describe a service environment."""
    return {
        "serviceEnvironmentName": described.name,
        "serviceEnvironmentArn": described.arn,
        "serviceEnvironmentType": SERVICE_JOBS,
        "state": _state(enabled=described.enabled),
        "status": "VALID",
        "capacityLimits": _limits(described.limits),
        "tags": described.tags,
    }


def queue(described: JobQueue) -> dict[str, Any]:
    """Describe a job queue."""
    return {
        "jobQueueName": described.name,
        "jobQueueArn": described.arn,
        "state": _state(enabled=described.enabled),
        "schedulingPolicyArn": described.policy,
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": described.priority,
        "computeEnvironmentOrder": [],
        "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": described.environment}],
        "jobQueueType": SERVICE_JOBS,
        "tags": described.tags,
        "jobStateTimeLimitActions": described.time_limit_actions,
    }


def policy(described: SchedulingPolicy) -> dict[str, Any]:
    """Describe a scheduling policy."""
    return {
        "name": described.name,
        "arn": described.arn,
        "quotaSharePolicy": described.quota_share,
        "tags": described.tags,
    }


def share(described: QuotaShare) -> dict[str, Any]:
    """Describe a quota share."""
    sharing: dict[str, Any] = {"strategy": described.strategy.value}
    if described.strategy is SharingStrategy.LEND_AND_BORROW:
        sharing["borrowLimit"] = described.borrow_limit
    return {
        "quotaShareName": described.name,
        "quotaShareArn": described.arn,
        "jobQueueArn": described.queue,
        "capacityLimits": _limits(described.limits),
        "resourceSharingConfiguration": sharing,
        "preemptionConfiguration": {"inSharePreemption": _state(enabled=described.preempts_within)},
        "state": _state(enabled=described.enabled),
        "status": "VALID",
        "tags": described.tags,
    }


def job(described: LocalServiceJob) -> dict[str, Any]:
    """Describe a service job, as DescribeServiceJob answers."""
    return {
        **summary(described),
        "jobQueue": described.queue,
        "attempts": [_attempt(attempt) for attempt in described.attempts],
        "isTerminated": described.terminate_reason is not None,
        "schedulingPriority": described.priority,
        "preemptionSummary": preemption_summary(described) if described.preempted_count else None,
        # The model has it in every answer; AWS does not say what it is before the start.
        "startedAt": _milliseconds(described.started_at) or 0,
        "tags": described.tags,
        **{name: described.request[name] for name in _ECHOED if name in described.request},
    }


def summary(described: LocalServiceJob) -> dict[str, Any]:
    """Describe a service job in a list."""
    found: dict[str, Any] = {
        "jobArn": described.arn,
        "jobId": described.job_id,
        "jobName": described.name,
        "serviceJobType": SERVICE_JOBS,
        "status": described.status.value,
        "statusReason": described.status_reason,
        "createdAt": _milliseconds(described.created_at),
        "scheduledAt": _milliseconds(described.scheduled_at),
        "startedAt": _milliseconds(described.started_at),
        "stoppedAt": _milliseconds(described.stopped_at),
        "latestAttempt": _latest(described),
        "capacityUsage": [{"capacityUnit": unit, "quantity": number} for unit, number in described.needs.items()],
        "isTerminated": True if described.terminate_reason is not None else None,
        "quotaShareName": described.request.get("quotaShareName"),
    }
    return {name: value for name, value in found.items() if value is not None}


def state_change(described: LocalServiceJob) -> dict[str, Any]:
    """Return the detail of a state change event. It is the description without payload and tags."""
    return {name: value for name, value in job(described).items() if value is not None and name not in _NOT_IN_EVENTS}


def preemption_started(described: LocalServiceJob, *, within_share: bool) -> dict[str, Any]:
    """Return the detail of the event that a job is about to give way."""
    why = (
        "In-share preemption triggered by a job of higher priority"
        if within_share
        else "Cross-share preemption triggered to reclaim borrowed capacity"
    )
    return {
        "preemptedJobArn": described.arn,
        "status": described.status.value,
        "statusReason": f"PREEMPTION_IN_PROGRESS: {why}",
    }


def preemption_completed(described: LocalServiceJob) -> dict[str, Any]:
    """Return the detail of the event that a job has given way."""
    return {
        "preemptedJobArn": described.arn,
        "status": described.status.value,
        "preemptionSummary": preemption_summary(described),
    }


def preemption_summary(described: LocalServiceJob) -> dict[str, Any]:
    """Return the number of a job's preemptions, and the last of them."""
    return {
        "preemptedAttemptCount": described.preempted_count,
        "recentPreemptedAttempts": [_attempt(attempt) for attempt in described.preempted],
    }


def page(items: Sequence[Any], request: Mapping[str, Any], *, member: str) -> dict[str, Any]:
    """Return one page of an answer.

    Args:
        items: All of them, described in order.
        request: With maxResults, from 1 to 100, and nextToken.
        member: The answer's member for them.

    Raises:
        ClientError: One of the two is not valid.
    """
    token, size = request.get("nextToken", "0"), request.get("maxResults", _LONGEST_PAGE)
    if not token.isdecimal():
        raise ClientError(f"nextToken is not one of this list: {token!r}")
    if not 1 <= size <= _LONGEST_PAGE:
        raise ClientError(f"maxResults must be from 1 to {_LONGEST_PAGE}, found {size}")
    start = int(token)
    end = start + size
    return {member: list(items[start:end]), "nextToken": str(end) if end < len(items) else None}


def _latest(described: LocalServiceJob) -> dict[str, Any] | None:
    arn = described.latest_training_job
    if arn is None:
        return None
    return {"serviceResourceId": {"name": "TrainingJobArn", "value": arn}}


def _attempt(attempt: ServiceJobAttempt) -> dict[str, Any]:
    found: dict[str, Any] = {
        "startedAt": _milliseconds(attempt.started_at),
        "stoppedAt": _milliseconds(attempt.stopped_at),
        "statusReason": attempt.reason,
    }
    if attempt.training_job is not None:
        found["serviceResourceId"] = {"name": "TrainingJobArn", "value": attempt.training_job}
    return {name: value for name, value in found.items() if value is not None}


def _limits(limits: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"maxCapacity": number, "capacityUnit": unit} for unit, number in limits.items()]


def _state(*, enabled: bool) -> str:
    return "ENABLED" if enabled else "DISABLED"


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
