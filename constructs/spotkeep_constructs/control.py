"""What keeps runs as their records say, notifies people and is watched; and the connection, when all is there."""

from __future__ import annotations

from aws_cdk import Stack
from constructs import Construct

from spotkeep_constructs.connection import ConnectionParameter
from spotkeep_constructs.controller import Controller
from spotkeep_constructs.instance_log import group_name
from spotkeep_constructs.job_function import FunctionPlatform
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.monitoring import Monitoring
from spotkeep_constructs.notifications import Notifications
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.storage import Storage
from spotkeep_jobs.document.queue import instances_of


class Control(Construct):
    """Controller, notifications, monitoring and the connection parameter.

    Attributes:
        notifications: The topics and what is subscribed to them.
        controller: The function that keeps runs as their records say, and what invokes it.
        monitoring: Alarms and dashboard.
        connection: What clients read to use the deployment.
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
    ) -> None:
        """Place them.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            platform: What the functions of the stack share.
            storage: The bucket and the table.
            compute: What EC2 instances need; None where the deployment has no fleets.
            launching: The launcher.
        """
        super().__init__(scope, id)
        self.notifications = Notifications(
            self, "Notifications", settings=settings, platform=platform, dead=launching.dead_notifications
        )
        self.controller = Controller(
            self,
            # Adds nothing to logical ids: the function in it has the name already.
            "Default",
            settings=settings,
            platform=platform,
            storage=storage,
            compute=compute,
            launching=launching,
            notifications=self.notifications,
        )
        self.monitoring = Monitoring(
            self,
            "Monitoring",
            settings=settings,
            compute=compute,
            launching=launching,
            notifications=self.notifications,
            controller=self.controller,
        )
        drill = self.monitoring.drill
        self.connection = ConnectionParameter(
            self,
            "Connection",
            deployment=settings.deployment,
            values={
                "deployment": settings.deployment,
                "region": Stack.of(self).region,
                "launcher_function": launching.launcher.function.function_name,
                "launcher_url": launching.launcher_url,
                "controller_function": self.controller.function.function.function_name,
                "run_table": storage.run_table.table.table_name,
                "checkpoint_bucket": storage.checkpoints.bucket.bucket_name,
                "isolated_teams": " ".join(settings.isolated_teams),
                "queue_instances": " ".join(
                    f"{instance_type}={count}" for instance_type, count in instances_of(settings.queues).items()
                ),
                "notification_topic_arn": self.notifications.topics.notifications.topic_arn,
                "dead_notification_queue_url": self.notifications.dead.queue_url,
                "undelivered_notification_queue_arn": self.notifications.undelivered.queue_arn,
                "execution_role_arn": launching.execution_role.role.role_arn,
                "default_image": launching.default_image,
                "launch_template_id": compute.launch_template_id if compute is not None else "",
                "fleet_log_group": group_name(settings.deployment) if compute is not None else "",
                "drill_template_id": drill.template.attr_id if drill is not None else "",
            },
        )
