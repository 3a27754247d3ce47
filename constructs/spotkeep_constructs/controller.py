"""The controller, what invokes it, and what it may do: it keeps runs as their records say."""

from __future__ import annotations

from aws_cdk import Duration
from constructs import Construct

from spotkeep_constructs.function_schedules import FunctionSchedules
from spotkeep_constructs.instance_log import grant_read_instance_log
from spotkeep_constructs.job_events import OF_FLEETS, OF_SERVICE_JOBS, JobEvents
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.notifications import Notifications
from spotkeep_constructs.reconciliation import Reconciliation
from spotkeep_constructs.run_shutdown import RunShutdown
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.statements import allow
from spotkeep_constructs.storage import Storage
from spotkeep_jobs.settings import ControllerSettings

PRICE_LIST_REGIONS = ["us-east-1", "eu-central-1", "ap-south-1"]
"""Where the Pricing API answers, for every region.
Source: https://docs.aws.amazon.com/general/latest/gr/billing.html (AWS Price List Service)"""


class Controller(Construct):
    """The function, woken by events, by the clock, by the schedules of warm pools and by the deletion of its stack.

    Attributes:
        function: The function.
        pools: The schedules of warm pools.
        events: The queue of events and the rules that fill it.
        shutdown: The custom resource whose deletion stops what runs.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        platform: FunctionPlatform,
        storage: Storage,
        compute: SpotCompute | None,
        launching: Launching,
        notifications: Notifications,
    ) -> None:
        """Place the function and its triggers.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            platform: What the functions of the stack share.
            storage: The bucket and the table.
            compute: What EC2 instances need; None where the deployment has no fleets.
            launching: The launcher and what jobs need: the controller launches what comes next.
            notifications: What it sends notifications to.
        """
        super().__init__(scope, id)
        jobs = launching.jobs
        variables = ControllerSettings.variables(
            run_table=storage.run_table.table.table_name,
            checkpoint_bucket=storage.checkpoints.bucket.bucket_name,
            training_bundle_uri=launching.bundle.uri,
            training_bundle_asset_uri=launching.bundle.asset_uri,
            launcher_function=launching.launcher.function.function_name,
            notification_topic_arn=notifications.topics.notifications.topic_arn,
            dead_notification_queue_url=notifications.dead.queue_url,
            deployment_metrics=settings.dashboard,
            pool_reminder_seconds=settings.pool_reminder_seconds,
            pool_idle_limit_seconds=settings.pool_idle_limit_seconds,
            isolated_teams=settings.isolated_teams or None,
            orphans=settings.orphans,
            **({} if compute is None else compute.fleet_variables(self)),
        )
        self.function = JobFunction(
            self,
            "Controller",
            package="controller",
            deployment=settings.deployment,
            platform=platform,
            environment=variables,
            # Shorter than the clock's interval: two passes over everything in flight never overlap.
            timeout=Duration.seconds(240),
            description="Keeps runs, their capacity and their warm pools as their records say, and notifies users",
        )
        role = self.function.role
        storage.run_table.grant_read_write(role)
        # The last look before the deployment is deleted.
        storage.run_table.grant_scan(role)
        jobs.grant_observe(role)
        notifications.topics.grant_publish_notifications(role)
        allow(role, actions=["sqs:SendMessage"], resources=[notifications.dead.queue_arn])
        # The next fallback of a run; launches and stops that the launcher could not finish.
        jobs.grant_launch(role, execution_roles=launching.execution_roles)
        launching.bundle.grant_keep(role)
        jobs.grant_keep_alive(role)
        # Sweeps are advanced by the launcher, which opens the runs of their trials.
        launching.launcher.grant_invoke(role)
        if settings.encrypt_training_volumes:
            storage.checkpoints.grant_encrypt_volumes(role)
        # The pass over orphans lists what there is, and reads which jobs are the deployment's.
        jobs.grant_find(role)
        storage.checkpoints.grant_list_runs(role, teams=(None, *settings.isolated_teams))
        allow(
            role,
            actions=["pricing:GetProducts"],
            resources=["*"],
            wildcard="The price list is public and no resource; its regions are the narrowest bound it takes.",
            conditions={"StringEquals": {"aws:RequestedRegion": PRICE_LIST_REGIONS}},
        )
        # No event says that a pool was reused or has expired, so its end is scheduled when it begins.
        self.pools = FunctionSchedules(
            self,
            "PoolSchedules",
            name=f"{settings.deployment}-pools",
            function=self.function,
            description="The schedules of warm pools run with it",
        )
        self.events = JobEvents(self, "JobEvents", controller=self.function)
        clock = Reconciliation(self, "Reconciliation", controller=self.function)
        # The controller acts on fleets and on service jobs as it does on training jobs.
        if compute is not None:
            self.events.bring(OF_FLEETS)
            compute.let_launch(self.function)
            grant_read_instance_log(role, deployment=settings.deployment)
            compute.fleets.grant_delete_orphans(role)
        needs: list[Construct] = [notifications.topics, self.events, clock, self.pools]
        if launching.queues is not None:
            self.events.bring(OF_SERVICE_JOBS)
            launching.queues.grant_submit(role)
            needs.append(launching.queues)
        self.shutdown = RunShutdown(self, "Shutdown", controller=self.function, needs=needs)
