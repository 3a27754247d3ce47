"""SageMaker's training jobs as IAM sees them, with ARNs, log group, the role of a job and permissions on jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.job_file_systems import WITHOUT_FILE_SYSTEMS, JobFileSystems
from spotkeep_constructs.session_manager import allow_agent
from spotkeep_constructs.statements import allow, allow_regional, arn_for, together
from spotkeep_constructs.storage import allow_image_pull
from spotkeep_fleet.tags import DEPLOYMENT_TAG

LOG_GROUP_NAME = "/aws/sagemaker/TrainingJobs"
"""SageMaker writes every training job of an account and region to this group."""

KEEP_ALIVE_KEY = "sagemaker:KeepAlivePeriod"
"""Seconds of a warm pool's keep-alive period, in a request to create or update a job. Absent where it has none.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools-how-to-use.html (IAM condition key)
"""

_EVERY_JOB = "Jobs are named later: this account and region's, of this kind of job alone."
_EVERY_STREAM = "SageMaker names the streams after jobs: those of its training log group alone."


@dataclass(frozen=True, kw_only=True)
class TrainingJobs:
    """The training jobs of one deployment, which come from the launcher and not from a template.

    Every job carries the deployment's tag. No function may create a job without it, or stop a job that lacks it.

    Attributes:
        deployment: Value of the tag `spotkeep:deployment`.
        max_keep_alive_seconds: The longest time in seconds for which a warm pool of theirs may be kept.
        file_systems: The file systems that they may mount.
    """

    deployment: str
    max_keep_alive_seconds: int
    file_systems: JobFileSystems

    def grant_launch(self, grantee: iam.IGrantable, *, execution_roles: Sequence[iam.IRole]) -> iam.Grant:
        """Let a principal create jobs with this deployment's tag and role, describe jobs, and stop its own.

        Args:
            grantee: The role of a function that launches.
            execution_roles: The roles jobs run with. The only ones that may be passed, and to SageMaker alone.
        """
        bounds = {
            "StringEquals": {f"aws:RequestTag/{DEPLOYMENT_TAG}": self.deployment},
            **self._kept_alive_within_the_limit(),
        }
        mounted = [self.file_systems.condition] if self.file_systems.ids else []
        return together(
            *(
                allow(
                    grantee,
                    actions=["sagemaker:CreateTrainingJob"],
                    resources=[_every_job(grantee)],
                    wildcard=_EVERY_JOB,
                    conditions={**bounds, **each},
                )
                for each in (WITHOUT_FILE_SYSTEMS, *mounted)
            ),
            allow(
                grantee,
                actions=["sagemaker:AddTags"],
                resources=[_every_job(grantee)],
                wildcard=_EVERY_JOB,
                conditions={"StringEquals": {"sagemaker:TaggingAction": "CreateTrainingJob"}},
            ),
            allow(
                grantee,
                actions=["sagemaker:StopTrainingJob"],
                resources=[_every_job(grantee)],
                wildcard=_EVERY_JOB,
                conditions={"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT_TAG}": self.deployment}},
            ),
            allow(
                grantee,
                actions=["iam:PassRole"],
                resources=[role.role_arn for role in execution_roles],
                conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
            ),
            self.grant_describe(grantee),
        )

    def grant_keep_alive(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal change how long its deployment's warm pools are kept, within the limit, and end them.

        Args:
            grantee: The role of a function that acts on pools.
        """
        return allow(
            grantee,
            actions=["sagemaker:UpdateTrainingJob"],
            resources=[_every_job(grantee)],
            wildcard=_EVERY_JOB,
            conditions={
                "StringEquals": {f"aws:ResourceTag/{DEPLOYMENT_TAG}": self.deployment},
                **self._kept_alive_within_the_limit(),
            },
        )

    def deny_longer_keep_alive(self, policy: iam.ManagedPolicy) -> None:
        """Keep principals that have a policy from longer keep-alive periods, whatever else allows them to create jobs.

        Args:
            policy: A policy that is attached to people.
        """
        policy.add_statements(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=["sagemaker:CreateTrainingJob", "sagemaker:UpdateTrainingJob"],
                resources=[_every_job(policy)],
                conditions={"NumericGreaterThan": {KEEP_ALIVE_KEY: str(self.max_keep_alive_seconds)}},
            )
        )

    def grant_describe_own(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal describe the deployment's training jobs, and read their tags.

        A description holds the environment of a job and its hyperparameters.

        Args:
            grantee: A role, user or managed policy.
        """
        return allow(
            grantee,
            actions=["sagemaker:DescribeTrainingJob", "sagemaker:ListTags"],
            resources=[_every_job(grantee)],
            wildcard=_EVERY_JOB,
            conditions={"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT_TAG}": self.deployment}},
        )

    def grant_describe(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a function describe training jobs, whosever they are.

        A condition on the tag would deny a missing job just as a job of another deployment. An interrupted launch could
        then not be distinguished from a name that is taken.

        Args:
            grantee: A function's role.
        """
        return allow(
            grantee, actions=["sagemaker:DescribeTrainingJob"], resources=[_every_job(grantee)], wildcard=_EVERY_JOB
        )

    def grant_observe(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read the state and the logs of training jobs.

        Args:
            grantee: A role that reconciles jobs.
        """
        return together(
            self.grant_describe(grantee),
            allow(
                grantee,
                actions=["logs:DescribeLogStreams", "logs:FilterLogEvents"],
                resources=_log_arns(grantee),
                wildcard=_EVERY_STREAM,
            ),
        )

    def grant_list(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal list the training jobs of the account.

        Args:
            grantee: A role that finds warm pools of any job.
        """
        return allow_regional(grantee, "sagemaker:ListTrainingJobs")

    def grant_find(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal list and search the account's training jobs, and read their owners from tags.

        Args:
            grantee: The role of the function that finds orphans, and describes many jobs at once.
        """
        return together(
            self.grant_list(grantee),
            allow_regional(grantee, "sagemaker:Search"),
            allow(grantee, actions=["sagemaker:ListTags"], resources=[_every_job(grantee)], wildcard=_EVERY_JOB),
        )

    def grant_read_logs(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read the logs of jobs.

        Args:
            grantee: A role, user or managed policy.
        """
        return allow(
            grantee,
            actions=["logs:DescribeLogStreams", "logs:GetLogEvents"],
            resources=_log_arns(grantee),
            wildcard=_EVERY_STREAM,
        )

    def grant_write_logs(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a job write its log and its metrics.

        Args:
            grantee: The role jobs run with.
        """
        return together(
            allow(
                grantee,
                actions=[
                    "logs:CreateLogGroup",
                    "logs:CreateLogStream",
                    "logs:DescribeLogStreams",
                    "logs:PutLogEvents",
                ],
                resources=_log_arns(grantee),
                wildcard=_EVERY_STREAM,
            ),
            allow(
                grantee,
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                wildcard="Metrics are no IAM resources; the namespace binds them to training jobs.",
                conditions={"StringEquals": {"cloudwatch:namespace": LOG_GROUP_NAME}},
            ),
        )

    def _kept_alive_within_the_limit(self) -> dict[str, dict[str, str]]:
        return {"NumericLessThanEqualsIfExists": {KEEP_ALIVE_KEY: str(self.max_keep_alive_seconds)}}


def _every_job(grantee: iam.IGrantable) -> str:
    return arn_for(grantee, "sagemaker", "training-job")


def _log_arns(grantee: iam.IGrantable) -> list[str]:
    group = arn_for(grantee, "logs", "log-group", LOG_GROUP_NAME, colon=True)
    return [group, f"{group}:*"]


MLFLOW_LOGGING = (
    "sagemaker-mlflow:CreateExperiment",
    "sagemaker-mlflow:CreateRun",
    "sagemaker-mlflow:GetExperimentByName",
    "sagemaker-mlflow:GetRun",
    "sagemaker-mlflow:LogBatch",
    "sagemaker-mlflow:LogMetric",
    "sagemaker-mlflow:LogParam",
    "sagemaker-mlflow:SearchRuns",
    "sagemaker-mlflow:SetTag",
    "sagemaker-mlflow:UpdateRun",
)
"""Actions with which a job logs its run to a tracking server or an app of SageMaker's MLflow.

A tracking server asks for one action for each call of MLflow's REST API. These actions begin a run, find it again, and
log metrics, parameters and tags. No action deletes. An app asks for one action, for any call.

Sources: "Set up IAM permissions for MLflow" (SageMaker developer guide). "Actions, resources, and condition keys for
Amazon SageMaker with MLflow" (service authorization reference).
"""

_INTERFACES = "SageMaker creates the interfaces and EC2 names them; the subnets bind them."


class ExecutionRole(Construct):
    """The SageMaker execution role of every job of a deployment.

    Source: "How to use SageMaker AI execution roles", section CreateTrainingJob, narrowed from `*` to this
    deployment's data.

    Attributes:
        role: The role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        checkpoints: CheckpointBucket,
        jobs: TrainingJobs,
        team: str | None = None,
        encrypt_volumes: bool = False,
        shells: bool = False,
        mlflow_arns: Sequence[str] = (),
        subnet_ids: Sequence[str] = (),
        security_group_ids: Sequence[str] = (),
    ) -> None:
        """Place the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            checkpoints: The bucket that jobs work in, below the prefix of their runs, with the `bundles/` they start
                with.
            jobs: The jobs that run with this role.
            team: The isolated team of the jobs, or None for the jobs of all other teams.
            encrypt_volumes: True when the bucket's key encrypts the storage volumes of jobs.
            shells: True when Session Manager's agent may take sessions in jobs that ask for it.
            mlflow_arns: The tracking servers and apps of SageMaker's MLflow that jobs may log to.
            subnet_ids: Subnets that jobs run in, without which the role has no network permission.
            security_group_ids: Security groups that jobs run with.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            description="Spotkeep's training jobs run with it",
        )
        checkpoints.grant_train(self.role, team=team)
        checkpoints.grant_read_specs(self.role, team=team)
        if encrypt_volumes:
            checkpoints.grant_encrypt_volumes(self.role)
        checkpoints.grant_read_bundles(self.role)
        jobs.grant_write_logs(self.role)
        allow_image_pull(self.role)
        self._allow_mlflow(mlflow_arns)
        if shells:
            allow_agent(
                self.role,
                conditions={"StringEquals": {"aws:RequestedRegion": Aws.REGION}},
                bound="the region is the narrowest bound that they take in a training job.",
            )
        if subnet_ids:
            self._allow_network(subnet_ids, security_group_ids)

    def _allow_mlflow(self, arns: Sequence[str]) -> None:
        apps = [arn for arn in arns if ":mlflow-app/" in arn]
        servers = [arn for arn in arns if arn not in apps]
        if servers:
            allow(self.role, actions=MLFLOW_LOGGING, resources=servers)
        if apps:
            allow(self.role, actions=["sagemaker:CallMlflowAppApi"], resources=apps)

    def _allow_network(self, subnet_ids: Sequence[str], security_group_ids: Sequence[str]) -> None:
        interfaces = arn_for(self.role, "ec2", "network-interface")
        subnets = [arn_for(self.role, "ec2", "subnet", name) for name in subnet_ids]
        groups = [arn_for(self.role, "ec2", "security-group", name) for name in security_group_ids]
        allow(
            self.role,
            actions=["ec2:CreateNetworkInterface"],
            resources=[interfaces, *subnets, *groups],
            wildcard=_INTERFACES,
        )
        allow(
            self.role,
            actions=[
                "ec2:CreateNetworkInterfacePermission",
                "ec2:DeleteNetworkInterface",
                "ec2:DeleteNetworkInterfacePermission",
            ],
            resources=[interfaces],
            wildcard=_INTERFACES,
            conditions={"ArnEquals": {"ec2:Subnet": subnets}},
        )
        allow(
            self.role,
            actions=[
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            resources=["*"],
            wildcard="EC2's descriptions know no resources; they only read.",
        )
