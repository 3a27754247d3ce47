"""The controller's parts on real clients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime

import boto3

from spotkeep_jobs.backends.backend import Backends
from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans
from spotkeep_jobs.backends.ec2.jobs import FleetOwners
from spotkeep_jobs.backends.job_files import TrainingBundleStore
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.cost.price_list import PriceList, endpoint_region
from spotkeep_jobs.document.deployment_policy import DeploymentPolicy
from spotkeep_jobs.functions.environment import ControllerEnvironment
from spotkeep_jobs.functions.fleet_wiring import fleet_orphans_of, fleet_parts, fleet_platform
from spotkeep_jobs.functions.housekeeping import Housekeeping
from spotkeep_jobs.functions.orphan_wiring import sources_of
from spotkeep_jobs.notifications.dead_notification_queue import DeadNotificationQueue
from spotkeep_jobs.notifications.notification_topic import NotificationTopic
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.orphans.collector import OrphanCollector
from spotkeep_jobs.orphans.sources import OrphanSearch
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleTarget
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.adoption import Adoption
from spotkeep_jobs.runs.full_pass import SEARCH_FROM, FullPass
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.runs.quota_queue import QuotaQueue
from spotkeep_jobs.runs.run_reconciler import ReconciledRun, RunReconciler
from spotkeep_jobs.stack_deletion.shutdown import Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import Stacks
from spotkeep_jobs.sweeps.launcher_function import LauncherFunction


@dataclass(frozen=True, kw_only=True)
class ControllerParts:
    """The parts, wired.

    Attributes:
        deployment: Its name and prices.
        prices: The same prices, to be brought up to date where an invocation begins.
        clock: The time, aware.
        table: The run table.
        jobs: SageMaker's training jobs.
        runs: Reconciles runs.
        adoption: Makes runs of jobs that other clients created.
        pools: Reconciles warm pools.
        completion: Finishes launches and stops that were interrupted half-way.
        outbox: Delivers notifications.
        queues: The service jobs of AWS Batch's queues.
        fleet_owners: The attempts that fleets belong to.
        fleet_orphans: Finds and removes orphans of fleets; None in a deployment without fleets.
        metric_log: Takes what became of runs, for the dashboard.
        launcher_function: Advances sweeps.
    """

    deployment: DeploymentPolicy
    prices: KnownPrices
    clock: Callable[[], datetime]
    table: RunTable
    jobs: SageMakerTrainingJobs
    runs: RunReconciler
    adoption: Adoption
    pools: PoolReconciler
    completion: LaunchCompletion
    outbox: Outbox
    metric_log: MetricLog
    launcher_function: LauncherFunction
    queues: ServiceJobs
    fleet_owners: FleetOwners = dataclass_field(default_factory=lambda: FleetOwners(None, deployment=""))
    fleet_orphans: FleetOrphans | None = None

    @property
    def quota_queue(self) -> QuotaQueue:
        """The runs that wait for room in the account's quota."""
        return QuotaQueue(table=self.table, completion=self.completion, clock=self.clock)

    def reconcile_job(self, job_name: str, *, deployment: str | None, run: str | None = None) -> ReconciledRun | None:
        """Reconcile the run that a job works on, adopted where another client created the job.

        Args:
            job_name: The job's name.
            deployment: What its tag says, as far as it is known: SageMaker is asked only about a job of ours.
            run: What its other tag says: in a queue its name is AWS Batch's.

        Returns:
            None when the job belongs to no run of this deployment.

        Raises:
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        found = self.runs.reconcile_job(job_name)
        if found is not None or deployment != self.deployment.name:
            return found
        if run is not None and (found := self.runs.reconcile(run)) is not None:
            return found
        adopted = self.adoption.adopt(job_name)
        return None if adopted is None else self.runs.reconcile(adopted)

    def refresh_prices(self) -> None:
        """Take over prices that were read since; at most one read of the table an hour."""
        self.prices.refresh(self.table, now=self.clock())


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
    prices = KnownPrices(settings.prices, region=sagemaker.meta.region_name)
    deployment = DeploymentPolicy(
        name=settings.deployment,
        prices=prices,
        pool_rules=settings.pool_rules,
        limits=settings.spending_limits,
    )
    jobs = SageMakerTrainingJobs(sagemaker)
    dynamodb = boto3.client("dynamodb", config=config)
    table = RunTable(client=dynamodb, table_name=settings.run_table)
    topic = NotificationTopic(boto3.client("sns", config=config), topic_arn=settings.notification_topic_arn)
    dead_letters = DeadNotificationQueue(
        functools.cache(lambda: boto3.client("sqs", config=config)), queue_url=settings.dead_notification_queue_url
    )
    logs_client = boto3.client("logs", config=config)
    logs = JobLogs(logs_client)
    platform = fleet_platform(settings)
    fleets = fleet_parts(settings, platform=platform, dynamodb=dynamodb, prices=prices, now=clock)
    group = settings.fleet_log_group
    bundle = TrainingBundleStore(
        functools.partial(boto3.client, "s3", config=config),
        asset_uri=settings.training_bundle_asset_uri,
        uri=settings.training_bundle_uri,
    )
    schedules = OneTimeSchedules(
        boto3.client("scheduler", config=config),
        target=ScheduleTarget(
            group=settings.schedule_group,
            function_arn=settings.schedule_function_arn,
            role_arn=settings.schedule_role_arn,
            dead_letter_arn=settings.schedule_dead_letter_arn,
        ),
    )
    pools = PoolReconciler(table=table, jobs=jobs, schedules=schedules, deployment=deployment, clock=clock)
    queues = ServiceJobs(
        api=ServiceJobsApi(functools.cache(lambda: boto3.client("batch", config=config))),
        training_jobs=jobs,
        deployment=settings.deployment,
        now=clock,
    )
    backends = Backends(sagemaker=jobs, ec2=fleets.jobs, queues=queues)
    completion = LaunchCompletion(
        table=table, backends=backends, deployment=deployment, keep_bundle=bundle.keep, now=clock
    )
    return ControllerParts(
        deployment=deployment,
        prices=prices,
        clock=clock,
        table=table,
        jobs=jobs,
        runs=RunReconciler(
            table=table,
            backends=backends,
            logs=logs,
            completion=completion,
            deployment=deployment,
            clock=clock,
            pools=pools,
            fleet_logs=None if group is None else JobLogs(logs_client, group=group),
        ),
        adoption=Adoption(table=table, jobs=jobs, deployment=settings.deployment, clock=clock),
        pools=pools,
        completion=completion,
        outbox=Outbox(table=table, topic=topic, dead_letters=dead_letters, clock=clock),
        fleet_owners=fleets.owners,
        fleet_orphans=fleet_orphans_of(settings, parts=fleets, table=table, now=clock),
        metric_log=MetricLog(deployment=settings.deployment, enabled=settings.deployment_metrics),
        launcher_function=LauncherFunction(
            functools.cache(lambda: boto3.client("lambda", config=config)), function_name=settings.launcher_function
        ),
        queues=queues,
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


def full_pass_on(parts: ControllerParts, *, search_from: int = SEARCH_FROM) -> FullPass:
    """Make the pass over everything in flight.

    Args:
        parts: The parts.
        search_from: With so many runs in flight, jobs are searched before any is described.
    """
    return FullPass(
        deployment=parts.deployment.name,
        table=parts.table,
        runs=parts.runs,
        adoption=parts.adoption,
        pools=parts.pools,
        jobs=parts.jobs,
        outbox=parts.outbox,
        completion=parts.completion,
        clock=parts.clock,
        fleet_orphans=parts.fleet_orphans,
        metric_log=parts.metric_log,
        advance_sweep=parts.launcher_function.advance,
        search_from=search_from,
    )


def housekeeping_on(parts: ControllerParts, settings: ControllerEnvironment) -> Housekeeping:
    """Make what a pass does besides its runs: prices and orphans.

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
    pricing = boto3.client("pricing", region_name=endpoint_region(parts.prices.region), config=config)
    return Housekeeping(
        table=parts.table,
        prices=parts.prices,
        price_list=PriceList(pricing),
        orphans=OrphanCollector(
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
        ),
        clock=parts.clock,
    )
