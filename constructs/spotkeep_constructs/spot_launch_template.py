"""How an EC2 spot instance of ours starts: encrypted, closed, reachable through the Systems Manager alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import jsii
from aws_cdk import Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.network import Network
from spotkeep_constructs.statements import allow


@dataclass(frozen=True, kw_only=True)
class SpotOverride:
    """One place a fleet may take capacity from.

    Attributes:
        instance_type: EC2 type.
        subnet_id: Subnet, which names the zone; may be a token.
        availability_zone: The subnet's zone; may be a token.
    """

    instance_type: str
    subnet_id: str
    availability_zone: str


class SpotLaunchTemplate(Construct):
    """A launch template and the overrides a fleet uses it with: each type in each zone.

    It names no spot options: EC2 refuses a fleet whose template holds them, because the fleet itself says what is spot.

    Attributes:
        launch_template: The template.
        role: The instances' role.
        spot_overrides: Each instance type in each subnet, the types in their given order.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        network: Network,
        instance_types: Sequence[str],
        ami: str,
        root_device: str,
        volume_gb: int,
    ) -> None:
        """Places the template.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the instances' tag `spotkeep:deployment`.
            network: Where instances run.
            instance_types: EC2 types a fleet may choose from, the preferred first.
            ami: An AMI id, or the name of the SSM parameter that holds one; resolved at deployment.
            root_device: The AMI's root device, for example /dev/sda1.
            volume_gb: Size of the root volume in GiB.

        Raises:
            PropertyError: There is no instance type, one is SageMaker's or named twice, or the volume is too small.
        """
        super().__init__(scope, id)
        wrong = [name for name in instance_types if name.startswith("ml.") or "." not in name]
        if not instance_types or wrong or len(set(instance_types)) != len(instance_types):
            raise PropertyError(
                name="SpotLaunchTemplate.instance_types",
                problem="must be EC2 instance types, each named once",
                found=list(wrong or instance_types),
                fix="Give names such as g5.xlarge; the ml. prefix is SageMaker's.",
            )
        if volume_gb < 8:
            raise PropertyError(
                name="SpotLaunchTemplate.volume_gb",
                problem="is too small for an operating system",
                found=volume_gb,
                fix="Give at least 8 GiB.",
            )
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Spotkeep's EC2 instances run with it",
        )
        self._allow_session_manager()
        self.launch_template = ec2.LaunchTemplate(
            self,
            "Template",
            machine_image=_machine_image(ami),
            role=self.role,
            security_group=network.security_group,
            require_imdsv2=True,
            http_endpoint=True,
            # Two hops, or a container on the instance's bridge network could not see an interruption coming.
            http_put_response_hop_limit=2,
            instance_metadata_tags=True,
            ebs_optimized=True,
            instance_initiated_shutdown_behavior=ec2.InstanceInitiatedShutdownBehavior.TERMINATE,
            block_devices=[
                ec2.BlockDevice(
                    device_name=root_device,
                    volume=ec2.BlockDeviceVolume.ebs(
                        volume_gb,
                        # With the account's own EBS key: a fleet's instances could not start with another one
                        # before its owner grants EC2's service-linked roles the use of it.
                        encrypted=True,
                        volume_type=ec2.EbsDeviceVolumeType.GP3,
                        delete_on_termination=True,
                    ),
                )
            ],
        )
        Tags.of(self.launch_template).add("spotkeep:deployment", deployment)
        self.spot_overrides = [
            SpotOverride(
                instance_type=instance_type,
                subnet_id=subnet.subnet_id,
                availability_zone=subnet.availability_zone,
            )
            for instance_type in instance_types
            for subnet in network.subnets
        ]

    def _allow_session_manager(self) -> None:
        """What the Systems Manager's agent needs for a shell, and not the rest of AWS's managed policy for it.

        Source: "Create a custom IAM role for Session Manager".
        """
        instances = Stack.of(self).format_arn(service="ec2", resource="instance", resource_name="*")
        allow(
            self.role,
            actions=[
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            resources=["*"],
            conditions={"ArnLike": {"ec2:SourceInstanceARN": instances}},
            wildcard="Session Manager's channels are no IAM resources; the condition binds the calls to this "
            "account's instances.",
        )


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
