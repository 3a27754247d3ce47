"""EC2's description of a fleet and its instances, as far as Spotkeep needs it. Times are aware, in UTC. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from spotkeep_jobs.record.fields import Id
from spotkeep_jobs.record.record import Record

ENDED_STATES: Final = frozenset({"shutting-down", "terminated", "stopping", "stopped"})
"""States of an instance in which nothing trains and AWS bills only storage.

Source: "Instance lifecycle", EC2 guide.
"""

_ACTIVE_FLEET_STATES: Final = frozenset({"submitted", "active", "modifying"})
_FLEET_TAG: Final = "aws:ec2:fleet-id"
"""The tag that EC2 gives each instance that a fleet launches."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance, as DescribeInstances says.

    Attributes:
        id: Its id.
        type: Its instance type.
        zone: Its availability zone.
        spot: Whether it is a spot instance.
        state: `pending`, `running`, `shutting-down`, `terminated`, ...
        launched_at: When it was launched.
        ended_at: When it ended, where EC2 says so.
        reason: EC2's code for its end, such as `Server.SpotInstanceTermination` or `Client.InstanceInitiatedShutdown`.
        tags: Its tags.
    """

    id: str
    type: str
    zone: str
    spot: bool
    state: str
    launched_at: datetime
    ended_at: datetime | None = None
    reason: str | None = None
    tags: dict[str, str]

    @property
    def ended(self) -> bool:
        """True once it is over, or as good as that."""
        return self.state in ENDED_STATES

    @property
    def fleet(self) -> str | None:
        """The id of the fleet that launched it. None for an instance of no fleet."""
        return self.tags.get(_FLEET_TAG)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet, as DescribeFleets says.

    Attributes:
        id: Its id.
        state: `submitted`, `active`, `deleted_running`, `deleted_terminating`, `deleted`, `failed`.
        tags: Its tags.
        created_at: The time of its creation.
    """

    id: str
    state: str
    tags: dict[str, str]
    created_at: datetime | None = None

    @property
    def active(self) -> bool:
        """True while it launches and replaces instances."""
        return self.state in _ACTIVE_FLEET_STATES


class FleetEventKind(StrEnum):
    """The subject of a line of DescribeFleetHistory."""

    FLEET = "FLEET"
    INSTANCE = "INSTANCE"
    ERROR = "ERROR"
    """The fleet cannot launch the missing instance."""
    INFORMATION = "INFORMATION"
    """A part of the fleet's launch options does not work."""


@dataclass(frozen=True, kw_only=True)
class FleetEvent:
    """A line of DescribeFleetHistory.

    Attributes:
        at: The time of the event.
        kind: The subject of the event.
        sub_type: EC2's name of the event, such as `launched`, `terminated`, `allLaunchSpecsTemporarilyBlacklisted`, ...
        instance_id: The id of the instance, if the event is about one.
        description: EC2's details, if it gives any.
    """

    at: datetime
    kind: FleetEventKind
    sub_type: str
    instance_id: str | None = None
    description: str = ""

    @property
    def says_ended(self) -> bool:
        """True where the line is about an instance that is gone."""
        return self.kind is FleetEventKind.INSTANCE and self.sub_type.lower() == "terminated"

    @property
    def launches_nothing(self) -> bool:
        """True where the line gives a reason that prevents every launch, of any type, in any zone."""
        return self.kind is FleetEventKind.ERROR or self.sub_type.lower() == "fleetprogresshalted"


