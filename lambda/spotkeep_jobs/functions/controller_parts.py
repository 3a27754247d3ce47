"""The controller's parts, put together: on real clients by `controller_wiring`, on models by the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from spotkeep_jobs.backends.backend import Backends
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans
from spotkeep_jobs.backends.ec2.jobs import FleetOwners
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
from spotkeep_jobs.functions.fleet_wiring import FleetParts
from spotkeep_jobs.notifications.dead_notification_queue import DeadNotificationQueue
from spotkeep_jobs.notifications.notification_topic import NotificationTopic
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.adoption import Adoption
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.runs.quota_queue import QuotaQueue
from spotkeep_jobs.runs.run_reconciler import ReconciledRun, RunReconciler
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
    fleet_owners: FleetOwners
    fleet_orphans: FleetOrphans | None

    @property
    def quota_queue(self) -> QuotaQueue:
        """The runs that wait for room in the account's quota."""
        return QuotaQueue(table=self.table, completion=self.completion, clock=self.clock)

    def reconcile_job(self, job_name: str, *, deployment: str | None, run: str | None = None) -> ReconciledRun | None:
        """Reconcile the run that a job works on, adopted where another client created the job.

        Args:
            job_name: The job's name.
            deployment: What its tag says, as far as it is known: SageMaker is asked only about a job of ours, and about
                one without this tag that AWS Batch made. AWS does not say whether those get their service job's tags.
            run: What its other tag says: in a queue its name is AWS Batch's.

        Returns:
            None when the job belongs to no run of this deployment.

        Raises:
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        found = self.runs.reconcile_job(job_name)
        if found is None and deployment is None and (marked := self.queues.run_of_training_job(job_name)) is not None:
            return self.runs.reconcile(marked)
        if found is not None or deployment != self.deployment.name:
            return found
        if run is not None and (found := self.runs.reconcile(run)) is not None:
            return found
        adopted = self.adoption.adopt(job_name)
        return None if adopted is None else self.runs.reconcile(adopted)

    def refresh_prices(self) -> None:
        """Take over prices that were read since; at most one read of the table an hour."""
        self.prices.refresh(self.table, now=self.clock())


def controller_parts(
    *,
    deployment: DeploymentPolicy,
    prices: KnownPrices,
    table: RunTable,
    jobs: SageMakerTrainingJobs,
    queues: ServiceJobs,
    logs: JobLogs,
    topic: NotificationTopic,
    dead_letters: DeadNotificationQueue,
    schedules: OneTimeSchedules,
    launcher_function: LauncherFunction,
    metric_log: MetricLog,
    keep_bundle: Callable[[], None],
    clock: Callable[[], datetime],
    fleets: FleetParts | None = None,
    fleet_logs: JobLogs | None = None,
) -> ControllerParts:
    """Put the parts together.

    Args:
        deployment: Its name, prices and rules for pools.
        prices: The same prices, to be brought up to date.
        table: The run table.
        jobs: SageMaker's training jobs.
        queues: The service jobs of AWS Batch's queues.
        logs: The logs of SageMaker's jobs.
        topic: Where notifications go.
        dead_letters: Where the notifications go that are given up.
        schedules: Makes the schedules of warm pools.
        launcher_function: Advances sweeps.
        metric_log: Takes what became of runs, for the dashboard.
        keep_bundle: Makes sure that what jobs and instances start with is where they fetch it.
        clock: The time, aware.
        fleets: Attempts on EC2; None for a deployment without.
        fleet_logs: The instances' logs; None for a deployment without fleets.
    """
    fleets = fleets or FleetParts()
    backends = Backends(sagemaker=jobs, ec2=fleets.jobs, queues=queues)
    pools = PoolReconciler(table=table, jobs=jobs, schedules=schedules, deployment=deployment, clock=clock)
    completion = LaunchCompletion(
        table=table, backends=backends, deployment=deployment, keep_bundle=keep_bundle, now=clock
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
            fleet_logs=fleet_logs,
        ),
        adoption=Adoption(table=table, jobs=jobs, deployment=deployment.name, clock=clock),
        pools=pools,
        completion=completion,
        outbox=Outbox(table=table, topic=topic, dead_letters=dead_letters, clock=clock),
        metric_log=metric_log,
        launcher_function=launcher_function,
        queues=queues,
        fleet_owners=fleets.owners,
        fleet_orphans=fleets.orphans,
    )
