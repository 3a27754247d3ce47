"""What launches jobs: the launcher, the role jobs run with, what they start with, and the users' policy."""

from __future__ import annotations

from aws_cdk import Aws, CfnMapping, CfnOutput, Duration, Environment, PermissionsBoundary, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.deep_learning_registry import REGISTRY_ACCOUNTS
from spotkeep_constructs.execution_role import ExecutionRole
from spotkeep_constructs.fleets import Fleets
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.notification_dead_letters import notification_queue
from spotkeep_constructs.training_bundle import TrainingBundle
from spotkeep_constructs.training_jobs import TrainingJobs
from spotkeep_constructs.user_policy import UserPolicy
from stacks.compute_stack import ComputeStack
from stacks.function_platform import RUN_RETENTION_DAYS, FunctionBuild
from stacks.project import Project
from stacks.settings import Settings
from stacks.storage_stack import StorageStack


class JobsStack(Stack):
    """The launcher and what a job needs.

    Attributes:
        launcher: The function users invoke.
        launcher_url: Its address, where AWS says who calls; empty in a region without function URLs.
        execution_role: The role jobs run with.
        team_roles: The roles of teams that have one of their own, by team.
        bundle: What every job starts with.
        users: The users' managed policy.
        team_users: The managed policies of isolated teams' users, by team.
        dead_notifications: The queue of notifications that SNS has refused, which users may replay.
        default_image: Image of jobs that name none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        project: Project,
        build: FunctionBuild,
        storage: StorageStack,
        compute: ComputeStack | None,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Places the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            project: Where code is found and kept.
            build: What the functions are built of.
            storage: The stack of bucket and table.
            compute: The stack of what EC2 instances need; None where the deployment has no fleets.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: the launcher and what training jobs need",
        )
        jobs = TrainingJobs(
            self,
            "TrainingJobs",
            deployment=settings.deployment,
            max_keep_alive_seconds=settings.max_keep_alive_seconds,
        )
        self.default_image = self._in_the_region(settings.default_image)
        self.bundle = TrainingBundle(
            self,
            "TrainingBundle",
            sources=project.training,
            archives=project.archives,
            checkpoints=storage.checkpoints,
        )

        def execution_role(name: str, team: str | None = None) -> ExecutionRole:
            return ExecutionRole(
                self,
                name,
                checkpoints=storage.checkpoints,
                jobs=jobs,
                data=storage.data,
                team=team,
                encrypt_volumes=settings.encrypt_training_volumes,
                subnet_ids=settings.training_subnet_ids,
                security_group_ids=settings.training_security_group_ids,
            )

        self.execution_role = execution_role("ExecutionRole")
        # A team with a role of its own reaches its own runs alone, and a pool fits jobs of its role alone.
        self.team_roles = {team: execution_role(f"ExecutionRole-{team}", team) for team in settings.isolated_teams}
        environment = {
            "SPOTKEEP_RUN_TABLE": storage.run_table.table.table_name,
            "SPOTKEEP_CHECKPOINT_BUCKET": storage.checkpoints.bucket.bucket_name,
            "SPOTKEEP_EXECUTION_ROLE_ARN": self.execution_role.role.role_arn,
            **self.bundle.variables,
            "SPOTKEEP_DEFAULT_IMAGE": self.default_image,
            "SPOTKEEP_RUN_RETENTION_DAYS": str(RUN_RETENTION_DAYS),
        }
        if self.team_roles:
            environment["SPOTKEEP_TEAM_ROLES"] = self.to_json_string(
                {team: each.role.role_name for team, each in self.team_roles.items()}
            )
        if settings.encrypt_training_volumes:
            environment["SPOTKEEP_VOLUME_KMS_KEY_ARN"] = storage.checkpoints.key.key_arn
        if compute is not None:
            environment |= compute.fleet_variables(self)
        self.launcher = JobFunction(
            self,
            "Launcher",
            package="launcher",
            deployment=settings.deployment,
            platform=build.platform(self),
            environment=environment,
            timeout=Duration.seconds(60),
            description="Validates a job, records its run and starts it",
        )
        self.launcher_url = self.launcher.serve_at_url().url if settings.function_urls else ""
        storage.run_table.grant_read_write(self.launcher.role)
        self.bundle.grant_keep(self.launcher.role)
        if settings.encrypt_training_volumes:
            storage.checkpoints.grant_encrypt_volumes(self.launcher.role)
        jobs.grant_launch(self.launcher.role, execution_roles=self.execution_roles)
        jobs.grant_keep_alive(self.launcher.role)
        fleets = Fleets(self, "Fleets", deployment=settings.deployment) if compute is not None else None
        if compute is not None and fleets is not None:
            compute.let_launch(self.launcher, fleets)

        self.dead_notifications = notification_queue(self, "DeadNotifications")

        def users(name: str, team: str | None = None) -> UserPolicy:
            return UserPolicy(
                self,
                name,
                deployment=settings.deployment,
                launcher=self.launcher,
                run_table=storage.run_table,
                checkpoints=storage.checkpoints,
                jobs=jobs,
                dead_notifications=self.dead_notifications,
                fleets=fleets,
                drills=settings.drills,
                verify_callers=settings.verify_callers,
                team=team,
            )

        self.users = users("Users")
        self.team_users = {team: users(f"Users-{team}", team) for team in settings.isolated_teams}
        CfnOutput(
            self,
            "UserPolicyArn",
            description="Attach it to the roles or users that launch and follow runs",
            value=self.users.policy.managed_policy_arn,
        )

    @property
    def execution_roles(self) -> list[iam.IRole]:
        """Every role that jobs run with."""
        return [self.execution_role.role, *(each.role for each in self.team_roles.values())]

    def _in_the_region(self, image: str) -> str:
        """Fills in where an image is pulled from: at synth, or at deployment where the region is known only then."""
        if "{account}" in image:
            table = {region: {"account": account} for region, account in REGISTRY_ACCOUNTS.items()}
            accounts = CfnMapping(self, "AccountOfAwsImages", mapping=table, lazy=True)
            image = image.replace("{account}", accounts.find_in_map(self.region, "account"))
        return image.replace("{region}", Aws.REGION)
