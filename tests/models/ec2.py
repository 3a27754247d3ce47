"""EC2 in memory: fleets and their instances, launch templates, volumes, snapshots, prices, the network.

The methods of a boto3 client are spelled as there, and raise what it raises. Every list comes in pages of two, so that
a caller that reads the first page alone is found out.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Operations.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.training_spec import TrainingSpec
from tests.models.clock import Clock
from tests.models.faults import Called, Faults, client_error

Entry = dict[str, Any]

REGION: Final = "us-east-1"
TEMPLATE: Final = "lt-1"
"""The launch template that a deployment made; its first version is the deployment's."""
ROOT_VOLUME: Final[Mapping[str, Any]] = {
    "Encrypted": True,
    "DeleteOnTermination": True,
    "VolumeSize": 40,
    "VolumeType": "gp3",
    "Throughput": 250,
}
"""What the deployment's version of the template wants of the root volume."""
_FIELDS: Final = {
    "availability-zone": "AvailabilityZone",
    "fleet-state": "FleetState",
    "image-id": "ImageId",
    "instance-id": "InstanceId",
    "instance-type": "InstanceType",
    "snapshot-id": "SnapshotId",
    "volume-id": "VolumeId",
    "vpc-id": "VpcId",
}
"""The field that each filter is about, of the filters that are asked for."""
_LIVE: Final = ("pending", "running", "shutting-down")


