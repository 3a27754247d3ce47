"""The network of EC2 instances. It is a small one of our own that bills nothing while idle, or an existing one.

A run on several instances has more of it. Its nodes reach each other, and may be placed close to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from aws_cdk import Aws, CfnTag
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.errors import PropertyError
from spotkeep_fleet.tags import SUBNET_TAG

_ADDRESSES = "10.73.0.0/22"
"""Nothing is routed into the created network, so its addresses collide with none. A team that peers brings its own."""
_SUBNET_PREFIX_LENGTH = 24
"""Four subnets, of 251 instances each."""


@dataclass(frozen=True, kw_only=True)
class ExistingNetwork:
    """A network named by its ids, so that a synth asks AWS nothing.

    Attributes:
        vpc_id: Its VPC.
        subnet_ids: Subnets, one a zone, from which instances reach AWS's services
            (`spotkeep_jobs.backends.ec2.checks`).
        availability_zones: The zones of the subnets, in the same order.
        security_group_id: Security group of the instances. Without it the construct creates one without ingress.
    """

    vpc_id: str
    subnet_ids: Sequence[str]
    availability_zones: Sequence[str]
    security_group_id: str | None = None


class Network(Construct):
    """Subnets in several zones and a security group that nothing can reach into.

    The created network has public subnets and no NAT gateway. Instances call out through the internet gateway, and
    reach S3 and DynamoDB through gateway endpoints. An idle network costs nothing.

    Attributes:
        vpc: The VPC.
        subnets: One subnet a zone.
        security_group: The security group of the instances, without ingress.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        existing: ExistingNetwork | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: Sequence[ec2.ISubnet] | None = None,
        availability_zones: Sequence[str] = (),
    ) -> None:
        """Place the network, or refers to one.

        Args:
            scope: Parent construct.
            id: Construct id.
            existing: The network to use, by its ids, by default a new one.
            vpc: The VPC to use, where the app has it as a construct.
            vpc_subnets: Its subnets for instances, one a zone. By default the CDK chooses them.
            availability_zones: Zones of the created network, at most four, which may be tokens.

        Raises:
            PropertyError: Two networks are given, or two subnets of one zone.
        """
        super().__init__(scope, id)
        zones = [subnet.availability_zone for subnet in vpc_subnets or ()]
        if twice := sorted({zone for zone in zones if zones.count(zone) > 1}):
            raise PropertyError(
                name="Network.vpc_subnets",
                problem="holds two subnets of one zone, and a fleet takes one of each",
                found=", ".join(twice),
                fix="Give one subnet a zone: vpc.select_subnets(one_per_az=True, ...).subnets.",
            )
        if existing and vpc:
            raise PropertyError(
                name="Network.vpc",
                problem="is given beside a network that is named by its ids",
                found=existing.vpc_id,
                fix="Give one of them: in the settings, leave vpc_id out.",
            )
        if vpc:
            self.vpc: ec2.IVpc = vpc
            self.subnets: list[ec2.ISubnet] = list(vpc_subnets or vpc.select_subnets(one_per_az=True).subnets)
        elif existing:
            self.vpc = ec2.Vpc.from_vpc_attributes(
                self,
                "Vpc",
                vpc_id=existing.vpc_id,
                availability_zones=list(existing.availability_zones),
            )
            self.subnets = [
                ec2.Subnet.from_subnet_attributes(self, f"Subnet{index}", subnet_id=subnet_id, availability_zone=zone)
                for index, (subnet_id, zone) in enumerate(
                    zip(existing.subnet_ids, existing.availability_zones, strict=True), start=1
                )
            ]
        else:
            self.vpc, self.subnets = self._create(availability_zones)
        if existing and existing.security_group_id:
            self.security_group: ec2.ISecurityGroup = ec2.SecurityGroup.from_security_group_id(
                self, "InstanceGroup", existing.security_group_id, mutable=False
            )
        else:
            self.security_group = ec2.SecurityGroup(
                self,
                "InstanceGroup",
                vpc=self.vpc,
                description="Spotkeep instances: they call out, nothing calls in",
                allow_all_outbound=True,
            )

    def _create(self, availability_zones: Sequence[str]) -> tuple[ec2.IVpc, list[ec2.ISubnet]]:
        """Place VPC, subnets, gateway and endpoints.

        `ec2.Vpc` is not used. Where account and region are known at synth, it asks AWS for the region's zones, even
        when it is given zones.
        """
        vpc = ec2.CfnVPC(
            self, "Vpc", cidr_block=_ADDRESSES, enable_dns_hostnames=True, enable_dns_support=True, tags=[_named(self)]
        )
        acknowledge(
            vpc,
            {
                "VPC7": "Nothing can connect to these instances, so flow logs would record their own calls alone, at a "
                "price by the gigabyte that grows with training data. Bring an existing network to have them."
            },
        )
        gateway = ec2.CfnInternetGateway(self, "Gateway", tags=[_named(self)])
        attached = ec2.CfnVPCGatewayAttachment(
            self, "GatewayAttachment", vpc_id=vpc.ref, internet_gateway_id=gateway.ref
        )
        addresses = ip_network(_ADDRESSES).subnets(new_prefix=_SUBNET_PREFIX_LENGTH)
        subnets: list[ec2.PublicSubnet] = []
        for number, (zone, block) in enumerate(zip(availability_zones, addresses, strict=False), start=1):
            subnet = ec2.PublicSubnet(
                self,
                f"TrainingSubnet{number}",
                vpc_id=vpc.ref,
                availability_zone=zone,
                cidr_block=str(block),
                map_public_ip_on_launch=True,
            )
            subnet.add_default_internet_route(gateway.ref, attached)
            subnets.append(subnet)
        tables = [subnet.route_table.route_table_id for subnet in subnets]
        for name, service in (("S3", "s3"), ("DynamoDb", "dynamodb")):
            ec2.CfnVPCEndpoint(
                self,
                name,
                vpc_id=vpc.ref,
                service_name=f"com.amazonaws.{Aws.REGION}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=tables,
                tags=[_named(self)],
            )
        made = ec2.Vpc.from_vpc_attributes(
            self,
            "Made",
            vpc_id=vpc.ref,
            availability_zones=[subnet.availability_zone for subnet in subnets],
            public_subnet_ids=[subnet.subnet_id for subnet in subnets],
            public_subnet_route_table_ids=tables,
        )
        return made, list(subnets)


