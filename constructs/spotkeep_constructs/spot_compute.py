"""The resources that EC2 instances start from, such as launch template, roles, credentials and a volume key.

The fleet that uses them comes with a run and leaves with it.

A key is the customer's, and so is its policy, which nothing here changes. The run role gets its IAM permissions. No
account can change the policies of EC2's service-linked roles, so the key's policy has to name them. An output of the
stack has the statements for it.

Sources: "Requirements for Amazon EBS encryption", EBS user guide. "Grant access to customer managed keys", EC2 Fleet
prerequisites. The policy of `aws/ebs` lets the same roles in by the same `kms:ViaService`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import jsii
from aws_cdk import Aws, CfnOutput, Duration, Fn, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from spotkeep_constructs.deployment_build import DeploymentBuild
from spotkeep_constructs.fleets import Fleets, service_role_arns
from spotkeep_constructs.instance_log import InstanceLog, group_name
from spotkeep_constructs.instance_roles import InstanceRole, RunRole
from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_constructs.job_secrets import JobSecrets
from spotkeep_constructs.log_retention import log_retention
from spotkeep_constructs.network import ExistingNetwork, Network, NodesNetwork
from spotkeep_constructs.statements import allow
from spotkeep_constructs.storage import Storage
from spotkeep_constructs.training_bundle import TrainingBundle
from spotkeep_fleet.service_roles import FLEET_SERVICE_ROLES
from spotkeep_fleet.tags import DEPLOYMENT_TAG
from spotkeep_fleet.user_data import BootInputs, user_data
from spotkeep_jobs.settings import CredentialsSettings

_USE: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


class VolumeKey(Construct):
    """The key of root volumes, of the runs' volumes and of their snapshots.

    Attributes:
        key_arn: Its ARN.
    """

    def __init__(self, scope: Construct, id: str, *, key_arn: str, run_role: iam.IRole) -> None:  # noqa: A002
        """Let the instances use the key, and output the statements that its policy needs.

        Args:
            scope: Parent construct.
            id: Construct id.
            key_arn: The ARN of the key, of this account or of another one.
            run_role: The role with which instances make volumes and attach them.
        """
        super().__init__(scope, id)
        self.key_arn = key_arn
        via_ec2 = {"kms:ViaService": f"ec2.{Stack.of(self).region}.{Aws.URL_SUFFIX}"}
        for_ec2 = {"StringEquals": via_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}}
        allow(run_role, actions=_USE, resources=[key_arn], conditions={"StringEquals": via_ec2})
        allow(run_role, actions=["kms:CreateGrant"], resources=[key_arn], conditions=for_ec2)
        principals = {"AWS": [*service_role_arns(run_role, FLEET_SERVICE_ROLES), run_role.role_arn]}

        def statement(sid: str, actions: tuple[str, ...], conditions: dict[str, Any]) -> dict[str, Any]:
            return {
                "Sid": sid,
                "Effect": "Allow",
                "Principal": principals,
                "Action": list(actions),
                "Resource": "*",
                "Condition": conditions,
            }

        CfnOutput(
            self,
            "KeyPolicy",
            description="Statements that the policy of volume_kms_key_arn needs before the first fleet",
            value=Stack.of(self).to_json_string(
                [
                    statement("SpotkeepVolumes", _USE, {"StringEquals": via_ec2}),
                    statement("SpotkeepVolumesInUse", ("kms:CreateGrant",), for_ec2),
                ]
            ),
        ).override_logical_id("VolumeKeyPolicy")


DEPLOYED = "deployed"
"""Description of the versions that a deployment makes. An attempt's is made from the newest one with its bundle."""

ROOT_DEVICE = "/dev/xvda"
"""That of Amazon Linux. An attempt's version names that of the AMI instead, which only EC2 knows for certain."""

ROOT_THROUGHPUT_MIB_S = 250
"""Throughput of the root volume in MiB/s.

Before it trains, an instance reads its AMI's packages from this volume, and unpacks a job's docker image to it. With
gp3's 125 MiB/s, which are in its price, this takes twice as long.

More would cost money and have no effect. The smallest types with a GPU (g4dn.xlarge, g5.xlarge) have 3,500 Mbit/s to
EBS for all of their volumes, some 417 MiB/s. The run's own volume has 125 MiB/s or more. The throughput costs about
0.007 USD an hour of an instance in us-east-1. It needs no IOPS beyond gp3's 3,000, since AWS allows 0.25 MiB/s for
each.
Sources:
    https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html (Amazon EBS specifications)
"""


