"""The launcher with the roles of jobs, the bundle that they start with, and the users' policy."""

from __future__ import annotations

from aws_cdk import Aws, CfnMapping, CfnOutput, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.connection import grant_read_connection
from spotkeep_constructs.deployment_build import DeploymentBuild
from spotkeep_constructs.fleets import Fleets
from spotkeep_constructs.function_schedules import FunctionSchedules
from spotkeep_constructs.instance_log import grant_read_instance_log
from spotkeep_constructs.job_file_systems import JobFileSystems
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.job_secrets import JobSecrets
from spotkeep_constructs.notifications import notification_queue
from spotkeep_constructs.queues import JobQueues
from spotkeep_constructs.session_manager import allow_shells
from spotkeep_constructs.settings import IMAGE_ACCOUNTS
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.statements import allow, allow_regional
from spotkeep_constructs.storage import RecordTable, Storage
from spotkeep_constructs.training_bundle import TrainingBundle
from spotkeep_constructs.training_jobs import ExecutionRole, TrainingJobs
from spotkeep_jobs.settings import LONGEST_CHOICE_SECONDS, LauncherSettings


class UserPolicy(Construct):
    """A managed policy for users, which lets them invoke the launcher and read.

    It has no permission of SageMaker's to create or stop jobs. The launcher does both, after it validated and recorded
    the request.

    Attributes:
        policy: The managed policy, to be attached to users' roles or permission sets.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        launcher: JobFunction,
        run_table: RecordTable,
        checkpoints: CheckpointBucket,
        jobs: TrainingJobs,
        dead_notifications: sqs.IQueue,
        fleets: Fleets | None = None,
        drills: bool = False,
        verify_callers: bool = False,
        team: str | None = None,
    ) -> None:
        """Place the policy.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Name of the deployment. The policy is named `<deployment>-users-<region>`, that of a team
                `<deployment>-users-<region>.<team>`. The region is in it since names of policies are unique in an
                account.
            launcher: The function that users invoke.
            run_table: The table of the runs that they read.
            checkpoints: The bucket with the objects of their runs, to which they upload sources.
            jobs: The jobs that they describe.
            dead_notifications: The queue of notifications that SNS has refused.
            fleets: The fleets with logs that they read, or None in a deployment without fleets.
            drills: True when they may interrupt an instance of a fleet.
            verify_callers: True when they reach the launcher by its URL alone, where AWS names the caller. Otherwise
                they may also invoke it directly, and name any caller.
            team: The isolated team of the users, who reach its objects instead of those of all others.
        """
        super().__init__(scope, id)
        # No name of a deployment or of a team holds a dot, so no two policies of them have one name.
        of_team = "" if team is None else f".{team}"
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            managed_policy_name=f"{deployment}-users-{Stack.of(self).region}{of_team}",
            description="May launch and follow Spotkeep runs",
        )
        launcher.grant_invoke_url(self.policy)
        if not verify_callers:
            launcher.grant_invoke(self.policy)
        grant_read_connection(self, self.policy, deployment=deployment)
        run_table.grant_read(self.policy)
        checkpoints.grant_read_runs(self.policy, team=team)
        checkpoints.grant_list_versions(self.policy, team=team)
        checkpoints.grant_put_sources(self.policy, team=team)
        jobs.grant_describe_own(self.policy)
        jobs.grant_read_logs(self.policy)
        # What `spotkeep doctor --account` reads beside the run table.
        jobs.grant_list(self.policy)
        allow_regional(self.policy, "servicequotas:ListServiceQuotas")
        # To have the launcher send again what is there: `spotkeep notifications replay`.
        allow(
            self.policy,
            actions=["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"],
            resources=[dead_notifications.queue_arn],
        )
        jobs.deny_longer_keep_alive(self.policy)
        if fleets is not None:
            grant_read_instance_log(self.policy, deployment=deployment, whole_streams=True)
            # What `spotkeep doctor --account` reads to find orphans on EC2.
            allow_regional(self.policy, "ec2:DescribeFleets", "ec2:DescribeSnapshots", "ec2:DescribeVolumes")
            fleets.grant_check_service_roles(self.policy, drills=drills)
            if drills:
                fleets.grant_drill(self.policy)
        # What `spotkeep plan` reads of the market.
        allow_regional(
            self.policy, "ec2:DescribeAvailabilityZones", "ec2:DescribeSpotPriceHistory", "ec2:GetSpotPlacementScores"
        )


class Launching(Construct):
    """The launcher and the resources that a job needs.

    Attributes:
        launcher: The function users invoke.
        launcher_url: Its URL, where AWS names the caller, or empty in a region without function URLs.
        execution_role: The role that jobs run with.
        team_roles: The roles of teams that have one of their own, by team.
        bundle: The training bundle that every job starts with.
        users: The users' managed policy.
        team_users: The managed policies of isolated teams' users, by team.
        search: The function that searches by TPE, or None in a deployment without it.
        dead_notifications: The queue of notifications that SNS has refused, which users may replay.
        default_image: The image of jobs that name none.
        jobs: The training jobs of the deployment.
        queues: The deployment's AWS Batch queues, or None when it has none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        build: DeploymentBuild,
        platform: FunctionPlatform,
        storage: Storage,
        compute: SpotCompute | None,
    ) -> None:
        """Place the launcher.

        Args:
            scope: Parent construct.
            id: Construct id.
            build: The deployment's settings, and the code of its functions.
            platform: The code, layer and log settings that all functions of the stack share.
            storage: The bucket and the table.
            compute: The network, roles and launch template of EC2 instances, or None in a deployment without fleets.
        """
        super().__init__(scope, id)
        self._settings = settings = build.settings
        self._storage = storage
        self._compute = compute
        file_systems = JobFileSystems(ids=settings.file_systems)
        self.jobs = TrainingJobs(
            deployment=settings.deployment,
            max_keep_alive_seconds=settings.max_keep_alive_seconds,
            file_systems=file_systems,
        )
        self.default_image = self._in_the_region(settings.default_image)
        self.bundle = TrainingBundle(
            self, "TrainingBundle", packed=build.training_bundle, checkpoints=storage.checkpoints
        )
        self.execution_role = self._execution_role("ExecutionRole")
        # A team with a role of its own reaches its own runs alone, and a pool fits jobs of its role alone.
        self.team_roles = {
            team: self._execution_role(f"ExecutionRole-{team}", team) for team in settings.isolated_teams
        }
        storage.data.let_read(self.execution_role, self.execution_roles)
        secrets = JobSecrets(secrets=settings.secrets, key_arns=settings.secret_key_arns)
        secrets.let_read(self, self.execution_roles)
        self.search = self._search(build.search_platform(self)) if settings.tpe_search else None
        self.launcher = JobFunction(
            self,
            "Launcher",
            package="launcher",
            deployment=settings.deployment,
            platform=platform,
            environment=self._launcher_variables(),
            timeout=Duration.seconds(60),
            description="Validates a job, records its run and starts it",
        )
        self.launcher_url = self.launcher.serve_at_url().url if settings.function_urls else ""
        storage.run_table.grant_read_write(self.launcher.role)
        self.bundle.grant_keep(self.launcher.role)
        storage.checkpoints.grant_put_specs(self.launcher.role, teams=settings.isolated_teams)
        if settings.encrypt_training_volumes:
            storage.checkpoints.grant_encrypt_volumes(self.launcher.role)
        self.jobs.grant_launch(self.launcher.role, execution_roles=self.execution_roles)
        self.jobs.grant_keep_alive(self.launcher.role)
        secrets.let_check(self.launcher.role, network=bool(settings.training_subnet_ids))
        file_systems.let_check(self.launcher.role)
        if self.search is not None:
            self.search.grant_invoke(self.launcher.role)
        # Its trials are begun after a sweep's launch is answered.
        self.launcher.grant_invoke_itself()
        self.queues: JobQueues | None = None
        if settings.queues:
            self.queues = JobQueues(self, "Queues", deployment=settings.deployment, queues=settings.queues)
            self.queues.grant_submit(self.launcher.role)
            self.queues.grant_change_priority(self.launcher.role)
        FunctionSchedules(
            self,
            "ScheduledLaunches",
            name=f"{settings.deployment}-launches",
            function=self.launcher,
            description="The schedules of job documents run with it",
            may_delete=True,
        )
        if settings.shells:
            allow_shells(self.launcher.role, deployment=settings.deployment, fleets=compute is not None)
        if compute is not None:
            compute.let_launch(self.launcher)

        self.dead_notifications = notification_queue(self, "DeadNotifications")
        self.users = self._user_policy("Users")
        self.team_users = {team: self._user_policy(f"Users-{team}", team) for team in settings.isolated_teams}
        CfnOutput(
            self,
            "UserPolicyArn",
            description="Attach it to the roles or users that launch and follow runs",
            value=self.users.policy.managed_policy_arn,
        )

    @property
    def execution_roles(self) -> list[iam.Role]:
        """Every role that jobs run with."""
        return [self.execution_role.role, *(each.role for each in self.team_roles.values())]

    def _execution_role(self, name: str, team: str | None = None) -> ExecutionRole:
        settings = self._settings
        return ExecutionRole(
            self,
            name,
            checkpoints=self._storage.checkpoints,
            jobs=self.jobs,
            team=team,
            encrypt_volumes=settings.encrypt_training_volumes,
            shells=settings.shells,
            mlflow_arns=settings.mlflow_arns,
            subnet_ids=settings.training_subnet_ids,
            security_group_ids=settings.training_security_group_ids,
        )

    def _search(self, platform: FunctionPlatform) -> JobFunction:
        """Place the function that the launcher asks for trials by TPE. The request holds all that it needs."""
        return JobFunction(
            self,
            "SearchFunction",
            package="search",
            deployment=self._settings.deployment,
            platform=platform,
            environment={},
            timeout=Duration.seconds(LONGEST_CHOICE_SECONDS),
            description="Chooses the trials of a sweep by TPE",
            # A whole processor: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
            memory_mb=1_769,
        )

    def _launcher_variables(self) -> dict[str, str]:
        checkpoints = self._storage.checkpoints
        roles = {team: each.role.role_name for team, each in self.team_roles.items()}
        return LauncherSettings.variables(
            run_table=self._storage.run_table.table.table_name,
            checkpoint_bucket=checkpoints.bucket.bucket_name,
            execution_role_arn=self.execution_role.role.role_arn,
            training_bundle_uri=self.bundle.uri,
            training_bundle_asset_uri=self.bundle.asset_uri,
            default_image=self.default_image,
            tpe_search_function=None if self.search is None else self.search.function.function_name,
            team_roles=Stack.of(self).to_json_string(roles) if roles else None,
            volume_kms_key_arn=checkpoints.key.key_arn if self._settings.encrypt_training_volumes else None,
            **({} if self._compute is None else self._compute.fleet_variables(self)),
        )

    def _user_policy(self, name: str, team: str | None = None) -> UserPolicy:
        settings = self._settings
        return UserPolicy(
            self,
            name,
            deployment=settings.deployment,
            launcher=self.launcher,
            run_table=self._storage.run_table,
            checkpoints=self._storage.checkpoints,
            jobs=self.jobs,
            dead_notifications=self.dead_notifications,
            fleets=self._compute.fleets if self._compute is not None else None,
            drills=settings.drills,
            verify_callers=settings.verify_callers,
            team=team,
        )

    def _in_the_region(self, image: str) -> str:
        """Fill in an image's registry at synth, or at deployment when the region is known only then."""
        if "{account}" in image:
            table = {region: {"account": account} for region, account in IMAGE_ACCOUNTS.items()}
            accounts = CfnMapping(self, "AccountOfAwsImages", mapping=table, lazy=True)
            image = image.replace("{account}", accounts.find_in_map(Stack.of(self).region, "account"))
        return image.replace("{region}", Aws.REGION)