class NodesNetwork(Construct):
    """A security group in which the nodes of runs reach each other, and a cluster placement group a subnet.

    The launcher names the group in an attempt's version of the launch template, beside those of the deployed version.
    So an instance that trains alone stays without ingress. All traffic is let in and out, from and to the group alone.
    Processes of NCCL and gloo listen at ports that the system chooses. An Elastic Fabric Adapter needs both directions
    of all protocols, and rules for addresses do not count for it.

    A placement group is in one zone, as a subnet is. The launcher finds it by its tags. None of this bills anything.

    Sources: "Get started with EFA and MPI for ML workloads on Amazon EC2" (prepare an EFA-enabled security group) and
    "Placement strategies for your placement groups", Amazon EC2 user guide. AWS::EC2::SecurityGroup (remove the default
    rule), CloudFormation template reference.

    Attributes:
        security_group_id: The id of the security group.
        placement_groups: The names of the placement groups, in the order of the network's subnets.
    """

    def __init__(self, scope: Construct, id: str, *, network: Network) -> None:  # noqa: A002
        """Place the groups.

        Args:
            scope: Parent construct.
            id: Construct id.
            network: The network that the instances run in.
        """
        super().__init__(scope, id)
        # A group without an egress rule of its own gets one to everywhere from EC2, past a network that lets little
        # out. `ec2.SecurityGroup` leaves it out as soon as another resource has a rule.
        to_nothing = ec2.CfnSecurityGroup.EgressProperty(
            ip_protocol="-1", cidr_ip="127.0.0.1/32", description="In the place of the rule to everywhere"
        )
        group = ec2.CfnSecurityGroup(
            self,
            "Group",
            vpc_id=network.vpc.vpc_id,
            group_description="Spotkeep nodes: they reach each other, nothing else reaches them",
            security_group_egress=[to_nothing],
        )
        self.security_group_id = group.attr_group_id
        ec2.CfnSecurityGroupIngress(
            self,
            "Ingress",
            group_id=self.security_group_id,
            source_security_group_id=self.security_group_id,
            ip_protocol="-1",
            description="Between nodes",
        )
        ec2.CfnSecurityGroupEgress(
            self,
            "Egress",
            group_id=self.security_group_id,
            destination_security_group_id=self.security_group_id,
            ip_protocol="-1",
            description="Between nodes",
        )
        self.placement_groups = [
            ec2.CfnPlacementGroup(
                self,
                f"Placement{number}",
                strategy="cluster",
                tags=[CfnTag(key=SUBNET_TAG, value=subnet.subnet_id)],
            ).ref
            for number, subnet in enumerate(network.subnets, start=1)
        ]


def _named(scope: Construct) -> CfnTag:
    return CfnTag(key="Name", value=scope.node.path)
