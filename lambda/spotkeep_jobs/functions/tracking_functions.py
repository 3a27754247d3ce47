"""What tracker, warm_pools and reconciler are made of: the same settings, the same parts, on the same clients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime, timedelta
from typing import Annotated

import boto3
from pydantic import Field

from spotkeep_jobs.backends.ec2.jobs import NoFleets
from spotkeep_jobs.backends.ec2.owners import FleetOwners, NoFleetOwners
from spotkeep_jobs.backends.ec2.sweep import FleetSweep
from spotkeep_jobs.backends.sagemaker.api import (
    SageMakerTrainingJobs,
    SearchableTrainingJobs,
    TrainingJobs,
    client_config,
)
from spotkeep_jobs.backends.training_bundle import TrainingBundleStore
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.document.deployment import DEFAULT_LONG_WAIT, Deployment
from spotkeep_jobs.document.pool_rules import PoolRules
from spotkeep_jobs.functions.fleet_wiring import FleetSettings, fleet_parts, fleet_sweep_of
from spotkeep_jobs.functions.function_settings import FunctionSettings
from spotkeep_jobs.notifications.dead_notification_queue import SqsDeadNotificationQueue
from spotkeep_jobs.notifications.notification_topic import SnsNotificationTopic
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.pools.pool_watch import PoolWatch
from spotkeep_jobs.pools.scheduler_api import EventBridgeSchedules, ScheduleTarget
from spotkeep_jobs.progress.training_logs import CloudWatchJobLogs
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.runs.reconcile import RunObserver
from spotkeep_jobs.runs.tuning_jobs import SageMakerTuningJobs, TuningObserver


class TrackingSettings(FleetSettings, FunctionSettings):
    """What those who follow jobs and their pools need to know."""

    notification_topic_arn: str
    dead_notification_queue_url: str
    """Where the notifications go that SNS has refused for hours."""
    pool_schedule_group: str
    """Where the looks at warm pools are scheduled."""
    pool_schedule_role_arn: str
    pool_schedule_dead_letter_arn: str
    warm_pools_function_arn: str
    waiting_too_long_seconds: Annotated[int, Field(gt=0)] = int(DEFAULT_LONG_WAIT.total_seconds())
    deployment_metrics: bool = True
    """Whether the dashboard's metrics are written."""
    pool_reminder_seconds: Annotated[int, Field(ge=0)] = 600
    pool_idle_limit_seconds: Annotated[int, Field(gt=0)] | None = None
    pool_idle_limit_usd: Annotated[float, Field(gt=0)] | None = None

    @property
    def pool_rules(self) -> PoolRules:
        """What this deployment wants of warm pools."""
        return PoolRules(
            reminder_lead_seconds=self.pool_reminder_seconds,
            idle_limit_seconds=self.pool_idle_limit_seconds,
            idle_limit_usd=self.pool_idle_limit_usd,
        )


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """The parts, wired.

    Attributes:
        deployment: Its name and prices.
        prices: The same prices, to be brought up to date where an invocation begins.
        clock: The time, aware.
        table: The run table.
        jobs: SageMaker's training jobs.
        runs: Observes runs.
        pools: Looks at warm pools.
        tuning: Observes tuning jobs.
        outbox: Delivers notifications.
        fleets: Attempts on EC2.
        fleet_owners: Whose an instance or a fleet is.
        fleet_sweep: Removes what is left over of fleets; None in a deployment without.
        metric_log: Takes what became of runs, for the dashboard.
        keep_bundle: Makes sure that what jobs and instances start with is where they fetch it.
    """

    deployment: Deployment
    prices: KnownPrices
    clock: Callable[[], datetime]
    table: RunTable
    jobs: SearchableTrainingJobs
    runs: RunObserver
    pools: PoolWatch
    tuning: TuningObserver
    outbox: Outbox
    metric_log: MetricLog
    keep_bundle: Callable[[], None]
    fleets: TrainingJobs = dataclass_field(default_factory=NoFleets)
    fleet_owners: FleetOwners = dataclass_field(default_factory=NoFleetOwners)
    fleet_sweep: FleetSweep | None = None

    def refresh_prices(self) -> None:
        """Take over prices that were read since; at most one read of the table an hour."""
        self.prices.refresh(self.table, now=self.clock())


def wired(settings: TrackingSettings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tracking:
    """Wire the parts on real clients.

    Args:
        settings: The function's settings.
        clock: The time, aware.
    """
    config = client_config()
    sagemaker = boto3.client("sagemaker", config=config)
    prices = KnownPrices(settings.prices, region=sagemaker.meta.region_name)
    deployment = Deployment(
        name=settings.deployment,
        prices=prices,
        pool_rules=settings.pool_rules,
        limits=settings.spending_limits,
        long_wait=timedelta(seconds=settings.waiting_too_long_seconds),
    )
    jobs = SageMakerTrainingJobs(sagemaker)
    dynamodb = boto3.client("dynamodb", config=config)
    table = RunTable(
        client=dynamodb,
        table_name=settings.run_table,
        retention_days=settings.run_retention_days,
    )
    topic = SnsNotificationTopic(boto3.client("sns", config=config), topic_arn=settings.notification_topic_arn)
    dead_letters = SqsDeadNotificationQueue(
        functools.cache(lambda: boto3.client("sqs", config=config)), queue_url=settings.dead_notification_queue_url
    )
    logs_client = boto3.client("logs", config=config)
    logs = CloudWatchJobLogs(logs_client)
    platform = settings.fleet_platform
    fleets = fleet_parts(settings, platform=platform, dynamodb=dynamodb, prices=prices, now=clock)
    group = settings.fleet_log_group
    bundle = TrainingBundleStore(
        functools.partial(boto3.client, "s3", config=config),
        asset_uri=settings.training_bundle_asset_uri,
        uri=settings.training_bundle_uri,
    )
    schedules = EventBridgeSchedules(
        boto3.client("scheduler", config=config),
        target=ScheduleTarget(
            group=settings.pool_schedule_group,
            function_arn=settings.warm_pools_function_arn,
            role_arn=settings.pool_schedule_role_arn,
            dead_letter_arn=settings.pool_schedule_dead_letter_arn,
        ),
    )
    pools = PoolWatch(table=table, jobs=jobs, schedules=schedules, deployment=deployment, clock=clock)
    return Tracking(
        deployment=deployment,
        prices=prices,
        clock=clock,
        table=table,
        jobs=jobs,
        runs=RunObserver(
            table=table,
            jobs=jobs,
            logs=logs,
            deployment=deployment,
            keep_bundle=bundle.keep,
            clock=clock,
            pools=pools,
            fleets=fleets.jobs,
            fleet_logs=None if group is None else CloudWatchJobLogs(logs_client, group=group),
        ),
        pools=pools,
        tuning=TuningObserver(
            table=table, jobs=SageMakerTuningJobs(sagemaker), deployment=settings.deployment, clock=clock
        ),
        outbox=Outbox(table=table, topic=topic, dead_letters=dead_letters, clock=clock),
        fleets=fleets.jobs,
        fleet_owners=fleets.owners,
        fleet_sweep=fleet_sweep_of(settings, parts=fleets, table=table, now=clock),
        metric_log=MetricLog(deployment=settings.deployment, enabled=settings.deployment_metrics),
        keep_bundle=bundle.keep,
    )
