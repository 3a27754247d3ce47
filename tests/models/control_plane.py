"""Launcher and controller as they are deployed, on the model of an account: what stories and measurements stand on."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.request import JobPlatform
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy
from spotkeep_jobs.functions.controller_parts import controller_parts
from spotkeep_jobs.functions.launcher_parts import launcher_parts
from spotkeep_jobs.notifications.dead_notification_queue import DeadNotificationQueue
from spotkeep_jobs.notifications.notification_topic import NotificationTopic
from spotkeep_jobs.orphans.collector import OrphanCollector
from spotkeep_jobs.orphans.sources import OrphanSearch, sources_of
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleTarget
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.orphan_report import OrphanReport
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.schedules.recurring_schedules import RecurringSchedules
from spotkeep_jobs.stack_deletion.shutdown import Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import Stacks
from spotkeep_jobs.sweeps.launcher_function import LauncherFunction
from tests.models.account import Account
from tests.models.s3 import BUCKET

PRICES: Final = {"ml.m5.xlarge": 0.23, "ml.g5.xlarge": 1.4}
PLATFORM: Final = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket=BUCKET,
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://assets/0123abcd.pyz",
)
DEFAULTS: Final = DeploymentDefaults(
    image="image", instance_type="ml.m5.xlarge", checkpoint_bucket=BUCKET, prices=PRICES
)
TIMEOUT_SECONDS: Final = {"launcher": 60, "controller": 240}
"""As the stacks set them; a test holds them against the templates."""
BETWEEN_ORPHAN_PASSES: Final = timedelta(minutes=5)
"""Longer than a pass over orphans lives, whatever its clock: two never overlap. A deployment makes one an hour."""


class ControlPlane:
    """The functions' parts.

    Attributes:
        service: The account.
        table: The run table, as the functions see it.
        record: The run table, for who judges: its calls are not counted and meet no fault.
        parts: The controller's.
        launching: The launcher's.
    """

    def __init__(
        self, service: Account | None = None, *, sleep: Callable[[float], None] = lambda _seconds: None
    ) -> None:
        """Put the parts together.

        Args:
            service: The account; None for one of its own.
            sleep: Lets a function wait for so many seconds.
        """
        self.service = service or Account()
        deployment = DeploymentPolicy(name="spotkeep", prices=PRICES)
        self.table = RunTable(client=self.service, table_name="runs")  # type: ignore[arg-type]
        self.record = RunTable(client=self.service.dynamodb, table_name="runs")  # type: ignore[arg-type]
        jobs = SageMakerTrainingJobs(self.service)  # type: ignore[arg-type]
        clock = self.service.clock
        queues = ServiceJobs(
            api=ServiceJobsApi(lambda: self.service.batch), training_jobs=jobs, deployment="spotkeep", now=clock
        )
        self.parts = controller_parts(
            deployment=deployment,
            prices=KnownPrices(PRICES, region="us-east-1"),
            table=self.table,
            jobs=jobs,
            queues=queues,
            logs=JobLogs(self.service.logs),  # type: ignore[arg-type]
            topic=NotificationTopic(self.service, topic_arn="topic"),  # type: ignore[arg-type]
            dead_letters=DeadNotificationQueue(lambda: self.service.dead_letters, queue_url="queue"),  # type: ignore[arg-type,return-value]
            schedules=OneTimeSchedules(
                self.service.schedules,
                target=ScheduleTarget(group="pools", function_arn="function", role_arn="role", dead_letter_arn="queue"),
            ),
            launcher_function=LauncherFunction(
                lambda: self.service.functions,  # type: ignore[arg-type,return-value]
                function_name="spotkeep-launcher",
            ),
            metric_log=MetricLog(deployment="spotkeep", enabled=False),
            keep_bundle=lambda: None,
            clock=clock,
        )
        self.launching = launcher_parts(
            keep_bundle=lambda: None,
            keep_parameters=lambda _file: None,
            recurring=RecurringSchedules(
                lambda: self.service.schedules,
                target=ScheduleTarget(
                    group="launches", function_arn="launcher", role_arn="role", dead_letter_arn="queue"
                ),
            ),
            table=self.table,
            jobs=jobs,
            queues=queues,
            platform=PLATFORM,
            defaults=DEFAULTS,
            prices=PRICES,
            now=clock,
            sleep=sleep,
        )

    def shutdown(self, stacks: Stacks) -> Shutdown:
        """Return what ends the deployment's runs when CloudFormation deletes it.

        Args:
            stacks: CloudFormation.
        """
        return Shutdown(
            table=self.table,
            pools=self.parts.pools,
            completion=self.parts.completion,
            stacks=stacks,
            clock=self.service.clock,
        )

    def advance_sweeps(self, *, seconds_left: Callable[[], float] = lambda: math.inf) -> None:
        """Let the launcher do what the controller has asked it to do about sweeps."""
        self.service.functions.deliver(
            lambda asked: self.launching.sweeps.advance.advance(
                asked["sweep"], ended_runs=asked.get("runs"), seconds_left=seconds_left
            )
        )

    def pass_over_orphans(self) -> OrphanReport | None:
        """Make the controller's pass over orphans, if one is due."""
        around = OrphanSearch(
            table=self.table,
            deployment="spotkeep",
            prices=PRICES,
            s3_usd_per_gigabyte_month=lambda: 0.023,
            clock=self.service.clock,
        )
        sources = sources_of(
            around=around,
            jobs=SageMakerTrainingJobs(self.service),  # type: ignore[arg-type]
            s3=self.service.objects,
            checkpoint_bucket=BUCKET,
            fleets=None,
            queues=self.parts.queues,
            queue_names=("gpu",),
        )
        collector = OrphanCollector(
            table=self.table, sources=sources, removes=True, clock=self.service.clock, every=BETWEEN_ORPHAN_PASSES
        )
        return collector.collect_if_due()