class SpotLaunchTemplate(Construct):
    """The launch template that all instances start from, in its versions.

    The deployed version names no run, and a fleet of type `maintain` tags no instances. So the launcher makes a version
    with tags for each attempt, out of the newest deployed version with the same bundle. (CloudFormation would give the
    number of the latest version, which is the version of the last attempt.) The template names no type and no subnet,
    since these are a fleet's overrides. It has no spot options. EC2 refuses a fleet with a template that holds them,
    because the fleet itself chooses spot.

    Attributes:
        launch_template: The template.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        network: Network,
        role: iam.IRole,
        boot: BootInputs,
        ami: str,
        volume_gb: int,
        volume_key_arn: str | None = None,
    ) -> None:
        """Place the template.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the instances' tag `spotkeep:deployment`.
            network: The network that instances run in.
            role: The role that instances run with.
            boot: The content of an instance's user data.
            ami: An AMI id, or the name of an SSM parameter with one, which CloudFormation resolves at deployment.
            volume_gb: Size of the root volume in GiB, which an attempt raises to the size of the AMI.
            volume_key_arn: The ARN of the key that encrypts it, or None for the account's own EBS key.
        """
        super().__init__(scope, id)
        self.launch_template = ec2.LaunchTemplate(
            self,
            "Template",
            version_description=DEPLOYED,
            machine_image=_machine_image(ami),
            role=role,
            user_data=ec2.UserData.custom(user_data(boot)),
            security_group=network.security_group,
            require_imdsv2=True,
            http_endpoint=True,
            # No container on the instance's bridge network is handed the instance's role.
            http_put_response_hop_limit=1,
            instance_metadata_tags=True,
            ebs_optimized=True,
            instance_initiated_shutdown_behavior=ec2.InstanceInitiatedShutdownBehavior.TERMINATE,
            block_devices=[
                ec2.BlockDevice(
                    device_name=ROOT_DEVICE,
                    volume=ec2.BlockDeviceVolume.ebs(
                        volume_gb,
                        encrypted=True,
                        kms_key=None
                        if volume_key_arn is None
                        else kms.Key.from_key_arn(self, "VolumeKey", volume_key_arn),
                        volume_type=ec2.EbsDeviceVolumeType.GP3,
                        throughput=ROOT_THROUGHPUT_MIB_S,
                        delete_on_termination=True,
                    ),
                )
            ],
        )
        Tags.of(self.launch_template).add(DEPLOYMENT_TAG, deployment)


@jsii.implements(ec2.IMachineImage)
class _GivenImage:
    """An AMI by its id, in whatever region the stack is deployed to."""

    def __init__(self, ami: str) -> None:
        self._ami = ami

    def get_image(self, scope: Construct) -> ec2.MachineImageConfig:  # noqa: ARG002 - the CDK's signature
        return ec2.MachineImageConfig(
            image_id=self._ami, os_type=ec2.OperatingSystemType.LINUX, user_data=ec2.UserData.for_linux()
        )


def _machine_image(ami: str) -> ec2.IMachineImage:
    if ami.startswith("ami-"):
        return cast("ec2.IMachineImage", _GivenImage(ami))
    # Resolved by CloudFormation at deployment. EC2 itself could do it at launch (`resolve:ssm:`), but a fleet of type
    # `maintain` refuses a template that leaves it the AMI to find (CreateLaunchTemplate, ImageId).
    return ec2.MachineImage.from_ssm_parameter(ami)


class InstanceCredentials(Construct):
    """A function that instances invoke, once when they boot and then about every three quarters of an hour.

    An instance proves its identity by a request that it has signed for STS. So the function needs no URL that names its
    caller. Instances in a network without internet access reach the function through Lambda's endpoint.

    Attributes:
        function: The function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        platform: FunctionPlatform,
        instances: InstanceRole,
    ) -> None:
        """Place the function.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the function's name, and the tag of the instances that it answers.
            platform: The code, layer and log settings that all functions of the stack share.
            instances: The role of the instances that it answers, which alone may invoke it.
        """
        super().__init__(scope, id)
        self.function = JobFunction(
            self,
            "Function",
            package="instance_credentials",
            deployment=deployment,
            platform=platform,
            environment=CredentialsSettings.variables(instance_role_arn=instances.role.role_arn),
            timeout=Duration.seconds(20),
            description="Gives an instance the credentials of its own run",
        )
        instances.let_ask(self.function)

    @property
    def role(self) -> iam.Role:
        """The role that the function runs with."""
        return self.function.role

    def give(self, run_role: RunRole) -> None:
        """Have it give sessions of a role.

        Args:
            run_role: The role, which trusts the function's.
        """
        run_role.let_assume(self.role)
        self.function.add_variables(CredentialsSettings.variables(run_role_arn=run_role.role.role_arn))


_ZONES_OF_SMALL_REGIONS = {"us-west-1": 2}
"""Regions in which accounts see fewer than three zones."""


class SpotCompute(Construct):
    """The network, the instances' roles and log, the function that gives credentials, and the launch template.

    Attributes:
        network: The network.
        nodes: What the nodes of a run have of the network beside it.
        role: The role that instances are launched with.
        credentials: The function that gives them the credentials of their run.
        log: The log group for the output of trainings on instances.
        template: The launch template.
        launch_template_id: Its id.
        fleets: The permissions on fleets that the launcher launches from it.
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
        """Place the resources that instances need.

        Args:
            scope: Parent construct.
            id: Construct id.
            build: The deployment's settings, and the directories of its code.
            platform: The code, layer and log settings that all functions of the stack share.
            storage: The bucket and the table.
            vpc: An existing VPC of the app. By default the VPC of the settings, or a new one.
            vpc_subnets: Its subnets for instances, one a zone. By default the CDK chooses them.
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
        self.nodes = NodesNetwork(self, "Nodes", network=self.network)
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
        JobSecrets(secrets=settings.secrets, key_arns=settings.secret_key_arns).let_read(run, [run.role])
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

        These permissions have a managed policy of their own. Beside the permissions on jobs they would not fit into the
        role's inline policy.

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
            security_group_ids=[self.network.security_group.security_group_id, self.nodes.security_group_id],
            placement_groups=self.nodes.placement_groups,
        )

    def fleet_variables(self, scope: Construct) -> dict[str, object]:
        """Return the variables of a function that launches fleets, which are fields of `DeploymentSettings`.

        The settings about fleets are in the archive of the function's code.

        Args:
            scope: A construct of the function's stack.
        """
        subnets = {subnet.subnet_id: subnet.availability_zone for subnet in self.network.subnets}
        return {
            "launch_template_id": self.launch_template_id,
            "fleet_subnets": None if self._settings.vpc_id else Stack.of(scope).to_json_string(subnets),
            "fleet_nodes_security_group_id": self.nodes.security_group_id,
            "fleet_log_group": group_name(self._settings.deployment),
        }
