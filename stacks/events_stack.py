"""What follows jobs and their warm pools and tells people; and the connection, when all is there."""

from __future__ import annotations

import json

from aws_cdk import Duration, Environment, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.chat_channels import ChatChannels
from spotkeep_constructs.connection import Connection
from spotkeep_constructs.dashboard import Dashboard
from spotkeep_constructs.failure_alarms import FailureAlarms
from spotkeep_constructs.fleet_events import FleetEvents
from spotkeep_constructs.fleets import Fleets
from spotkeep_constructs.instance_log import grant_read_instance_log, group_name
from spotkeep_constructs.interruption_drill import InterruptionDrill
from spotkeep_constructs.job_events import JobEvents
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.notification_dead_letters import NotificationDeadLetters
from spotkeep_constructs.notification_topics import NotificationTopics
from spotkeep_constructs.orphan_alarms import OrphanAlarms
from spotkeep_constructs.orphan_sweep import OrphanSweep
from spotkeep_constructs.reconciliation import Reconciliation
from spotkeep_constructs.run_shutdown import RunShutdown
from spotkeep_constructs.training_jobs import TrainingJobs
from spotkeep_constructs.warm_pool_watch import WarmPoolWatch
from spotkeep_constructs.webhook import Webhook
from stacks.compute_stack import ComputeStack
from stacks.function_platform import RUN_RETENTION_DAYS, FunctionBuild
from stacks.jobs_stack import JobsStack
from stacks.settings import Settings
from stacks.storage_stack import StorageStack