@dataclass
class ModelFleet:
    """A fleet of type `maintain`. No instance comes by itself: a test launches it."""

    id: str
    request: Mapping[str, Any]
    created: datetime
    deleted: bool = False
    terminating: bool = False
    """Whether it was deleted with its instances."""
    history: list[Entry] = field(default_factory=list)
    """What DescribeFleetHistory says."""

    @property
    def tags(self) -> dict[str, str]:
        return _tags_for("fleet", self.request)

    @property
    def template_version(self) -> str:
        specification = self.request["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
        return str(specification["Version"])


@dataclass
class ModelInstance:
    """An instance."""

    id: str
    fleet: str
    type: str
    zone: str
    spot: bool
    launched: datetime
    tags: dict[str, str]
    state: str = "running"
    ended: datetime | None = None
    reason: str = ""
    """The code of why it ended."""
    console: str = ""

    @property
    def live(self) -> bool:
        """Whether it is not gone yet."""
        return self.state in _LIVE


@dataclass
class ModelVolume:
    """A volume."""

    id: str
    zone: str
    size_gb: int
    tags: dict[str, str]
    state: str = "available"
    snapshot: str = ""
    """Which one it was made of."""
    instance: str = ""
    """Which one it is attached to."""
    attachment: str = ""
    """How: `attached`, `detaching`, `busy`."""


@dataclass
class ModelSnapshot:
    """A snapshot."""

    id: str
    volume: str
    size_gb: int
    tags: dict[str, str]
    state: str = "completed"


class Ec2:
    """A client of EC2, what there is in the region, and what happens to it.

    Attributes:
        time: The time.
        fleets: The fleets, by id.
        instances: The instances, by id.
        volumes: The volumes, by id.
        snapshots: The snapshots, by id.
        versions: The versions of the launch template, by number.
        terminated: The ids of the instances that were asked to end, in the order of the calls.
        refuses: The code and the message of the error that every CreateFleet gets, or None.
        unseen: Whether EC2 does not show yet what was made: it is eventually consistent.
        spot_usd_per_hour: What every instance type costs on spot, in every zone.
        zones: Where spot is sold.
        images: AMIs, as EC2 describes them.
        types: Instance types, as EC2 describes them.
        subnets: Subnets, as EC2 describes them; so the next two.
        route_tables: Route tables.
        vpc_endpoints: VPC endpoints.
        volume_state: What a new volume is at first.
        snapshot_state: What a new snapshot is at first.
        sticking: Whether a volume stays `busy` at its instance until it is detached by force.
    """

    page_size = 2

    def __init__(self, called: Called | None = None, *, time: Clock | None = None) -> None:
        self.time = time or Clock()
        self.fleets: dict[str, ModelFleet] = {}
        self.instances: dict[str, ModelInstance] = {}
        self.volumes: dict[str, ModelVolume] = {}
        self.snapshots: dict[str, ModelSnapshot] = {}
        self.versions: dict[int, Entry] = {
            1: {
                "VersionNumber": 1,
                "VersionDescription": "deployed",
                "LaunchTemplateData": {
                    "ImageId": "ami-1",
                    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": dict(ROOT_VOLUME)}],
                },
            }
        }
        self.terminated: list[str] = []
        self.refuses: tuple[str, str] | None = None
        self.unseen = False
        self.spot_usd_per_hour = 0.3
        self.zones: tuple[str, ...] = (f"{REGION}a", f"{REGION}b")
        self.images: list[Entry] = []
        self.types: list[Entry] = []
        self.subnets: list[Entry] = []
        self.route_tables: list[Entry] = []
        self.vpc_endpoints: list[Entry] = []
        self.security_groups: list[Entry] = []
        self.placement_groups: list[Entry] = []
        self.interfaces: list[Entry] = []
        self.volume_state = "available"
        self.snapshot_state = "completed"
        self.sticking = False
        self._volume_requests: dict[str, Mapping[str, Any]] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._numbers = itertools.count(1)
        self._version_numbers = itertools.count(2)
        self._called: Called = called or Faults()

    # What happens

    def launches(self, fleet_id: str, instance_id: str, *, zone: str = f"{REGION}a") -> ModelInstance:
        """A fleet finds capacity."""
        fleet = self.fleets[fleet_id]
        template = self.versions[int(fleet.template_version)]["LaunchTemplateData"]
        capacity = fleet.request["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        overrides = fleet.request["LaunchTemplateConfigs"][0]["Overrides"]
        instance = ModelInstance(
            id=instance_id,
            fleet=fleet_id,
            type=overrides[0]["InstanceType"],
            zone=zone,
            spot=capacity == "spot",
            launched=self.time(),
            tags=_tags_for("instance", template) | {"aws:ec2:fleet-id": fleet_id},
        )
        self.instances[instance_id] = instance
        return instance

    def ends(self, instance_id: str, *, reason: str = "") -> None:
        """An instance is gone, and its volumes are detached."""
        instance = self.instances[instance_id]
        instance.state, instance.ended, instance.reason = "terminated", self.time(), reason
        self.releases(instance_id)

    def releases(self, instance_id: str) -> None:
        """EC2 detaches what an instance has, unless volumes stick."""
        for volume in self.volumes.values():
            if volume.instance == instance_id and self.sticking:
                volume.attachment = "busy"
            elif volume.instance == instance_id:
                self._release(volume)

    def completes(self) -> None:
        """What is in the making is done, and so is what is made from now on."""
        self.volume_state, self.snapshot_state = "available", "completed"
        for volume in self.volumes.values():
            volume.state = "available" if volume.state == "creating" else volume.state
        for snapshot in self.snapshots.values():
            snapshot.state = "completed" if snapshot.state == "pending" else snapshot.state

    # What a model with real data does when these happen

    def made_volume(self, volume: ModelVolume) -> None:
        """Called when there is a new volume."""

    def made_snapshot(self, snapshot: ModelSnapshot) -> None:
        """Called when there is a new snapshot."""

    def attached(self, volume: ModelVolume) -> None:
        """Called when an instance has a volume."""

    def released(self, volume: ModelVolume) -> None:
        """Called when an instance is about to have a volume no more."""

    def deleted(self, made: ModelVolume | ModelSnapshot) -> None:
        """Called when a volume or a snapshot is gone."""

    # The client: fleets and instances

    def create_fleet(self, **request: Any) -> Entry:
        return self._call("CreateFleet", lambda: self._create_fleet(request))

    def describe_fleets(self, *, FleetIds: Sequence[str] = (), **query: Any) -> Entry:  # noqa: N803
        return self._call("DescribeFleets", lambda: self._describe_fleets(FleetIds, query))

    def describe_fleet_history(self, *, FleetId: str, StartTime: datetime, **query: Any) -> Entry:  # noqa: N803
        return self._call("DescribeFleetHistory", lambda: self._describe_history(FleetId, StartTime, query))

    def delete_fleets(self, *, FleetIds: Sequence[str], TerminateInstances: bool) -> Entry:  # noqa: N803
        return self._call("DeleteFleets", lambda: self._delete_fleets(FleetIds, terminate=TerminateInstances))

    def describe_instances(self, **query: Any) -> Entry:
        return self._call(
            "DescribeInstances",
            lambda: self._page(
                "Reservations",
                [{"Instances": [each]} for each in _chosen(map(self._instance, self.instances.values()), query)],
                query,
            ),
        )

    def terminate_instances(self, *, InstanceIds: Sequence[str]) -> Entry:  # noqa: N803
        return self._call("TerminateInstances", lambda: self._terminate(InstanceIds))

    def get_console_output(self, *, InstanceId: str) -> Entry:  # noqa: N803
        return self._call("GetConsoleOutput", lambda: {"Output": self._known(InstanceId).console})

    def create_launch_template_version(self, **request: Any) -> Entry:
        return self._call("CreateLaunchTemplateVersion", lambda: self._create_version(request))

    def describe_launch_template_versions(self, *, LaunchTemplateId: str, **query: Any) -> Entry:  # noqa: N803
        assert LaunchTemplateId == TEMPLATE
        return self._call(
            "DescribeLaunchTemplateVersions",
            lambda: self._page("LaunchTemplateVersions", list(self.versions.values()), query),
        )

    def delete_launch_template_versions(self, *, LaunchTemplateId: str, Versions: Sequence[str]) -> Entry:  # noqa: N803
        assert LaunchTemplateId == TEMPLATE
        return self._call("DeleteLaunchTemplateVersions", lambda: self._delete_versions(Versions))

    # The client: what there is to buy

    def describe_spot_price_history(self, *, InstanceTypes: Sequence[str], StartTime: datetime, **query: Any) -> Entry:  # noqa: N803
        prices = [
            {
                "InstanceType": name,
                "AvailabilityZone": zone,
                "Timestamp": StartTime - timedelta(hours=1),
                "SpotPrice": f"{self.spot_usd_per_hour:f}",
            }
            for name in InstanceTypes
            for zone in self.zones
        ]
        return self._describe("DescribeSpotPriceHistory", "SpotPriceHistory", lambda: prices, query)

    def describe_instance_types(self, **query: Any) -> Entry:
        return self._describe("DescribeInstanceTypes", "InstanceTypes", lambda: self.types, query)

    def describe_images(self, **query: Any) -> Entry:
        return self._describe("DescribeImages", "Images", lambda: self.images, query)

    def describe_subnets(self, *, SubnetIds: Sequence[str], **query: Any) -> Entry:  # noqa: N803
        named = [each for each in self.subnets if each["SubnetId"] in SubnetIds]
        return self._describe("DescribeSubnets", "Subnets", lambda: named, query)

    def describe_route_tables(self, **query: Any) -> Entry:
        return self._describe("DescribeRouteTables", "RouteTables", lambda: self.route_tables, query)

    def describe_vpc_endpoints(self, **query: Any) -> Entry:
        return self._describe("DescribeVpcEndpoints", "VpcEndpoints", lambda: self.vpc_endpoints, query)

    def describe_placement_groups(self, **query: Any) -> Entry:
        return self._describe("DescribePlacementGroups", "PlacementGroups", lambda: self.placement_groups, query)

    def describe_security_groups(self, *, GroupIds: Sequence[str], **query: Any) -> Entry:  # noqa: N803
        named = [each for each in self.security_groups if each["GroupId"] in GroupIds]
        return self._describe("DescribeSecurityGroups", "SecurityGroups", lambda: named, query)

    def describe_network_interfaces(self, *, NetworkInterfaceIds: Sequence[str], **query: Any) -> Entry:  # noqa: N803
        named = [each for each in self.interfaces if each["NetworkInterfaceId"] in NetworkInterfaceIds]
        return self._describe("DescribeNetworkInterfaces", "NetworkInterfaces", lambda: named, query)

    # The client: volumes and snapshots

    def describe_volumes(self, **query: Any) -> Entry:
        return self._describe("DescribeVolumes", "Volumes", lambda: map(_volume, self.volumes.values()), query)

    def describe_snapshots(self, *, OwnerIds: Sequence[str] = (), **query: Any) -> Entry:  # noqa: N803
        return self._describe("DescribeSnapshots", "Snapshots", lambda: map(_snapshot, self.snapshots.values()), query)

    def create_volume(self, **request: Any) -> Entry:
        return self._call("CreateVolume", lambda: self._create_volume(request))

    def create_snapshot(self, **request: Any) -> Entry:
        return self._call("CreateSnapshot", lambda: self._create_snapshot(request))

    def attach_volume(self, *, VolumeId: str, InstanceId: str, Device: str) -> Entry:  # noqa: N803
        return self._call("AttachVolume", lambda: self._attach(VolumeId, InstanceId, Device))

    def detach_volume(self, *, VolumeId: str, InstanceId: str, Force: bool = False) -> Entry:  # noqa: N803
        return self._call("DetachVolume", lambda: self._detach(VolumeId, InstanceId, force=Force))

    def delete_volume(self, *, VolumeId: str) -> Entry:  # noqa: N803
        return self._call("DeleteVolume", lambda: self._delete_volume(VolumeId))

    def delete_snapshot(self, *, SnapshotId: str) -> Entry:  # noqa: N803
        return self._call("DeleteSnapshot", lambda: self._delete_snapshot(SnapshotId))

    # Within

    def _call(self, operation: str, act: Callable[[], Entry]) -> Entry:
        answer: Entry = self._called(operation, act)
        return answer

    def _describe(
        self, operation: str, key: str, entries: Callable[[], Iterable[Entry]], query: Mapping[str, Any]
    ) -> Entry:
        return self._call(operation, lambda: self._page(key, _chosen(entries(), query), query))

    def _page(self, key: str, entries: Sequence[Entry], query: Mapping[str, Any]) -> Entry:
        first = int(query.get("NextToken", 0))
        after = first + self.page_size
        page: Entry = {key: list(entries[first:after])}
        return page | ({"NextToken": str(after)} if after < len(entries) else {})

    def _create_fleet(self, request: Mapping[str, Any]) -> Entry:
        if self.refuses is not None:
            raise client_error("CreateFleet", *self.refuses)
        known = self._made.get(("fleet", request["ClientToken"]))
        if known is not None and self.fleets[known].request != request:
            raise client_error("CreateFleet", "IdempotentParameterMismatch")
        fleet = ModelFleet(id=known or f"fleet-{len(self.fleets) + 1}", request=request, created=self.time())
        if self.unseen or int(fleet.template_version) not in self.versions:
            raise client_error("CreateFleet", "InvalidLaunchTemplateId.VersionNotFound")
        self._made["fleet", request["ClientToken"]] = fleet.id
        self.fleets.setdefault(fleet.id, fleet)
        return {"FleetId": fleet.id}

    def _describe_fleets(self, fleet_ids: Sequence[str], query: Mapping[str, Any]) -> Entry:
        for fleet_id in fleet_ids:
            if self.unseen or fleet_id not in self.fleets:
                raise client_error("DescribeFleets", "InvalidFleetId.NotFound")
        shown = [] if self.unseen else list(self.fleets.values())
        named = [fleet for fleet in shown if not fleet_ids or fleet.id in fleet_ids]
        return self._page("Fleets", _chosen(map(self._fleet, named), query), query)

    def _fleet(self, fleet: ModelFleet) -> Entry:
        return {
            "FleetId": fleet.id,
            "FleetState": self.fleet_state(fleet.id),
            "ClientToken": fleet.request["ClientToken"],
            "CreateTime": fleet.created,
            "Tags": _tag_list(fleet.tags),
        }

    def fleet_state(self, fleet_id: str) -> str:
        """The state of a fleet: of a deleted one, whether its instances live."""
        if not self.fleets[fleet_id].deleted:
            return "active"
        lives = any(instance.live for instance in self.instances.values() if instance.fleet == fleet_id)
        going = "deleted_terminating" if self.fleets[fleet_id].terminating else "deleted_running"
        return going if lives else "deleted"

    def _describe_history(self, fleet_id: str, since: datetime, query: Mapping[str, Any]) -> Entry:
        if fleet_id not in self.fleets:
            raise client_error("DescribeFleetHistory", "InvalidFleetId.NotFound")
        records = [entry for entry in self.fleets[fleet_id].history if entry["Timestamp"] >= since]
        return self._page("HistoryRecords", records, query)

    def _delete_fleets(self, fleet_ids: Sequence[str], *, terminate: bool) -> Entry:
        failed = []
        for fleet_id in fleet_ids:
            if fleet_id in self.fleets and not self.unseen:
                fleet = self.fleets[fleet_id]
                fleet.deleted, fleet.terminating = True, fleet.terminating or terminate
                if terminate:
                    self._terminate([i.id for i in self.instances.values() if i.fleet == fleet_id and i.live])
            else:
                failed.append({"FleetId": fleet_id, "Error": {"Code": "fleetIdDoesNotExist", "Message": fleet_id}})
        return {"UnsuccessfulFleetDeletions": failed}

    def _known(self, instance_id: str) -> ModelInstance:
        if instance_id not in self.instances:
            raise client_error("DescribeInstances", "InvalidInstanceID.NotFound")
        return self.instances[instance_id]

    def _terminate(self, instance_ids: Sequence[str]) -> Entry:
        for instance in [self._known(instance_id) for instance_id in instance_ids]:
            self.terminated.append(instance.id)
            if instance.live:
                self.ends(instance.id, reason="Client.UserInitiatedShutdown")
        return {}

    def _instance(self, instance: ModelInstance) -> Entry:
        entry: Entry = {
            "InstanceId": instance.id,
            "InstanceType": instance.type,
            "Placement": {"AvailabilityZone": instance.zone},
            "State": {"Name": instance.state},
            "LaunchTime": instance.launched,
            "Tags": _tag_list(instance.tags),
        }
        if instance.spot:
            entry["InstanceLifecycle"] = "spot"
        if instance.ended is not None:
            entry["StateTransitionReason"] = f"User initiated ({instance.ended:%Y-%m-%d %H:%M:%S} GMT)"
            entry["StateReason"] = {"Code": instance.reason}
        return entry

    def _create_version(self, request: Mapping[str, Any]) -> Entry:
        assert request["LaunchTemplateId"] == TEMPLATE
        number = int(self._made.get(("version", request["ClientToken"]), 0))
        if number not in self.versions:
            number = next(self._version_numbers)
            source = (
                self.versions[int(request["SourceVersion"])]["LaunchTemplateData"] if "SourceVersion" in request else {}
            )
            self._made["version", request["ClientToken"]] = str(number)
            self.versions[number] = {
                "VersionNumber": number,
                "VersionDescription": request["VersionDescription"],
                "LaunchTemplateData": {**source, **request["LaunchTemplateData"]},
            }
        return {"LaunchTemplateVersion": self.versions[number]}

    def _delete_versions(self, numbers: Sequence[str]) -> Entry:
        for number in numbers:
            self.versions.pop(int(number), None)
        return {}

    def _create_volume(self, request: Mapping[str, Any]) -> Entry:
        known = self._made.get(("volume", request["ClientToken"]))
        if known is not None:
            if self._volume_requests[known] != request:
                raise client_error("CreateVolume", "IdempotentParameterMismatch")
            return {"VolumeId": known}
        volume = ModelVolume(
            id=f"vol-{next(self._numbers):08x}",
            zone=request["AvailabilityZone"],
            size_gb=request["Size"],
            tags=_tags_for("volume", request),
            state=self.volume_state,
            snapshot=request.get("SnapshotId", ""),
        )
        self._made["volume", request["ClientToken"]] = volume.id
        self._volume_requests[volume.id] = request
        self.volumes[volume.id] = volume
        self.made_volume(volume)
        return {"VolumeId": volume.id}

    def _create_snapshot(self, request: Mapping[str, Any]) -> Entry:
        volume = self._volume(request["VolumeId"])
        snapshot = ModelSnapshot(
            id=f"snap-{next(self._numbers):08x}",
            volume=volume.id,
            size_gb=volume.size_gb,
            tags=_tags_for("snapshot", request),
            state=self.snapshot_state,
        )
        self.snapshots[snapshot.id] = snapshot
        self.made_snapshot(snapshot)
        return {"SnapshotId": snapshot.id}

    def _volume(self, volume_id: str) -> ModelVolume:
        if volume_id not in self.volumes:
            raise client_error("DescribeVolumes", "InvalidVolume.NotFound")
        return self.volumes[volume_id]

    def _attach(self, volume_id: str, instance_id: str, device: str) -> Entry:
        volume, instance = self._volume(volume_id), self._known(instance_id)
        assert device.startswith("/dev/sd")
        if volume.zone != instance.zone:
            raise client_error("AttachVolume", "InvalidVolume.ZoneMismatch")
        if volume.state != "available":
            raise client_error("AttachVolume", "VolumeInUse")
        volume.instance, volume.attachment, volume.state = instance.id, "attached", "in-use"
        self.attached(volume)
        return {}

    def _detach(self, volume_id: str, instance_id: str, *, force: bool) -> Entry:
        volume = self._volume(volume_id)
        if volume.instance != instance_id:
            raise client_error("DetachVolume", "IncorrectState")
        if self.sticking and not force:
            volume.attachment = "busy"
        else:
            self._release(volume)
        return {}

    def _release(self, volume: ModelVolume) -> None:
        self.released(volume)
        volume.instance, volume.attachment, volume.state = "", "", "available"

    def _delete_volume(self, volume_id: str) -> Entry:
        volume = self._volume(volume_id)
        if volume.instance:
            raise client_error("DeleteVolume", "VolumeInUse")
        del self.volumes[volume_id]
        self.deleted(volume)
        return {}

    def _delete_snapshot(self, snapshot_id: str) -> Entry:
        if snapshot_id not in self.snapshots:
            raise client_error("DeleteSnapshot", "InvalidSnapshot.NotFound")
        self.deleted(self.snapshots.pop(snapshot_id))
        return {}


def _volume(volume: ModelVolume) -> Entry:
    entry: Entry = {
        "VolumeId": volume.id,
        "AvailabilityZone": volume.zone,
        "Size": volume.size_gb,
        "State": volume.state,
        "SnapshotId": volume.snapshot,
        "Tags": _tag_list(volume.tags),
    }
    if volume.instance:
        entry["Attachments"] = [{"InstanceId": volume.instance, "State": volume.attachment}]
    return entry


def _snapshot(snapshot: ModelSnapshot) -> Entry:
    return {
        "SnapshotId": snapshot.id,
        "VolumeId": snapshot.volume,
        "VolumeSize": snapshot.size_gb,
        "State": snapshot.state,
        "Tags": _tag_list(snapshot.tags),
    }


def _chosen(entries: Iterable[Entry], query: Mapping[str, Any]) -> list[Entry]:
    filters = query.get("Filters", ())
    return [entry for entry in entries if all(_value(entry, each["Name"]) in each["Values"] for each in filters)]


def _value(entry: Entry, name: str) -> Any:
    """What a filter is about. One that is not in the table is a mistake of its caller, or missing in this model."""
    if name.startswith("tag:"):
        return {tag["Key"]: tag["Value"] for tag in entry["Tags"]}.get(name.removeprefix("tag:"))
    return entry[_FIELDS[name]]


def _tags_for(kind: str, request: Mapping[str, Any]) -> dict[str, str]:
    return {
        tag["Key"]: tag["Value"]
        for specification in request.get("TagSpecifications", ())
        if specification["ResourceType"] == kind
        for tag in specification["Tags"]
    }


def _tag_list(tags: Mapping[str, str]) -> list[Entry]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


_VOLUME_OF_A_JOB = VolumeSpec(size_gb=8)
_OF_THE_SPEC = {each.name for each in fields(TrainingSpec)}


def instance_job(
    command: tuple[str, ...] | str = ("python", "train.py"), volume: VolumeSpec = _VOLUME_OF_A_JOB, **given: Any
) -> InstanceJob:
    """Make a job of these fields, some of the job itself and some of its spec."""
    return changed(InstanceJob(TrainingSpec(command), volume), **given)


def changed(job: InstanceJob, **given: Any) -> InstanceJob:
    """Make a job with some fields changed."""
    of_the_spec = {name: value for name, value in given.items() if name in _OF_THE_SPEC}
    own = {name: value for name, value in given.items() if name not in _OF_THE_SPEC}
    return replace(job, training=replace(job.training, **of_the_spec), **own)
