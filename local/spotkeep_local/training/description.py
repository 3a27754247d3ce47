"""A job as its readers see it: DescribeTrainingJob, a ListTrainingJobs summary, an EventBridge event."""

from __future__ import annotations

from typing import Any

from spotkeep_local.training.job import SecondaryStatusTransition, TrainingJob
from spotkeep_local.training.request_rules import instance_type

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


def describe(job: TrainingJob, *, now: float) -> dict[str, Any]:
    """Return the answer to DescribeTrainingJob; times are epoch seconds."""
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
        return value | {"SelectedInstanceType": instance_type(job.request)}
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
    """Return the detail of a state-change event; times are epoch milliseconds, and there is no billable time.

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