class EventsStack(Stack):
    """Controller, topics, alarms and the connection parameter.

    Attributes:
        topics: The notification and the operations topic.
        controller: The function that keeps runs as their records say.
        connection: What clients read to use the deployment.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        build: FunctionBuild,
        storage: StorageStack,
        compute: ComputeStack | None,
        jobs: JobsStack,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Places the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            build: What the functions are built of.
            storage: The stack of bucket and table.
            compute: The stack of what EC2 instances need; None where the deployment has no fleets.
            jobs: The stack of the launcher.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: follows training jobs and tells their users",
        )
        dead_letters = NotificationDeadLetters(self, "DeadLetters", dead=jobs.dead_notifications)
        self.topics = NotificationTopics(
            self,
            "Topics",
            deployment=settings.deployment,
            notify_emails=settings.notify_emails,
            owner_emails=settings.owner_emails,
            operator_emails=settings.operator_emails,
            undelivered=dead_letters.undelivered,
        )
        training_jobs = TrainingJobs(
            self,
            "TrainingJobs",
            deployment=settings.deployment,
            max_keep_alive_seconds=settings.max_keep_alive_seconds,
        )
        platform = build.platform(self)
        environment = {
            "SPOTKEEP_RUN_TABLE": storage.run_table.table.table_name,
            "SPOTKEEP_NOTIFICATION_TOPIC_ARN": self.topics.notifications.topic_arn,
            "SPOTKEEP_DEAD_NOTIFICATION_QUEUE_URL": dead_letters.dead.queue_url,
            "SPOTKEEP_RUN_RETENTION_DAYS": str(RUN_RETENTION_DAYS),
            "SPOTKEEP_DEPLOYMENT_METRICS": json.dumps(settings.dashboard),
            "SPOTKEEP_POOL_REMINDER_SECONDS": str(settings.pool_reminder_seconds),
            **jobs.bundle.variables,
        }
        if settings.pool_idle_limit_seconds is not None:
            environment["SPOTKEEP_POOL_IDLE_LIMIT_SECONDS"] = str(settings.pool_idle_limit_seconds)
        if settings.pool_idle_limit_usd is not None:
            environment["SPOTKEEP_POOL_IDLE_LIMIT_USD"] = str(settings.pool_idle_limit_usd)
        if compute is not None:
            environment |= compute.fleet_variables(self)
        self.controller = JobFunction(
            self,
            "Controller",
            package="controller",
            deployment=settings.deployment,
            platform=platform,
            environment=environment,
            # Shorter than the clock's interval: two passes over everything in flight never overlap.
            timeout=Duration.seconds(240),
            description="Keeps runs, their capacity and their warm pools as their records say, and notifies users",
        )
        role = self.controller.role
        storage.run_table.grant_read_write(role)
        training_jobs.grant_track(role)
        self.topics.grant_publish_notifications(role)
        dead_letters.grant_put(role)
        # The next fallback of a run; launches and stops that the launcher could not finish.
        training_jobs.grant_launch(role, execution_roles=jobs.execution_roles)
        jobs.bundle.grant_keep(role)
        training_jobs.grant_keep_alive(role)
        if settings.encrypt_training_volumes:
            storage.checkpoints.grant_encrypt_volumes(role)
        watch = WarmPoolWatch(self, "WarmPoolWatch", deployment=settings.deployment, controller=self.controller)
        OrphanSweep(
            self,
            "OrphanSweep",
            controller=self.controller,
            jobs=training_jobs,
            checkpoints=storage.checkpoints,
            schedule_group=watch.group_name,
            removes=settings.orphans == "remove",
            orphaned_checkpoints_days=settings.orphaned_checkpoints_days,
            isolated_teams=settings.isolated_teams,
        )
        job_events = JobEvents(self, "JobEvents", controller=self.controller)
        clock = Reconciliation(self, "Reconciliation", controller=self.controller)
        follow_fleets = [] if compute is None else self._follow_fleets(compute, settings, job_events)
        RunShutdown(
            self,
            "Shutdown",
            controller=self.controller,
            needs=[self.topics, job_events, clock, watch, *follow_fleets],
        )
        functions = [jobs.launcher, self.controller]
        if compute is not None:
            functions.append(compute.credentials.function)
        if settings.slack_channel or settings.teams_channel:
            ChatChannels(
                self,
                "Chat",
                deployment=settings.deployment,
                notifications=self.topics.notifications,
                slack_channel=settings.slack_channel,
                teams_channel=settings.teams_channel,
            )
        if settings.webhook_secret_arn is not None:
            webhook = Webhook(
                self,
                "Hook",
                deployment=settings.deployment,
                address_secret_arn=settings.webhook_secret_arn,
                notifications=self.topics.notifications,
                platform=platform,
            )
            functions.append(webhook.function)
        alarms = FailureAlarms(
            self,
            "Alarms",
            topic=self.topics.operations,
            functions=functions,
            events=job_events.queue,
            dead_letters=dead_letters,
        )
        orphan_alarms = OrphanAlarms(
            self,
            "OrphanAlarms",
            topic=self.topics.operations,
            controller=self.controller,
        )
        drill = (
            InterruptionDrill(
                self,
                "Drill",
                deployment=settings.deployment,
                # No experiment takes capacity away from runs that the controller does not reconcile.
                stop_alarms=[alarms.errors["controller"], alarms.events_waiting],
            )
            if settings.drills
            else None
        )
        if settings.dashboard:
            Dashboard(
                self,
                "Board",
                deployment=settings.deployment,
                launcher=jobs.launcher,
                controller=self.controller,
                functions=functions,
                dead_letters=dead_letters,
                alarms=[*alarms.alarms, *orphan_alarms.alarms],
            )
        self.connection = Connection(
            self,
            "Connection",
            deployment=settings.deployment,
            values={
                "deployment": settings.deployment,
                "region": self.region,
                "launcher_function": jobs.launcher.function.function_name,
                "launcher_url": jobs.launcher_url,
                "controller_function": self.controller.function.function_name,
                "pool_schedule_group": watch.group_name,
                "run_table": storage.run_table.table.table_name,
                "checkpoint_bucket": storage.checkpoints.bucket.bucket_name,
                "isolated_teams": " ".join(settings.isolated_teams),
                "notification_topic_arn": self.topics.notifications.topic_arn,
                "dead_notification_queue_url": dead_letters.dead.queue_url,
                "undelivered_notification_queue_arn": dead_letters.undelivered.queue_arn,
                "execution_role_arn": jobs.execution_role.role.role_arn,
                "default_image": jobs.default_image,
                "launch_template_id": compute.launch_template_id if compute is not None else "",
                "fleet_log_group": group_name(settings.deployment) if compute is not None else "",
                "drill_template_id": drill.template.attr_id if drill is not None else "",
            },
        )

    def _follow_fleets(self, compute: ComputeStack, settings: Settings, job_events: JobEvents) -> list[Construct]:
        """Brings what EC2 says to the controller, and lets it act on fleets as it does on jobs."""
        events = FleetEvents(self, "FleetEvents", job_events=job_events)
        fleets = Fleets(self, "Fleets", deployment=settings.deployment)
        compute.let_launch(self.controller, fleets)
        grant_read_instance_log(self, self.controller.role, deployment=settings.deployment)
        fleets.grant_clear_away(self.controller.role)
        return [events, fleets]
