"""A launcher and a controller on the models of AWS."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from spotkeep_jobs.backends.backend import Backends
from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.ec2.jobs import NoFleets
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.request import JobPlatform
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy
from spotkeep_jobs.functions.controller_parts import ControllerParts, controller_parts
from spotkeep_jobs.functions.launcher_parts import LauncherParts, launcher_parts
from spotkeep_jobs.notifications.dead_notification_queue import DeadNotificationQueue
from spotkeep_jobs.notifications.notification_topic import NotificationTopic
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleTarget
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.record import Run, RunChange
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.schedules.recurring_schedules import RecurringSchedules
from spotkeep_jobs.sweeps.launcher_function import LauncherFunction
from tests.models.batch import Batch
from tests.models.clock import Clock
from tests.models.functions import Functions
from tests.models.notifications import SqsQueue, Topic
from tests.models.sagemaker import SageMaker
from tests.models.scheduler import Schedules

PLATFORM = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket="checkpoints",
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://checkpoints/bundles/0123abcd/spotkeep.pyz",
)
DEFAULTS = DeploymentDefaults(
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
)
TARGET = ScheduleTarget(group="launches", function_arn="launcher", role_arn="role", dead_letter_arn="queue")
PRICES = {"ml.m5.xlarge": 0.23}


def jobs_of(sagemaker: SageMaker) -> SageMakerTrainingJobs:
    """Return the backend on a model of SageMaker."""
    return SageMakerTrainingJobs(sagemaker)  # type: ignore[arg-type]


def queues_on(jobs: Any, batch: Batch | None = None, *, now: Callable[[], datetime] | None = None) -> ServiceJobs:
    """Return the queues of a deployment, on a model of AWS Batch or on none that answers."""
    return ServiceJobs(api=ServiceJobsApi(lambda: batch), training_jobs=jobs, deployment="spotkeep", now=now or Clock())


def launcher_on(table: RunTable, sagemaker: SageMaker, **parts: Any) -> LauncherParts:
    """Return a launcher's parts on models; a test names the parts that are not the usual ones."""
    usual: dict[str, Any] = {
        "platform": PLATFORM,
        "defaults": DEFAULTS,
        "prices": PRICES,
        "keep_bundle": lambda: None,
        "keep_parameters": lambda _file: None,
        "recurring": RecurringSchedules(lambda: Schedules(now=sagemaker.now), target=TARGET),
        "now": sagemaker.now,
        "sleep": lambda _seconds: None,
    }
    jobs = jobs_of(sagemaker)
    return launcher_parts(table=table, jobs=jobs, **{"queues": queues_on(jobs)} | usual | parts)


def controller_on(table: RunTable, sagemaker: SageMaker, **parts: Any) -> ControllerParts:
    """Return the controller's parts on models; a test names the parts that are not the usual ones."""
    deployment = DeploymentPolicy(name="spotkeep", prices=PRICES)
    jobs = parts.get("jobs") or jobs_of(sagemaker)
    usual: dict[str, Any] = {
        "deployment": deployment,
        "prices": KnownPrices(PRICES, region="us-east-1"),
        "jobs": jobs,
        "queues": queues_on(jobs, now=sagemaker.now),
        "logs": JobLogs(sagemaker.logs),  # type: ignore[arg-type]
        "topic": NotificationTopic(Topic(), topic_arn="topic"),  # type: ignore[arg-type]
        "dead_letters": DeadNotificationQueue(SqsQueue, queue_url="queue"),  # type: ignore[arg-type]
        "schedules": OneTimeSchedules(Schedules(now=sagemaker.now), target=TARGET),
        "launcher_function": LauncherFunction(Functions, function_name="spotkeep-launcher"),  # type: ignore[arg-type]
        "metric_log": MetricLog(deployment="spotkeep"),
        "keep_bundle": lambda: None,
        "clock": sagemaker.now,
    }
    return controller_parts(table=table, **usual | parts)


def completion_on(
    table: RunTable,
    jobs: Any,
    *,
    now: Callable[[], datetime],
    fleets: Any = None,
    queues: ServiceJobs | None = None,
    **policy: Any,
) -> LaunchCompletion:
    """Return what completes launches whose launcher died, as a reconciliation does."""
    return LaunchCompletion(
        table=table,
        backends=Backends(sagemaker=jobs, ec2=fleets or NoFleets(), queues=queues or queues_on(jobs)),
        deployment=DeploymentPolicy(**{"name": "spotkeep", "prices": PRICES} | policy),
        keep_bundle=lambda: None,
        now=now,
    )


def completed_launch(run: str, *, table: RunTable, sagemaker: SageMaker) -> Run:
    """Complete a launch whose launcher died."""
    return completion_on(table, jobs_of(sagemaker), now=sagemaker.now).complete(run)


def end_run(
    table: RunTable, sagemaker: SageMaker, run: str, *, state: RunState = RunState.STOPPED, **fields: Any
) -> Run:
    """End a run's job and record it, as a reconciliation does; return the run."""
    before = table.get(run)
    assert before is not None
    attempt = table.attempt(run, before.attempt)
    assert attempt is not None
    sagemaker.becomes(before.job_name, state.value.capitalize())
    reason = EndReason.COMPLETED if state is RunState.COMPLETED else EndReason.MAX_RUNTIME_EXCEEDED
    ended = {"end_reason": reason, "ended_at": before.updated_at, **fields}
    return table.commit(
        RunChange(
            run=before.model_copy(update={"state": state, **ended}),
            attempt=attempt.model_copy(update={"state": state, "end_reason": reason}),
        )
    )