@dataclass(frozen=True, kw_only=True)
class FleetReading:
    """EC2's description of an attempt's fleet at one time.

    Attributes:
        fleet: The fleet, or None when EC2 does not know it (any more).
        instances: Its instances, including those that ended within the last hour.
        events: Its history since the last reading.
    """

    fleet: Fleet | None
    instances: tuple[Instance, ...]
    events: tuple[FleetEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume, as DescribeVolumes says.

    Attributes:
        id: Its id.
        zone: Its Availability Zone.
        size_gb: Its size in GiB.
        state: EC2's state, such as `available` or `in-use`.
        tags: Its tags.
    """

    id: str
    zone: str
    size_gb: int
    state: str
    tags: dict[str, str]


class ProvisionedVolume(Record):
    """The capacity that EBS bills for a volume while it exists, however full it is."""

    size_gb: int
    """The size in GiB."""
    type: Id
    """The EBS volume type, such as `gp3`."""
    iops: int | None = None
    """The provisioned IOPS. None for the type's own."""
    throughput_mib_s: int | None = None
    """The provisioned throughput in MiB/s. None for the type's own."""


class NodesTemplate(Record):
    """The settings of the nodes of a run beside those of the deployed launch template."""

    security_group_id: Id | None = None
    """The security group in which they reach each other."""
    root_gb: int | None = None
    """The least size of their root volumes in GiB. None for the deployment's."""
    efa: bool = False
    """True for Elastic Fabric Adapters."""


@dataclass(frozen=True, kw_only=True)
class TemplateVersion:
    """The version of the launch template that was made for one attempt.

    Attributes:
        number: Its number.
        root_volume: The root volume of each instance. None where the version does not say.
    """

    number: str
    root_volume: ProvisionedVolume | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot, as DescribeSnapshots says.

    Attributes:
        id: Its id.
        size_gb: The size of its source volume, in GiB.
        state: EC2's state, such as `pending`, `completed` or `error`.
        tags: Its tags.
    """

    id: str
    size_gb: int
    state: str
    tags: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class TaggedStorage:
    """A volume or a snapshot that carries the deployment's tag.

    Attributes:
        kind: `volume` or `snapshot`, as in the fleet record.
        id: Its id.
        attached: True while it is attached to an instance.
        tags: Its tags.
    """

    kind: str
    id: str
    attached: bool
    tags: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class InstanceTypeFacts:
    """An instance type, as DescribeInstanceTypes says.

    Attributes:
        name: The name of the type.
        nvme_volumes: True where EBS volumes are NVMe devices on it, as on the Nitro system, and False on Xen.
        spot: True where AWS sells it on spot.
        architectures: The architectures of its processors, such as `x86_64` or `arm64`.
        accelerators: Its other devices that need a driver, in words, such as `NVIDIA GPUs` or `AWS Neuron devices`.
        efa: True where it may have an Elastic Fabric Adapter. None where EC2 does not say it.
        in_clusters: True where a cluster placement group takes it. None where EC2 does not say it.
        fabric_adapters: The most Elastic Fabric Adapters that it takes.
    """

    name: str
    nvme_volumes: bool
    spot: bool
    architectures: tuple[str, ...]
    accelerators: tuple[str, ...] = ()
    efa: bool | None = None
    in_clusters: bool | None = None
    fabric_adapters: int = 0


def fewest_adapters(types: Sequence[InstanceTypeFacts]) -> int:
    """Return the number of Elastic Fabric Adapters that each of these types takes, and one at least.

    EC2 refuses a type that takes none. Its reason says so, and checks of requests name the type.
    """
    return max(1, min((each.fabric_adapters for each in types), default=1))


@dataclass(frozen=True, kw_only=True)
class Ami:
    """An AMI, as DescribeImages says.

    Attributes:
        architecture: The processor architecture of its programs. None where that is not known.
        name: The name that AWS or its maker gave it. None where that is not known.
    """

    architecture: str | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """A subnet and the ways out of it, as DescribeSubnets, DescribeRouteTables and DescribeVpcEndpoints say.

    Attributes:
        id: Its id.
        public_addresses: True where instances get public addresses there.
        targets: The targets of its routes beside its own VPC and gateway endpoints, such as `igw-...`, `nat-...` or
            `tgw-...`.
        endpoints: Services with an endpoint that its instances use without configuration, such as `s3` or `ecr.api`.
    """

    id: str
    public_addresses: bool
    targets: tuple[str, ...]
    endpoints: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class TrafficRule:
    """A rule of a security group for TCP.

    Attributes:
        first_port: The first port that it lets through.
        last_port: The last one.
        groups: The security groups that it names.
        networks: The address ranges that it names, such as `10.0.0.0/16`.
        unread: True where it names a prefix list.
    """

    first_port: int
    last_port: int
    groups: frozenset[str] = frozenset()
    networks: tuple[str, ...] = ()
    unread: bool = False


@dataclass(frozen=True, kw_only=True)
class SecurityGroup:
    """A security group, as DescribeSecurityGroups says."""

    id: str
    inbound: tuple[TrafficRule, ...] = ()
    outbound: tuple[TrafficRule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlacedSubnet:
    """A subnet and its place, as DescribeSubnets says.

    Attributes:
        id: Its id.
        zone: The name of its Availability Zone, such as `us-east-1a`.
        vpc_id: Its VPC.
        network: Its addresses, such as `10.0.1.0/24`. Empty for a subnet of IPv6 alone.
    """

    id: str
    zone: str
    vpc_id: str
    network: str


@dataclass(frozen=True, kw_only=True)
class SpotPrice:
    """A line of DescribeSpotPriceHistory. The price holds until the next line of the same type and zone.

    Attributes:
        instance_type: The instance type.
        zone: The Availability Zone.
        since: The time from which the price holds.
        usd_per_hour: The price of one instance, in US dollars per hour.
    """

    instance_type: str
    zone: str
    since: datetime
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """A fleet, a volume or a snapshot that is not needed.

    Attributes:
        thing: EC2's description of it.
        run: The run it belonged to.
        since: The time from which it is not needed. None where that is not known.
    """

    thing: Fleet | TaggedStorage
    run: str
    since: datetime | None
