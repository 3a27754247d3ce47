"""All of Spotkeep as one construct, for an app that is not Spotkeep's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import Stack, Tags, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from spotkeep_constructs.connection import ConnectionParameter, grant_read_connection
from spotkeep_constructs.controller import Controller
from spotkeep_constructs.dependency_layer import LayerBuilder
from spotkeep_constructs.deployment_build import DeploymentBuild, Project
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.instance_log import group_name
from spotkeep_constructs.job_function import FunctionPlatform
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.monitoring import Monitoring
from spotkeep_constructs.notifications import Notifications
from spotkeep_constructs.settings import CONTEXT_KEY, Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.statements import together
from spotkeep_constructs.storage import Storage
from spotkeep_fleet.tags import DEPLOYMENT_TAG
from spotkeep_jobs.document.queue import instances_of


class Control(Construct):
    """Controller, notifications, monitoring and the connection parameter.

    Attributes:
        notifications: The topics and their subscriptions.
        controller: The function that keeps runs as their records say, with its triggers.
        monitoring: Alarms and dashboard.
        connection: The parameter that clients read to use the deployment.
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
            platform: The code, layer and log settings that all functions of the stack share.
            storage: The bucket and the table.
            compute: The network, roles and launch template of EC2 instances, or None in a deployment without fleets.
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


class SpotkeepControlPlane(Construct):
    """A whole deployment in one stack of any app, with storage, EC2 compute, launcher and controller.

    The construct creates each resource that is not given. The account and the region are those of the stack.

    Attributes:
        settings: The settings, with the account and the region of the stack where they are known at synth.
        storage: The checkpoint bucket and the run table.
        compute: The network, roles and launch template of EC2 instances, or None without fleets.
        launching: The launcher, the roles of jobs, and the users' managed policies.
        control: The controller, the notifications, the alarms, the connection.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: Sequence[ec2.ISubnet] | None = None,
        bucket: s3.IBucket | None = None,
        key: kms.IKey | None = None,
        project: Project | None = None,
        build_layer: LayerBuilder | None = None,
    ) -> None:
        """Place the deployment.

        Args:
            scope: A stack, or a construct in one.
            id: Construct id.
            settings: The deployment's settings.
            vpc: The VPC that EC2 instances run in. By default the VPC of the settings, or a new one.
            vpc_subnets: Its subnets for instances, one a zone. By default the CDK chooses them.
            bucket: The bucket for checkpoints, encrypted with a KMS key. By default a new one.
            key: The key of the bucket. By default the given bucket's own, or a new one.
            project: The directories of code and built archives. By default they are below the working directory, that
                of the CDK app.
            build_layer: The builder of the functions' dependency layer, uv by default.

        Raises:
            PropertyError: The settings name another account or region than the stack's, or two networks are given.
            SettingsError: The settings do not fit the stack's region.
        """
        super().__init__(scope, id)
        self.settings = self._in_the_stack(settings)
        if vpc is not None and not settings.ec2_fleets:
            raise PropertyError(
                name="SpotkeepControlPlane.vpc",
                problem="is given where no instance runs: the settings switch ec2_fleets off",
                found=vpc.node.path,
                fix="Leave it out, or set ec2_fleets to true.",
            )
        if self.settings.permissions_boundary_arn is not None:
            boundary = iam.ManagedPolicy.from_managed_policy_arn(
                self, "PermissionsBoundary", self.settings.permissions_boundary_arn
            )
            iam.PermissionsBoundary.of(self).apply(boundary)
        build = DeploymentBuild(
            settings=self.settings, project=project or Project.at(Path.cwd()), build_layer=build_layer
        )
        platform = build.platform(self)
        self.storage = Storage(self, "Storage", settings=self.settings, bucket=bucket, key=key)
        self.compute = (
            SpotCompute(
                self,
                "Compute",
                build=build,
                platform=platform,
                storage=self.storage,
                vpc=vpc,
                vpc_subnets=vpc_subnets,
            )
            if self.settings.ec2_fleets
            else None
        )
        self.launching = Launching(
            self,
            "Jobs",
            build=build,
            platform=platform,
            storage=self.storage,
            compute=self.compute,
        )
        self.control = Control(
            self,
            "Events",
            settings=self.settings,
            platform=platform,
            storage=self.storage,
            compute=self.compute,
            launching=self.launching,
        )
        # Clients take the connection for a whole deployment.
        self.control.connection.node.add_dependency(self.launching, self.control.controller)
        Tags.of(self).add(DEPLOYMENT_TAG, self.settings.deployment)

    def grant_launch(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a principal launch runs, that is read the connection, upload sources and call the launcher.

        With `verify_callers` the principal reaches the launcher by its URL alone, as users do.

        Args:
            grantee: A role, user or managed policy.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        launcher = self.launching.launcher
        grants = [
            launcher.grant_invoke_url(grantee),
            self.storage.checkpoints.grant_put_sources(grantee, team=team),
        ]
        if not self.settings.verify_callers:
            grants.append(launcher.grant_invoke(grantee))
        return together(self._grant_read_connection(grantee), *grants)

    def grant_read_runs(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read the connection and the records of runs.

        Args:
            grantee: A role, user or managed policy.
        """
        return together(self._grant_read_connection(grantee), self.storage.run_table.grant_read(grantee))

    def grant_read_checkpoints(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a principal list and read the stored files of runs, such as checkpoints, models and sources.

        Args:
            grantee: A role, user or managed policy.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        return self.storage.checkpoints.grant_read_runs(grantee, team=team)

    def _grant_read_connection(self, grantee: iam.IGrantable) -> iam.Grant:
        return grant_read_connection(self, grantee, deployment=self.settings.deployment)

    def _in_the_stack(self, settings: Settings) -> Settings:
        """Return the settings with the account and the region of the stack, checked once more as a whole."""
        stack = Stack.of(self)
        known = {
            name: value
            for name, value in (("region", stack.region), ("account", stack.account))
            if not Token.is_unresolved(value)
        }
        for name, value in known.items():
            named = getattr(settings, name)
            if named not in (None, value):
                raise PropertyError(
                    name="SpotkeepControlPlane.settings",
                    problem=f"name another {name} than the stack's, {value}",
                    found=named,
                    fix=f"Leave {name} out: it is the stack's.",
                )
        return Settings.from_context({CONTEXT_KEY: {**settings.model_dump(), **known}})
