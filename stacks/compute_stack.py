"""What EC2 instances will start from. The fleet that uses it comes with a run and leaves with it."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment, Fn, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.network import ExistingNetwork, Network
from spotkeep_constructs.spot_launch_template import SpotLaunchTemplate
from stacks.settings import Settings


class ComputeStack(Stack):
    """The network and the launch template.

    Attributes:
        network: The network.
        template: The launch template and its spot overrides.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Places the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: launch template for EC2 spot instances",
        )
        self._zones = [Fn.select(index, Fn.get_azs()) for index in range(settings.network_zones)]
        existing = settings.vpc_id and ExistingNetwork(
            vpc_id=settings.vpc_id,
            subnet_ids=settings.vpc_subnet_ids,
            availability_zones=settings.vpc_availability_zones,
            security_group_id=settings.vpc_security_group_id,
        )
        self.network = Network(
            self,
            "Network",
            existing=existing or None,
            cidr=settings.network_cidr,
            availability_zones=self._zones,
        )
        self.template = SpotLaunchTemplate(
            self,
            "Spot",
            deployment=settings.deployment,
            network=self.network,
            instance_types=settings.spot_instance_types,
            ami=settings.instance_ami,
            root_device=settings.instance_root_device,
            volume_gb=settings.instance_volume_gb,
        )
        CfnOutput(
            self,
            "SpotOverrides",
            description="What a fleet may choose from: each instance type in each subnet",
            value=self.to_json_string(
                [
                    {"InstanceType": override.instance_type, "SubnetId": override.subnet_id}
                    for override in self.template.spot_overrides
                ]
            ),
        )
        CfnOutput(
            self,
            "LaunchTemplateId",
            description="The launch template a fleet starts from",
            value=self.template.launch_template.launch_template_id or "",
        )

    @property
    def availability_zones(self) -> list[str]:
        """The region's first zones, resolved by CloudFormation: the CDK's own answer would be a look-up at synth."""
        return self._zones
