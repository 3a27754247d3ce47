"""A deployment as one of its functions sees it, with its settings, its clients of AWS and the clock.

Each function makes one `Deployment` for each execution environment. Every feature is a function of it.
Where a deployment lacks a feature, the property of that feature is None or empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import boto3
from botocore.config import Config

from spotkeep_jobs.backends.backend import Backend
from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.ec2.checks import FleetChecks
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans, VolumeRetention
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.jobs import FleetJobs, FleetOwners, NoFleets
from spotkeep_jobs.backends.ec2.launch import FleetLaunch, FleetPlatform, launch_of
from spotkeep_jobs.backends.file_system_checks import FileSystemChecks, JobNetwork
from spotkeep_jobs.backends.job_files import SpecStore, TrainingBundleStore
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.backends.sagemaker.training_job import JobPlatform
from spotkeep_jobs.backends.secret_checks import SecretChecks
from spotkeep_jobs.backends.session_manager import SessionManager
from spotkeep_jobs.cost.prices import KnownPrices, endpoint_region
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.table_client import RUN_RETENTION_DAYS
from spotkeep_jobs.settings import LONGEST_CHOICE_SECONDS, DeploymentSettings, LauncherSettings

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.record.record import Attempt, Run

SettingsT_co = TypeVar("SettingsT_co", bound=DeploymentSettings, covariant=True)
_CONFLICT_PAUSE_SECONDS: Final = 0.05


class Clients:
    """The clients of boto3. Each is made when it is first needed, as most invocations need few."""

    @property
    def region(self) -> str:
        """The region of the deployment."""
        return self.sagemaker.meta.region_name

    @cached_property
    def batch(self) -> Any:
        """AWS Batch."""
        return boto3.client("batch", config=client_config())

    @cached_property
    def cloudformation(self) -> CloudFormationClient:
        """CloudFormation."""
        return boto3.client("cloudformation", config=client_config())

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB."""
        return boto3.client("dynamodb", config=client_config())

    @cached_property
    def ec2(self) -> EC2Client:
        """EC2."""
        return boto3.client("ec2", config=client_config())

    @cached_property
    def efs(self) -> Any:
        """Amazon EFS."""
        return boto3.client("efs", config=client_config())

    @cached_property
    def fsx(self) -> Any:
        """Amazon FSx."""
        return boto3.client("fsx", config=client_config())

    @cached_property
    def functions(self) -> LambdaClient:
        """AWS Lambda."""
        return boto3.client("lambda", config=client_config())

    @cached_property
    def kms(self) -> KMSClient:
        """AWS KMS."""
        return boto3.client("kms", config=client_config())

    @cached_property
    def logs(self) -> CloudWatchLogsClient:
        """CloudWatch Logs."""
        return boto3.client("logs", config=client_config())

    @cached_property
    def pricing(self) -> Any:
        """AWS's price list, which answers in few regions."""
        return boto3.client("pricing", region_name=endpoint_region(self.region), config=client_config())

    @cached_property
    def s3(self) -> S3Client:
        """S3."""
        return boto3.client("s3", config=client_config())

    @cached_property
    def sagemaker(self) -> SageMakerClient:
        """SageMaker."""
        return boto3.client("sagemaker", config=client_config())

    @cached_property
    def scheduler(self) -> EventBridgeSchedulerClient:
        """EventBridge Scheduler."""
        return boto3.client("scheduler", config=client_config())

    @cached_property
    def search_function(self) -> LambdaClient:
        """AWS Lambda for the function `search`. It waits for one answer, as the sweep's next advance asks again."""
        once = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=3,
            read_timeout=LONGEST_CHOICE_SECONDS,
        )
        return boto3.client("lambda", config=once)

    @cached_property
    def secrets_manager(self) -> Any:
        """AWS Secrets Manager."""
        return boto3.client("secretsmanager", config=client_config())

    @cached_property
    def sns(self) -> SNSClient:
        """SNS."""
        return boto3.client("sns", config=client_config())

    @cached_property
    def sqs(self) -> SQSClient:
        """SQS."""
        return boto3.client("sqs", config=client_config())

    @cached_property
    def systems_manager(self) -> SSMClient:
        """Systems Manager."""
        return boto3.client("ssm", config=client_config())


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Deployment(Generic[SettingsT_co]):
    """A deployment, as one of its functions sees it.

    Attributes:
        settings: The settings of the function.
        clients: The clients of AWS.
        now: Returns the time, aware.
        wait: Waits for so many seconds.
    """

    settings: SettingsT_co
    clients: Clients
    now: Callable[[], datetime] = _utc_now
    wait: Callable[[float], None] = time.sleep

    @property
    def name(self) -> str:
        """The deployment's name, which its tag `spotkeep:deployment` has."""
        return self.settings.deployment

    def pause(self, tries: int) -> None:
        """Wait before the next try of a transaction that met another one. Each try waits longer."""
        self.wait(_CONFLICT_PAUSE_SECONDS * 2**tries)

    @cached_property
    def table(self) -> RunTable:
        """The run table."""
        return RunTable.of(client=self.clients.dynamodb, table_name=self.settings.run_table)

    @cached_property
    def prices(self) -> KnownPrices:
        """On-demand US dollars per instance and hour, by instance type."""
        return KnownPrices(self.settings.prices, region=self.clients.region)

    def refresh_prices(self) -> None:
        """Take over the prices that were read since. The table is read once an hour at most."""
        self.prices.refresh(self.table, now=self.now())

    @cached_property
    def policy(self) -> DeploymentPolicy:
        """The facts about the deployment that a decision needs."""
        return DeploymentPolicy(
            name=self.name,
            prices=self.prices,
            pool_rules=self.settings.pool_rules,
            limits=self.settings.spending_limits,
        )

    @cached_property
    def training_jobs(self) -> SageMakerTrainingJobs:
        """SageMaker's training jobs."""
        return SageMakerTrainingJobs(self.clients.sagemaker)

    @cached_property
    def queues(self) -> ServiceJobs:
        """The service jobs of AWS Batch's queues."""
        return ServiceJobs(
            api=ServiceJobsApi(lambda: self.clients.batch),
            training_jobs=self.training_jobs,
            deployment=self.name,
            now=self.now,
            has_queues=bool(self.settings.queues),
        )

    def backend_of(self, attempt: Attempt | Run) -> Backend:
        """Return the service that runs an attempt, or a run's current one."""
        if attempt.place.queue is not None:
            return self.queues.of(attempt, attempt.place.queue)
        return self.fleets if attempt.place.backend == "ec2" else self.training_jobs

    @cached_property
    def training_bundle(self) -> TrainingBundleStore:
        """The copy of `spotkeep.pyz` that jobs and instances fetch."""
        return TrainingBundleStore(
            lambda: self.clients.s3,
            asset_uri=self.settings.training_bundle_asset_uri,
            uri=self.settings.training_bundle_uri,
        )

    @cached_property
    def specs(self) -> SpecStore:
        """The training specs that jobs on SageMaker read."""
        return SpecStore(lambda: self.clients.s3)

    @cached_property
    def logs(self) -> JobLogs:
        """The logs of SageMaker's jobs."""
        return JobLogs(self.clients.logs)

    @cached_property
    def fleet_logs(self) -> JobLogs:
        """The logs of instances. Without fleets they are those of SageMaker's jobs."""
        group = self.settings.fleet_log_group
        return self.logs if group is None else JobLogs(self.clients.logs, group=group)

    # Fleets of EC2

    @cached_property
    def fleet_platform(self) -> FleetPlatform | None:
        """The deployment's part of each fleet, or None in a deployment without fleets."""
        if self.settings.launch_template_id is None:
            return None
        return FleetPlatform(
            launch_template_id=self.settings.launch_template_id,
            subnets=self.settings.fleet_subnets,
            instance_types=self.settings.fleet_instance_types,
            log_group=self.settings.fleet_log_group,
            volume_kms_key_arn=self.settings.fleet_volume_kms_key_arn,
            nodes_security_group_id=self.settings.fleet_nodes_security_group_id,
        )

    @cached_property
    def _ec2(self) -> Ec2Api:
        return Ec2Api(lambda: self.clients.ec2, bundle_uri=self.settings.training_bundle_uri)

    @cached_property
    def _fleet_table(self) -> FleetTable:
        return FleetTable(self.clients.dynamodb, table_name=self.settings.run_table, retention_days=RUN_RETENTION_DAYS)

    @cached_property
    def fleets(self) -> FleetJobs | NoFleets:
        """Attempts on fleets. A deployment without fleets refuses them."""
        if self.fleet_platform is None:
            return NoFleets()
        return FleetJobs(
            ec2=self._ec2,
            records=self._fleet_table,
            deployment=self.name,
            prices=self.prices,
            launches=self._launch_of,
            storage_prices=lambda: self.prices.storage,
            zones=self.fleet_platform.subnets,
            now=self.now,
        )

    def _launch_of(self, run: str, attempt: int) -> FleetLaunch | None:
        recorded = self.table.runs.attempt(run, attempt)
        return None if recorded is None or recorded.job_request is None else launch_of(recorded.job_request)

    @cached_property
    def fleet_checks(self) -> FleetChecks | None:
        """EC2's answers about requests, or None in a deployment without fleets."""
        if self.fleet_platform is None:
            return None
        return FleetChecks(
            ec2=self._ec2,
            template_id=self.fleet_platform.launch_template_id,
            subnets=self.fleet_platform.subnets,
            deployment=self.name,
            now=self.now,
        )

    @cached_property
    def fleet_owners(self) -> FleetOwners:
        """The attempts that fleets belong to."""
        return FleetOwners(None if self.fleet_platform is None else self._ec2, deployment=self.name)

    @cached_property
    def fleet_orphans(self) -> FleetOrphans | None:
        """The orphans of fleets, or None in a deployment without fleets."""
        if self.fleet_platform is None:
            return None
        days = self.settings.volume_retention_days
        return FleetOrphans(
            ec2=self._ec2,
            records=self._fleet_table,
            table=self.table,
            deployment=self.name,
            retention=VolumeRetention(
                volumes=None if days is None else timedelta(days=days), runs=timedelta(days=RUN_RETENTION_DAYS)
            ),
            now=self.now,
        )

    # The launcher's

    @cached_property
    def platform(self: Deployment[LauncherSettings]) -> JobPlatform:
        """The deployment's part of each training job."""
        settings = self.settings
        # The roles of teams are beside the execution role, which has no path either.
        beside, _, _ = settings.execution_role_arn.rpartition("/")
        return JobPlatform(
            deployment=self.name,
            checkpoint_bucket=settings.checkpoint_bucket,
            execution_role_arn=settings.execution_role_arn,
            training_bundle_uri=settings.training_bundle_uri,
            volume_kms_key_arn=settings.volume_kms_key_arn,
            subnet_ids=settings.subnet_ids,
            security_group_ids=settings.security_group_ids,
            team_role_arns={team: f"{beside}/{role}" for team, role in settings.team_roles.items()},
        )

    @cached_property
    def defaults(self: Deployment[LauncherSettings]) -> DeploymentDefaults:
        """The values that the deployment fills into a document, and its bounds."""
        settings = self.settings
        return DeploymentDefaults(
            image=settings.default_image,
            instance_type=settings.default_instance_type,
            checkpoint_bucket=settings.checkpoint_bucket,
            data_locations=settings.data_locations,
            file_systems=settings.file_systems,
            mlflow_arns=settings.mlflow_arns,
            secrets=settings.secrets,
            max_run_limit_seconds=settings.max_run_limit_seconds,
            prices=self.prices,
            max_keep_alive_seconds=settings.max_keep_alive_seconds,
            isolated_teams=tuple(sorted(settings.team_roles)),
            teams=tuple(sorted({*settings.team_roles, *settings.team_members})),
            fleet_instance_types=None if self.fleet_platform is None else self.fleet_platform.instance_types,
            nodes_network=settings.fleet_nodes_security_group_id is not None,
            limits=settings.spending_limits,
            shells=settings.shells,
            queues=settings.queues,
            training_network=bool(settings.subnet_ids),
            region=self.clients.region,
        )

    @cached_property
    def secret_checks(self: Deployment[LauncherSettings]) -> SecretChecks:
        """AWS's answers about the secrets of requests."""
        return SecretChecks(
            secrets_manager=lambda: self.clients.secrets_manager,
            kms=lambda: self.clients.kms,
            ec2=self._ec2,
            secrets=self.settings.secrets,
            key_arns=self.settings.secret_key_arns,
            training_subnet_ids=self.settings.subnet_ids,
            region=self.clients.region,
        )

    @cached_property
    def file_system_checks(self: Deployment[LauncherSettings]) -> FileSystemChecks:
        """AWS's answers about the file systems of requests."""
        return FileSystemChecks(
            fsx=lambda: self.clients.fsx,
            efs=lambda: self.clients.efs,
            ec2=self._ec2,
            file_systems=self.settings.file_systems,
            networks=self._job_networks,
            region=self.clients.region,
        )

    @property
    def _job_networks(self: Deployment[LauncherSettings]) -> dict[str, JobNetwork]:
        settings, fleets = self.settings, self.fleet_platform
        networks = {
            "sagemaker": JobNetwork(
                jobs="training jobs",
                subnet_ids=settings.subnet_ids,
                group_ids=lambda: settings.security_group_ids,
                subnets_setting="training_subnet_ids",
                groups_setting="training_security_group_ids",
            )
        }
        if fleets is not None:
            networks["ec2"] = JobNetwork(
                jobs="instances",
                subnet_ids=tuple(fleets.subnets),
                group_ids=lambda: self._ec2.deployed_groups(fleets.launch_template_id),
                subnets_setting="vpc_subnet_ids",
                groups_setting="vpc_security_group_id",
            )
        return networks

    def platform_for(self: Deployment[LauncherSettings], request: JobRequest) -> JobPlatform:
        """Return the deployment's part of a request's training jobs, with the subnets from which they reach its data.

        Args:
            request: The validated request.
        """
        if not request.file_system_channels:
            return self.platform
        return replace(self.platform, subnet_ids=self.file_system_checks.subnet_ids_for(request))

    def fleet_platform_for(self: Deployment[LauncherSettings], request: JobRequest) -> FleetPlatform | None:
        """Return the deployment's part of a request's fleets, with the subnets from which they reach its data.

        Args:
            request: The validated request.

        Raises:
            RequestRefusedError: A file system of it cannot be mounted, or AWS refuses to describe it.
            AwsBusyError: AWS could not answer. Call again.
        """
        platform = self.fleet_platform
        if platform is None or not request.file_system_channels:
            return platform
        reached = self.file_system_checks.reached(request)
        subnets = {name: platform.subnets[name] for name in reached.subnet_ids}
        return replace(platform, subnets=subnets, file_systems=reached.names)

    @cached_property
    def sessions(self: Deployment[LauncherSettings]) -> SessionManager | None:
        """The sessions of shells, or None in a deployment without shells."""
        return SessionManager(lambda: self.clients.systems_manager) if self.settings.shells else None
