"""What EC2 instances start from and may do. The fleet that uses it comes with a run and leaves with it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnOutput, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.deployment_build import DeploymentBuild
from spotkeep_constructs.fleets import Fleets
from spotkeep_constructs.instance_credentials import InstanceCredentials
from spotkeep_constructs.instance_log import InstanceLog, group_name
from spotkeep_constructs.instance_role import InstanceRole
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.log_retention import log_retention
from spotkeep_constructs.network import ExistingNetwork, Network
from spotkeep_constructs.run_role import RunRole
from spotkeep_constructs.spot_launch_template import SpotLaunchTemplate
from spotkeep_constructs.storage import Storage
from spotkeep_constructs.training_bundle import TrainingBundle
from spotkeep_constructs.volume_key import VolumeKey
from spotkeep_fleet.user_data import BootInputs

_ZONES_OF_SMALL_REGIONS = {"us-west-1": 2}
"""Regions whose accounts see fewer than three zones."""


class SpotCompute(Construct):
    """The network, the instances' roles and log, the function that gives credentials, and the launch template.

    Attributes:
        network: The network.
        role: What instances are launched with.
        credentials: The function that gives them the credentials of their run.
        log: Where trainings on instances print to.
        template: The launch template.
        launch_template_id: Its id.
        fleets: What is launched from it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        build: DeploymentBuild,
        platform: FunctionPlatform,
        storage: Storage,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: Sequence[ec2.ISubnet] | None = None,
    ) -> None:
        """Place what instances need.

        Args:
            scope: Parent construct.
            id: Construct id.
            build: The deployment's settings, and where its code is found.
            platform: What the functions of the stack share.
            storage: The bucket and the table.
            vpc: An existing VPC of the app. Default: the one that the settings name, or one is created.
            vpc_subnets: Its subnets for instances, one a zone. Default: those that the CDK chooses.
        """
        super().__init__(scope, id)
        self._settings = settings = build.settings
        self.fleets = Fleets(deployment=settings.deployment)
        named = settings.vpc_id and ExistingNetwork(
            vpc_id=settings.vpc_id,
            subnet_ids=settings.vpc_subnet_ids,
            availability_zones=settings.vpc_availability_zones,
            security_group_id=settings.vpc_security_group_id,
        )
        self.network = Network(
            self,
            "Network",
            existing=named or None,
            vpc=vpc,
            vpc_subnets=vpc_subnets,
            # Resolved by CloudFormation: the CDK's own answer would ask AWS at synth.
            availability_zones=[
                Fn.select(index, Fn.get_azs()) for index in range(_ZONES_OF_SMALL_REGIONS.get(settings.region or "", 3))
            ],
        )
        bundle = TrainingBundle(self, "TrainingBundle", packed=build.training_bundle, checkpoints=storage.checkpoints)
        self.log = InstanceLog(
            self, "Log", deployment=settings.deployment, retention=log_retention(settings.log_retention_days)
        )
        instances = InstanceRole(self, "Instance", checkpoints=storage.checkpoints)
        self.role = instances.role
        self.credentials = InstanceCredentials(
            self, "Credentials", deployment=settings.deployment, platform=platform, instances=instances
        )
        run = RunRole(
            self,
            "Run",
            deployment=settings.deployment,
            assumed_by=self.credentials.role,
            checkpoints=storage.checkpoints,
            run_table=storage.run_table,
            log=self.log,
        )
        # The instances' own role too: for scripts that call AWS themselves, where they reach the metadata.
        storage.data.let_read(run, [run.role, self.role])
        self.credentials.give(run)
        key_arn = settings.volume_kms_key_arn
        if key_arn is not None:
            VolumeKey(self, "VolumeKey", key_arn=key_arn, run_role=run.role)
        self.template = SpotLaunchTemplate(
            self,
            "Spot",
            deployment=settings.deployment,
            network=self.network,
            role=self.role,
            boot=BootInputs(
                bundle_uri=bundle.uri,
                bundle_sha256=bundle.content_sha256,
                region=Stack.of(self).region,
                run_table=storage.run_table.table.table_name,
                deployment=settings.deployment,
                credentials_function=self.credentials.function.function.function_name,
            ),
            ami=settings.instance_ami,
            volume_gb=settings.instance_volume_gb,
            volume_key_arn=key_arn,
        )
        self.launch_template_id = self.template.launch_template.launch_template_id or ""
        CfnOutput(
            self,
            "LaunchTemplateId",
            description="The launch template whose versions instances start from",
            value=self.launch_template_id,
        )

    def let_launch(self, function: JobFunction) -> None:
        """Let a function launch fleets from this template, describe and end them.

        In one policy of their own: beside what the function may do with jobs, it would not fit into a role's own one.

        Args:
            function: The function.
        """
        policy = iam.ManagedPolicy(
            function, "FleetsPolicy", description="Launches, follows and ends Spotkeep's EC2 fleets"
        )
        policy.attach_to_role(function.role)
        self.fleets.grant_launch(
            policy,
            launch_template_id=self.launch_template_id,
            instance_role=self.role,
            subnet_ids=[subnet.subnet_id for subnet in self.network.subnets],
            security_group_id=self.network.security_group.security_group_id,
        )

    def fleet_variables(self, scope: Construct) -> dict[str, object]:
        """Return what a function that launches fleets reads of them: fields of `DeploymentSettings`.

        What the settings say of fleets lies with the function's code.

        Args:
            scope: A construct of the function's stack.
        """
        subnets = {subnet.subnet_id: subnet.availability_zone for subnet in self.network.subnets}
        return {
            "launch_template_id": self.launch_template_id,
            "fleet_subnets": None if self._settings.vpc_id else Stack.of(scope).to_json_string(subnets),
            "fleet_log_group": group_name(self._settings.deployment),
        }
