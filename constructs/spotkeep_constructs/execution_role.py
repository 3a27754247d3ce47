"""The role a training job runs with: its runs' data, its log, its image, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.data_access import allow_image_pull
from spotkeep_constructs.session_manager import allow_agent
from spotkeep_constructs.statements import allow, arn_for
from spotkeep_constructs.training_jobs import TrainingJobs

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
"""What a job needs to log its run to a tracking server or an app of SageMaker's MLflow.

A tracking server asks for an action of each call of MLflow's REST API: here are those that begin a run, find it again,
log metrics, parameters and tags. None deletes. An app asks for one action, whatever is called.

Sources: "Set up IAM permissions for MLflow" (SageMaker developer guide); "Actions, resources, and condition keys for
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
            checkpoints: The bucket that jobs work in, below the prefix of their runs, and whose `bundles/` they start
                with.
            jobs: The jobs that run with this role.
            team: The isolated team whose jobs run with it; None for all others'.
            encrypt_volumes: Whether jobs' storage volumes are encrypted with the bucket's key.
            shells: Whether Session Manager's agent may take sessions in jobs that ask for it.
            mlflow_arns: The tracking servers and apps of SageMaker's MLflow that jobs may log to.
            subnet_ids: Subnets jobs run in; without them no network permission is given.
            security_group_ids: Security groups jobs run with.
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
