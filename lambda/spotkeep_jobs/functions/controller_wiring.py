"""The controller's parts on real clients, its pass, and the end of its deployment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import boto3

from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.job_files import TrainingBundleStore
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.cost.price_list import PriceList, endpoint_region
from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
from spotkeep_jobs.functions.controller_parts import ControllerParts, controller_parts
from spotkeep_jobs.functions.environment import ControllerEnvironment
from spotkeep_jobs.functions.fleet_wiring import fleet_parts
from spotkeep_jobs.functions.full_pass import FullPass
from spotkeep_jobs.notifications.dead_notification_queue import DeadNotificationQueue
from spotkeep_jobs.notifications.notification_topic import NotificationTopic
from spotkeep_jobs.orphans.collector import OrphanCollector
from spotkeep_jobs.orphans.sources import OrphanSearch, sources_of
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleTarget
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.stack_deletion.shutdown import Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import Stacks
from spotkeep_jobs.sweeps.launcher_function import LauncherFunction


def wired(
    settings: ControllerEnvironment, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> ControllerParts:
    """Wire the parts on real clients.

    Args:
        settings: The controller's settings.
        clock: The time, aware.
    """
    config = client_config()
    sagemaker = boto3.client("sagemaker", config=config)
    dynamodb = boto3.client("dynamodb", config=config)
    logs = boto3.client("logs", config=config)
    prices = KnownPrices(settings.prices, region=sagemaker.meta.region_name)
    jobs = SageMakerTrainingJobs(sagemaker)
    table = RunTable(client=dynamodb, table_name=settings.run_table)
    fleets = fleet_parts(settings, table=table, dynamodb=dynamodb, prices=prices, now=clock)
    return controller_parts(
        deployment=DeploymentPolicy(
            name=settings.deployment,
            prices=prices,
            pool_rules=settings.pool_rules,
            limits=settings.spending_limits,
        ),
        prices=prices,
        table=table,
        jobs=jobs,
        queues=ServiceJobs(
            api=ServiceJobsApi(functools.cache(lambda: boto3.client("batch", config=config))),
            training_jobs=jobs,
            deployment=settings.deployment,
            now=clock,
            has_queues=bool(settings.queues),
        ),
        logs=JobLogs(logs),
        topic=NotificationTopic(boto3.client("sns", config=config), topic_arn=settings.notification_topic_arn),
        dead_letters=DeadNotificationQueue(
            functools.cache(lambda: boto3.client("sqs", config=config)),
            queue_url=settings.dead_notification_queue_url,
        ),
        schedules=OneTimeSchedules(
            boto3.client("scheduler", config=config),
            target=ScheduleTarget(
                group=settings.schedule_group,
                function_arn=settings.schedule_function_arn,
                role_arn=settings.schedule_role_arn,
                dead_letter_arn=settings.schedule_dead_letter_arn,
            ),
        ),
        launcher_function=LauncherFunction(
            functools.cache(lambda: boto3.client("lambda", config=config)), function_name=settings.launcher_function
        ),
        metric_log=MetricLog(deployment=settings.deployment, enabled=settings.deployment_metrics),
        keep_bundle=TrainingBundleStore(
            functools.partial(boto3.client, "s3", config=config),
            asset_uri=settings.training_bundle_asset_uri,
            uri=settings.training_bundle_uri,
        ).keep,
        clock=clock,
        fleets=fleets,
        fleet_logs=None if settings.fleet_log_group is None else JobLogs(logs, group=settings.fleet_log_group),
    )


def shutdown_on(parts: ControllerParts) -> Shutdown:
    """Make what ends the deployment's runs when the stack is deleted.

    Args:
        parts: The parts.
    """
    return Shutdown(
        table=parts.table,
        pools=parts.pools,
        completion=parts.completion,
        stacks=Stacks(lambda: boto3.client("cloudformation", config=client_config())),
        clock=parts.clock,
    )


def full_pass_on(parts: ControllerParts, settings: ControllerEnvironment) -> FullPass:
    """Make the pass over everything, with what it reads of the account besides its runs: prices and orphans.

    Args:
        parts: The parts.
        settings: The controller's.
    """
    around = OrphanSearch(
        table=parts.table,
        deployment=settings.deployment,
        prices=parts.prices,
        s3_usd_per_gigabyte_month=lambda: parts.prices.storage.s3_standard,
        clock=parts.clock,
    )
    config = client_config()
    orphans = OrphanCollector(
        table=parts.table,
        sources=sources_of(
            around=around,
            jobs=SageMakerTrainingJobs(boto3.client("sagemaker", config=config)),
            s3=boto3.client("s3", config=config),
            checkpoint_bucket=settings.checkpoint_bucket,
            isolated_teams=settings.isolated_teams,
            fleets=parts.fleet_orphans,
            queues=parts.queues,
            queue_names=tuple(settings.queues),
        ),
        removes=settings.orphans == "remove",
        clock=parts.clock,
    )
    pricing = boto3.client("pricing", region_name=endpoint_region(parts.prices.region), config=config)
    return FullPass(
        # It removes orphans of fleets, and does not only report them: a deployment that removes nothing goes without.
        parts if settings.orphans == "remove" else replace(parts, fleet_orphans=None),
        price_list=PriceList(pricing),
        orphans=orphans,
    )
