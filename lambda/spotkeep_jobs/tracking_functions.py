"""What the tracker and the reconciler are made of: the same settings, the same parts, on the same clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import boto3

from spotkeep_jobs.function_settings import FunctionSettings
from spotkeep_jobs.notice_topic import SnsNoticeTopic
from spotkeep_jobs.outbox import Outbox
from spotkeep_jobs.run_observer import RunObserver
from spotkeep_jobs.run_table import RunTable
from spotkeep_jobs.sagemaker_api import SageMakerTrainingJobs, TrainingJobs, client_config
from spotkeep_jobs.tracking import Deployment
from spotkeep_jobs.training_logs import CloudWatchJobLogs
from spotkeep_jobs.tuning_jobs import SageMakerTuningJobs, TuningObserver


class TrackingSettings(FunctionSettings):
    """What the tracker and the reconciler need to know."""

    notice_topic_arn: str


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """The parts, wired.

    Attributes:
        deployment: Its name and prices.
        clock: The time, aware.
        table: The run table.
        jobs: SageMaker's training jobs.
        runs: Observes runs.
        tuning: Observes tuning jobs.
        outbox: Delivers notices.
    """

    deployment: Deployment
    clock: Callable[[], datetime]
    table: RunTable
    jobs: TrainingJobs
    runs: RunObserver
    tuning: TuningObserver
    outbox: Outbox


def wired(settings: TrackingSettings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tracking:
    """Wire the parts on real clients.

    Args:
        settings: The function's settings.
        clock: The time, aware.
    """
    config = client_config()
    deployment = Deployment(name=settings.deployment, prices=settings.prices)
    sagemaker = boto3.client("sagemaker", config=config)
    jobs = SageMakerTrainingJobs(sagemaker)
    table = RunTable(
        client=boto3.client("dynamodb", config=config),
        table_name=settings.run_table,
        retention_days=settings.run_retention_days,
    )
    topic = SnsNoticeTopic(boto3.client("sns", config=config), topic_arn=settings.notice_topic_arn)
    logs = CloudWatchJobLogs(boto3.client("logs", config=config))
    return Tracking(
        deployment=deployment,
        clock=clock,
        table=table,
        jobs=jobs,
        runs=RunObserver(table=table, jobs=jobs, logs=logs, deployment=deployment, clock=clock),
        tuning=TuningObserver(
            table=table, jobs=SageMakerTuningJobs(sagemaker), deployment=settings.deployment, clock=clock
        ),
        outbox=Outbox(table=table, topic=topic, clock=clock),
    )
