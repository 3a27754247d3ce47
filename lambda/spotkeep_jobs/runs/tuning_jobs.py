"""Tuning jobs: SageMaker's own hyperparameter tuning, which Spotkeep does not launch but tells the end of.

A tuning job is followed when it carries the tag `spotkeep:deployment` with this deployment's name; the account's other
tuning jobs are nobody's business. From its first event until its end it is on a watch list in the run table, so that
the controller sees its end even when the last event is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.backends.sagemaker.request import DEPLOYMENT_TAG
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.notifications.texts.tuning import tuning_notification
from spotkeep_jobs.record.states import NotificationKind

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

    from spotkeep_jobs.record.record import Notification
    from spotkeep_jobs.record.run_table import RunTable

_KINDS: Final = {
    "Completed": NotificationKind.COMPLETED,
    "Failed": NotificationKind.FAILED,
    "Stopped": NotificationKind.STOPPED,
}


@dataclass(frozen=True, kw_only=True)
class TuningJob:
    """What DescribeHyperParameterTuningJob says, as far as a notification needs it.

    Attributes:
        name: Its name.
        deployment: The value of its tag `spotkeep:deployment`.
        status: As SageMaker names it.
        ended_at: When it ended, if it did.
        failure_reason: SageMaker's words.
        completed: Training jobs of it that completed.
        failed: Training jobs of it that failed.
        stopped: Training jobs of it that were stopped.
        best_job: The best training job so far.
        best_metric: `name value` of the objective there.
    """

    name: str
    deployment: str | None
    status: str
    ended_at: datetime | None = None
    failure_reason: str | None = None
    completed: int = 0
    failed: int = 0
    stopped: int = 0
    best_job: str | None = None
    best_metric: str | None = None


class TuningJobs(Protocol):
    """The seam: what Spotkeep asks of SageMaker about tuning jobs."""

    def describe(self, name: str, /) -> TuningJob | None:
        """Describe a tuning job with its tags; None if there is none of that name.

        Raises:
            AwsBusyError: SageMaker could not answer.
        """
        ...


class SageMakerTuningJobs:
    """The seam, on a boto3 client."""

    def __init__(self, client: SageMakerClient) -> None:
        self._client = client

    def describe(self, name: str, /) -> TuningJob | None:
        """Describe a tuning job; see `TuningJobs.describe`."""
        try:
            answer = self._client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
            pages = self._client.get_paginator("list_tags").paginate(ResourceArn=answer["HyperParameterTuningJobArn"])
            tags = {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
        except ClientError as error:
            code, reason = error.response["Error"]["Code"], error.response["Error"]["Message"]
            if code in {"ResourceNotFound", "ResourceNotFoundException"} or "not found" in reason.lower():
                return None
            raise AwsBusyError(operation=error.operation_name, code=code, reason=reason) from error
        except BotoCoreError as error:
            raise AwsBusyError(
                operation="DescribeHyperParameterTuningJob", code=type(error).__name__, reason=str(error)
            ) from error
        return tuning_job_of(answer, deployment=tags.get(DEPLOYMENT_TAG))


def tuning_job_of(answer: Mapping[str, Any], *, deployment: str | None) -> TuningJob:
    """Read an answer of DescribeHyperParameterTuningJob.

    Args:
        answer: The answer as boto3 gives it.
        deployment: The value of the job's tag `spotkeep:deployment`.
    """
    counts: Mapping[str, int] = answer.get("TrainingJobStatusCounters", {})
    best: Mapping[str, Any] = answer.get("BestTrainingJob", {})
    metric: Mapping[str, Any] = best.get("FinalHyperParameterTuningJobObjectiveMetric", {})
    return TuningJob(
        name=answer["HyperParameterTuningJobName"],
        deployment=deployment,
        status=answer["HyperParameterTuningJobStatus"],
        ended_at=answer.get("HyperParameterTuningEndTime"),
        failure_reason=answer.get("FailureReason"),
        completed=counts.get("Completed", 0),
        failed=counts.get("NonRetryableError", 0) + counts.get("RetryableError", 0),
        stopped=counts.get("Stopped", 0),
        best_job=best.get("TrainingJobName"),
        best_metric=f"{metric['MetricName']} {metric['Value']:g}" if "Value" in metric else None,
    )


def ending_of(job: TuningJob, *, deployment: str, now: datetime) -> Notification | None:
    """The notification of a tuning job's end; None while it has not ended.

    Args:
        job: What SageMaker says of it.
        deployment: The deployment's name.
        now: When the notification is written.
    """
    kind = _KINDS.get(job.status)
    if kind is None:
        return None
    trainings = f"Of its training jobs {job.completed} completed, {job.failed} failed, {job.stopped} stopped."
    if job.best_job is not None:
        trainings += f" The best was {job.best_job}" + (f" ({job.best_metric})." if job.best_metric else ".")
    return tuning_notification(
        tuning_job=job.name,
        kind=kind,
        trainings=trainings,
        failure_reason=job.failure_reason,
        happened_at=job.ended_at or now,
        deployment=deployment,
        created_at=now,
    )


class TuningObserver:
    """Puts the end of a tuning job into the outbox, once."""

    def __init__(self, *, table: RunTable, jobs: TuningJobs, deployment: str, clock: Callable[[], datetime]) -> None:
        self._table = table
        self._jobs = jobs
        self._deployment = deployment
        self._clock = clock

    def observe(self, name: str) -> bool:
        """Observe a tuning job.

        Args:
            name: As an event, or the watch list, names it.

        Returns:
            False when it is not this deployment's.

        Raises:
            AwsBusyError: SageMaker could not answer.
        """
        job = self._jobs.describe(name)
        if job is None:
            # It is gone; there is nothing to tell that anybody could look up.
            self._table.unwatch_tuning_job(name)
            return False
        if job.deployment != self._deployment:
            return False
        now = self._clock()
        ending = ending_of(job, deployment=self._deployment, now=now)
        if ending is None:
            self._table.watch_tuning_job(name, now=now)
        else:
            self._table.add_notification(ending)
            self._table.unwatch_tuning_job(name)
        return True
