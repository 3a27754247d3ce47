"""How an EC2 spot instance of ours starts: encrypted, closed, reachable through the Systems Manager alone."""

from __future__ import annotations

from typing import cast

import jsii
from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from spotkeep_constructs.network import Network
from spotkeep_fleet.tags import DEPLOYMENT_TAG
from spotkeep_fleet.user_data import BootInputs, user_data

DEPLOYED = "deployed"
"""How the versions that a deployment makes are described; attempts' are made out of the newest with their bundle."""

ROOT_DEVICE = "/dev/xvda"
"""That of Amazon Linux. An attempt's version names that of the AMI instead, which only EC2 knows for certain."""

ROOT_THROUGHPUT_MIB_S = 250
"""Of the root volume, which an instance reads its AMI's packages from, and unpacks a job's docker image to, before it
trains: gp3's 125 MiB/s, which are in its price, take twice as long.

No more, because it would be paid for and not be there: the smallest types with a GPU (g4dn.xlarge, g5.xlarge) have
3,500 Mbit/s to EBS, some 417 MiB/s, for all of their volumes, and the run's own has 125 or more. It costs about 0.007
USD an hour of an instance in us-east-1, and asks for no IOPS beyond gp3's 3,000: 0.25 MiB/s for each are allowed.
Sources:
    https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html (Amazon EBS specifications)
"""


class SpotLaunchTemplate(Construct):
    """The launch template whose versions all instances start from.

    What is deployed names no run: a fleet of type `maintain` tags no instances, so the launcher makes a version for an
    attempt that does, out of the newest deployed one with that bundle. (The number of the latest version, which
    CloudFormation would give, is that of the version made last.) It names no type and no subnet either, which are a
    fleet's overrides, and no spot options: EC2 refuses a fleet whose template holds them, because the fleet itself says
    what is spot.

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
            network: Where instances run.
            role: What instances run with.
            boot: What an instance finds in its user data.
            ami: An AMI id, or the name of the SSM parameter that holds one; resolved at deployment.
            volume_gb: Size of the root volume in GiB; an attempt's is as large as the AMI at least.
            volume_key_arn: What encrypts it; None for the account's own EBS key.
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
