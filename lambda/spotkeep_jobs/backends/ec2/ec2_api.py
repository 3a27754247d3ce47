"""EC2's API. No other module of the functions calls its client.

Every call is safe to make twice, because each creation has a token that is the same for the same attempt. Every method
raises the kinds of `AwsCallError`, which are `AwsRefusedError` and `AwsBusyError`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.record import SNAPSHOT, VOLUME
from spotkeep_fleet.tags import DEPLOYMENT_TAG, OF_INSTANCES_ALONE, RUN_TAG, SUBNET_TAG
from spotkeep_jobs.backends.ec2.facts import (
    Ami,
    Fleet,
    FleetEvent,
    FleetEventKind,
    Instance,
    InstanceTypeFacts,
    NodesTemplate,
    PlacedSubnet,
    ProvisionedVolume,
    SecurityGroup,
    Snapshot,
    SpotPrice,
    Subnet,
    TaggedStorage,
    TemplateVersion,
    TrafficRule,
    Volume,
    fewest_adapters,
)
from spotkeep_jobs.errors import AwsBusyError, AwsCallError, AwsRefusedError
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_PRODUCT: Final = "Linux/UNIX"
_RUN_VERSION: Final = "run "
"""The beginning of the description of a run's own version of the launch template."""
_ROOT: Final = " (root)"
_LONGEST_TAG_VALUE: Final = 256
_TIME_IN_REASON: Final = re.compile(r"\((\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) GMT\)")
_AWS_ENDPOINT: Final = re.compile(r"^(cn\.)?com\.amazonaws\.[a-z0-9-]+\.")
"""The part before the service in the names of AWS's endpoint services, such as `com.amazonaws.us-east-1.ecr.api`."""
_EVERY_PROTOCOL: Final = "-1"
_TCP: Final = frozenset({"tcp", "6", _EVERY_PROTOCOL})
_LAST_PORT: Final = 65_535
_BUSY: Final = frozenset({"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"})
_GONE: Final = re.compile(r"NotFound|NotExist")
_EVENT_KINDS: Final = {
    "instancechange": FleetEventKind.INSTANCE,
    "fleetchange": FleetEventKind.FLEET,
    "fleetrequestchange": FleetEventKind.FLEET,
    "serviceerror": FleetEventKind.ERROR,
    "error": FleetEventKind.ERROR,
}
"""Event types without their hyphens, in small letters.

The API reference says `instance-change`, `fleet-change` and `service-error`. The example answer on the page of the
command `describe-fleet-history`, and the list of sub-types in API_EventInformation.html, say `instanceChange`,
`fleetRequestChange` and `error`."""


class Ec2Api:
    """Spotkeep's calls to EC2. The boto3 client is created at its first use, because it is the largest of boto3's."""

    def __init__(self, make_client: Callable[[], EC2Client], *, bundle_uri: str | None = None) -> None:
        """Bind the client.

        Args:
            make_client: Creates the client.
            bundle_uri: The `s3://` address of the bundle with which a run's instances start. A launch makes sure that
                the bundle is there. Otherwise a launch between the updates of two stacks would use the new template
                before its bundle exists. None for a caller that launches nothing.
        """
        self._make_client = make_client
        self._bundle_uri = bundle_uri
        self._client: EC2Client | None = None

    def make_template_version(
        self,
        template_id: str,
        /,
        *,
        run: str,
        token: str,
        tags: Mapping[str, str],
        nodes: NodesTemplate | None = None,
        instance_types: Sequence[str] = (),
    ) -> TemplateVersion:
        """Make the version of the deployed launch template that tags instances with their run, and their root volumes.

        With nodes it has their security group beside the deployed ones, their root volumes and their adapters.

        Nothing else is tagged. EC2 replaces an instance of a fleet with a service-linked role. That role may tag no
        network interface, so no replacement would launch. A launch that tags a spot request fails where it makes none.

        Sources: https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSEC2FleetServiceRolePolicy.html
            https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplateTagSpecificationRequest.html
        """
        versions = list(
            self._pages("describe_launch_template_versions", "LaunchTemplateVersions", LaunchTemplateId=template_id)
        )
        own = _RUN_VERSION + token
        for version in versions:
            if version.get("VersionDescription") == own:
                return _template_version(version, version["LaunchTemplateData"])  # Of a call whose answer was lost.
        source = self._deployed(versions)
        if source is None:
            raise AwsRefusedError(
                operation="DescribeLaunchTemplateVersions",
                code="NoDeployedVersion",
                reason=f"launch template {template_id} has no version that a deployment made for "
                f"{self._bundle_uri or 'any bundle'}; deploy the whole app again",
            )
        # Without the tags that mean something on an instance: it is not the run's volume.
        of_root = {key: value for key, value in tags.items() if key not in OF_INSTANCES_ALONE}
        name = tags.get("Name", run)[: _LONGEST_TAG_VALUE - len(_ROOT)]
        template = source.get("LaunchTemplateData", {})
        nodes = nodes or NodesTemplate()
        root = root_volume(template, image=self._image(template.get("ImageId")), at_least_gb=nodes.root_gb or 0)
        adapters = fewest_adapters(self.instance_types(instance_types)) if nodes.efa else 0
        made = self._call(
            "create_launch_template_version",
            LaunchTemplateId=template_id,
            # EC2 takes security groups for the instance or for its interfaces, and a version keeps those of its source.
            **({} if adapters else {"SourceVersion": str(source["VersionNumber"])}),
            ClientToken=token,
            VersionDescription=own,
            LaunchTemplateData={
                **nodes_network(template, security_group_id=nodes.security_group_id, adapters=adapters),
                **root,
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": tag_list(tags)},
                    {"ResourceType": "volume", "Tags": tag_list(of_root | {"Name": name + _ROOT})},
                ],
            },
        )
        return _template_version(made["LaunchTemplateVersion"], {**template, **root})

    def delete_template_version(self, template_id: str, version: str, /) -> None:
        """Delete such a version. One that is gone is fine. A failed deletion is in EC2's answer and raises no error."""
        try:
            self._call("delete_launch_template_versions", LaunchTemplateId=template_id, Versions=[version])
        except AwsRefusedError as error:
            if not _GONE.search(error.code):
                raise

    def create_fleet(self, request: Mapping[str, Any], /) -> str:
        """Create a fleet, or find the one that the request's ClientToken made. Returns its id."""
        return str(self._call("create_fleet", **request)["FleetId"])

    def find_fleet(self, client_token: str, /) -> str | None:
        """Return the id of the fleet that a token made, or None. DescribeFleets has no filter for tokens."""
        for fleet in self._pages("describe_fleets", "Fleets"):
            if fleet.get("ClientToken") == client_token:
                return str(fleet["FleetId"])
        return None

    def fleet(self, fleet_id: str, /) -> Fleet | None:
        """Describe a fleet. None when EC2 does not know it (any more)."""
        return next(iter(self.fleets_by_id([fleet_id])), None)

    def fleets_by_id(self, fleet_ids: Sequence[str], /) -> tuple[Fleet, ...]:
        """Describe fleets. Fleets that EC2 does not know (any more) are left out.

        This takes one call. When EC2 does not know one of the fleets, it takes one call for each.
        """
        try:
            return tuple(map(_fleet, self._pages("describe_fleets", "Fleets", FleetIds=list(fleet_ids))))
        except AwsRefusedError as error:
            if not _GONE.search(error.code):
                raise
        if len(fleet_ids) == 1:
            return ()
        return tuple(fleet for fleet_id in fleet_ids for fleet in self.fleets_by_id([fleet_id]))

    def instances(self, *, deployment: str, run: str) -> tuple[Instance, ...]:
        """List the instances that carry the run's tag, those that ended within the last hour among them."""
        wanted = {f"tag:{RUN_TAG}": run, f"tag:{DEPLOYMENT_TAG}": deployment}
        filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
        reservations = self._pages("describe_instances", "Reservations", Filters=filters)
        return tuple(_instance(entry) for reservation in reservations for entry in reservation["Instances"])

    def events(self, fleet_id: str, /, *, since: datetime) -> tuple[FleetEvent, ...]:
        """Return a fleet's history, oldest first. Empty when EC2 does not know the fleet."""
        found: list[FleetEvent] = []
        query: dict[str, Any] = {"FleetId": fleet_id, "StartTime": since}
        while True:
            try:
                page = self._call("describe_fleet_history", **query)
            except AwsRefusedError as error:
                if _GONE.search(error.code):
                    return ()
                raise
            for entry in page.get("HistoryRecords", ()):
                about = entry.get("EventInformation", {})
                found.append(
                    FleetEvent(
                        at=entry["Timestamp"].astimezone(UTC),
                        kind=_EVENT_KINDS.get(entry["EventType"].replace("-", "").lower(), FleetEventKind.INFORMATION),
                        sub_type=about.get("EventSubType", ""),
                        instance_id=about.get("InstanceId"),
                        description=_said(about.get("EventDescription") or ""),
                    )
                )
            if not page.get("NextToken"):
                return tuple(sorted(found, key=lambda event: event.at))
            query["NextToken"] = page["NextToken"]

    def delete_fleet(self, fleet_id: str, /, *, with_instances: bool = False) -> None:
        """Delete a fleet, and let its instances run unless they are to end with it. One that is gone is fine."""
        answer = self._call("delete_fleets", FleetIds=[fleet_id], TerminateInstances=with_instances)
        for failed in answer.get("UnsuccessfulFleetDeletions", ()):
            code, message = failed["Error"].get("Code", ""), failed["Error"].get("Message", "")
            if code in ("fleetIdDoesNotExist", "fleetNotInDeletableState"):
                continue  # Gone, or on its way.
            raise AwsBusyError(operation="DeleteFleets", code=code, reason=message)

    def terminate(self, instance_ids: Sequence[str], /) -> None:
        """Terminate instances one by one, since an unknown id would spare the others. Those that are gone are fine."""
        for instance_id in instance_ids:
            try:
                self._call("terminate_instances", InstanceIds=[instance_id])
            except AwsRefusedError as error:
                if not _GONE.search(error.code):
                    raise

    def console(self, instance_id: str, /) -> str:
        """Return the last lines of an instance's console output. Empty when EC2 has none, or does not answer.

        The console output explains a failure. No step depends on it.
        """
        try:
            return str(self._call("get_console_output", InstanceId=instance_id).get("Output") or "")
        except (AwsRefusedError, AwsBusyError):
            return ""

    def spot_prices(
        self, *, instance_types: Sequence[str], zones: Sequence[str], start: datetime, end: datetime
    ) -> tuple[SpotPrice, ...]:
        """Return the prices of types in zones, with the price in force at the start.

        Args:
            instance_types: The instance types.
            zones: The zones. Every zone when none is named.
            start: The start of the period.
            end: The end of the period.
        """
        query: dict[str, Any] = {
            "InstanceTypes": list(instance_types),
            "ProductDescriptions": [_PRODUCT],
            "StartTime": start,
            "EndTime": end,
        }
        if zones:
            query["Filters"] = [{"Name": "availability-zone", "Values": list(zones)}]
        found = self._pages("describe_spot_price_history", "SpotPriceHistory", **query)
        return tuple(
            SpotPrice(
                instance_type=entry["InstanceType"],
                zone=entry["AvailabilityZone"],
                since=entry["Timestamp"].astimezone(UTC),
                usd_per_hour=float(entry["SpotPrice"]),
            )
            for entry in found
        )

    def instance_types(self, names: Sequence[str], /) -> tuple[InstanceTypeFacts, ...]:
        """Describe instance types. Those that the region does not have are left out."""
        # Asked for by a filter: there, an unknown name is no error. So it is below, for volumes and snapshots.
        wanted = [{"Name": "instance-type", "Values": list(names)}]
        return tuple(
            InstanceTypeFacts(
                name=found["InstanceType"],
                nvme_volumes=found.get("EbsInfo", {}).get("NvmeSupport") != "unsupported",
                spot="spot" in found.get("SupportedUsageClasses", ()),
                architectures=tuple(found.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
                accelerators=_accelerators(found),
                efa=found.get("NetworkInfo", {}).get("EfaSupported"),
                in_clusters=_in_clusters(found.get("PlacementGroupInfo", {}).get("SupportedStrategies")),
                fabric_adapters=found.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
            )
            for found in self._pages("describe_instance_types", "InstanceTypes", Filters=wanted)
        )

    def deployed_ami(self, template_id: str, /) -> Ami:
        """Describe the AMI of the deployed launch template, as far as EC2 does."""
        deployed = self._deployed_data(template_id)
        found = {} if deployed is None else self._image(deployed.get("ImageId"))
        return Ami(architecture=found.get("Architecture"), name=found.get("Name"))

    def deployed_groups(self, template_id: str, /) -> tuple[str, ...]:
        """Return the ids of the security groups of the deployed launch template, as far as EC2 describes it."""
        return tuple((self._deployed_data(template_id) or {}).get("SecurityGroupIds", ()))

    def _deployed_data(self, template_id: str) -> Mapping[str, Any] | None:
        versions = self._pages(
            "describe_launch_template_versions", "LaunchTemplateVersions", LaunchTemplateId=template_id
        )
        deployed = self._deployed(versions)
        return None if deployed is None else deployed["LaunchTemplateData"]

    def subnets(self, ids: Sequence[str], /) -> tuple[Subnet, ...]:
        """Describe subnets and the ways out of each, which are routes and endpoints."""
        found = list(self._pages("describe_subnets", "Subnets", SubnetIds=list(ids)))
        of_vpcs = [{"Name": "vpc-id", "Values": sorted({each["VpcId"] for each in found})}]
        tables = list(self._pages("describe_route_tables", "RouteTables", Filters=of_vpcs))
        endpoints = list(self._pages("describe_vpc_endpoints", "VpcEndpoints", Filters=of_vpcs))
        return tuple(_subnet(each, tables=tables, endpoints=endpoints) for each in found)

    def placed_subnets(self, ids: Iterable[str], /) -> tuple[PlacedSubnet, ...]:
        """Describe the places of subnets."""
        return tuple(
            PlacedSubnet(
                id=each["SubnetId"],
                zone=each["AvailabilityZone"],
                vpc_id=each["VpcId"],
                network=each.get("CidrBlock", ""),
            )
            for each in self._pages("describe_subnets", "Subnets", SubnetIds=sorted(ids))
        )

    def placement_group(self, *, deployment: str, subnet_id: str) -> str:
        """Return the name of a subnet's cluster placement group. AWS has named it.

        Args:
            deployment: The deployment that made the group.
            subnet_id: The subnet.

        Raises:
            AwsRefusedError: The deployment has no group there.
        """
        tags = {DEPLOYMENT_TAG: deployment, SUBNET_TAG: subnet_id}
        tagged = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        found = self._call("describe_placement_groups", Filters=tagged)["PlacementGroups"]
        if not found:
            raise AwsRefusedError(
                operation="DescribePlacementGroups",
                code="NoPlacementGroup",
                reason=f"the deployment {deployment} has no placement group for {subnet_id}: deploy it again",
            )
        return str(found[0]["GroupName"])

    def security_groups(self, ids: Iterable[str], /) -> tuple[SecurityGroup, ...]:
        """Describe security groups with their rules for TCP. None asks nothing."""
        wanted = sorted(ids)
        if not wanted:
            return ()
        return tuple(
            SecurityGroup(
                id=each["GroupId"],
                inbound=tuple(_traffic_rules(each.get("IpPermissions", ()))),
                outbound=tuple(_traffic_rules(each.get("IpPermissionsEgress", ()))),
            )
            for each in self._pages("describe_security_groups", "SecurityGroups", GroupIds=wanted)
        )

    def groups_of_interface(self, interface_id: str, /) -> frozenset[str]:
        """Return the ids of a network interface's security groups."""
        found = self._pages("describe_network_interfaces", "NetworkInterfaces", NetworkInterfaceIds=[interface_id])
        return frozenset(group["GroupId"] for each in found for group in each["Groups"])

    def volume(self, volume_id: str, /) -> Volume | None:
        """Describe a volume, or return None."""
        found = next(self._pages("describe_volumes", "Volumes", Filters=_ids("volume-id", volume_id)), None)
        if found is None:
            return None
        return Volume(
            id=volume_id,
            zone=found["AvailabilityZone"],
            size_gb=found["Size"],
            state=found["State"],
            tags=_tags(found),
        )

    def snapshot(self, snapshot_id: str, /) -> Snapshot | None:
        """Describe a snapshot, or return None."""
        found = next(self._pages("describe_snapshots", "Snapshots", Filters=_ids("snapshot-id", snapshot_id)), None)
        if found is None:
            return None
        return Snapshot(id=snapshot_id, size_gb=found["VolumeSize"], state=found["State"], tags=_tags(found))

    def fleets(self, *, deployment: str) -> tuple[Fleet, ...]:
        """List the deployment's fleets that may launch instances. DescribeFleets has no filter for tags."""
        wanted = [{"Name": "fleet-state", "Values": ["submitted", "active", "modifying"]}]
        found = map(_fleet, self._pages("describe_fleets", "Fleets", Filters=wanted))
        return tuple(fleet for fleet in found if fleet.tags.get(DEPLOYMENT_TAG) == deployment)

    def stored(self, *, deployment: str) -> tuple[TaggedStorage, ...]:
        """List the volumes and snapshots that carry the deployment's tag."""
        ours = [{"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [deployment]}]
        volumes = [
            TaggedStorage(kind=VOLUME, id=each["VolumeId"], attached=each["State"] != "available", tags=_tags(each))
            for each in self._pages("describe_volumes", "Volumes", Filters=ours)
        ]
        snapshots = [
            TaggedStorage(kind=SNAPSHOT, id=each["SnapshotId"], attached=False, tags=_tags(each))
            for each in self._pages("describe_snapshots", "Snapshots", Filters=ours, OwnerIds=["self"])
        ]
        return (*volumes, *snapshots)

    def delete_stored(self, stored: TaggedStorage, /) -> None:
        """Delete a volume or a snapshot. One that is gone is fine."""
        try:
            if stored.kind == VOLUME:
                self._call("delete_volume", VolumeId=stored.id)
            else:
                self._call("delete_snapshot", SnapshotId=stored.id)
        except AwsRefusedError as error:
            if not _GONE.search(error.code):
                raise

    def _image(self, image_id: str | None) -> Mapping[str, Any]:
        """Describe an AMI. Empty when there is none."""
        if image_id is None:
            return {}
        return next(self._pages("describe_images", "Images", Filters=_ids("image-id", image_id)), {})

    def _pages(self, operation: str, name: str, **query: Any) -> Iterator[Mapping[str, Any]]:
        while True:
            page = self._call(operation, **query)
            yield from page.get(name, ())
            if not page.get("NextToken"):
                return
            query["NextToken"] = page["NextToken"]

    def _deployed(self, versions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """Return the newest version that a deployment made, not a launch, and that names the bundle."""
        of_deployments = [
            version
            for version in versions
            if not (version.get("VersionDescription") or "").startswith(_RUN_VERSION)
            and (self._bundle_uri or "").encode() in base64.b64decode(version["LaunchTemplateData"].get("UserData", ""))
        ]
        return max(of_deployments, key=lambda version: int(version["VersionNumber"]), default=None)

    def _call(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        if self._client is None:
            self._client = self._make_client()
        with typed_errors(method, kind_of=_kind_of):
            answer: Mapping[str, Any] = getattr(self._client, method)(**parameters)
        return answer


def _kind_of(code: str, _reason: str) -> type[AwsCallError]:
    return AwsBusyError if code in _BUSY else AwsRefusedError


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def root_volume(template: Mapping[str, Any], *, image: Mapping[str, Any], at_least_gb: int = 0) -> dict[str, Any]:
    """Return the deployed template's volume as the image's root volume, under its device name and no smaller than it.

    Families of images differ in both. Under another name it would be a second volume, beside an unencrypted root
    volume.
    Source: "Block device mappings", EC2 user guide.

    Args:
        template: Launch template data. Its one mapping holds the deployment's settings of the root volume.
        image: EC2's description of the image. Empty where EC2 gives none.
        at_least_gb: The least size of the volume, in GiB.
    """
    device, mappings = image.get("RootDeviceName"), template.get("BlockDeviceMappings", ())
    if device is None or len(mappings) != 1:
        return {}
    sizes = [
        int(mapping.get("Ebs", {}).get("VolumeSize", 0))
        for mapping in (*mappings, *image.get("BlockDeviceMappings", ()))
        if mapping is mappings[0] or mapping.get("DeviceName") == device
    ]
    return {
        "BlockDeviceMappings": [
            {"DeviceName": device, "Ebs": {**mappings[0]["Ebs"], "VolumeSize": max(at_least_gb, *sizes)}}
        ]
    }


def nodes_network(template: Mapping[str, Any], *, security_group_id: str | None, adapters: int) -> dict[str, Any]:
    """Return the part of the launch template data that makes instances the nodes of a run. Empty for one instance.

    Each Elastic Fabric Adapter is on a network card of its own. The first one is an IP interface, too.

    Args:
        template: The data of the deployed version.
        security_group_id: The security group in which the nodes reach each other. None for one instance.
        adapters: The number of Elastic Fabric Adapters. With any, this is all of the deployed data as well, because a
            version with a source could not be without the source's security groups.

    Source: "Get started with EFA and MPI" and "Network interfaces of EFA-enabled instances", EC2 user guide.
    """
    if security_group_id is None and not adapters:
        return {}
    groups = [*template.get("SecurityGroupIds", ()), *([security_group_id] if security_group_id else [])]
    if not adapters:
        return {"SecurityGroupIds": groups}
    rest = {name: value for name, value in template.items() if name not in ("SecurityGroupIds", "MetadataOptions")}
    metadata = {name: value for name, value in template.get("MetadataOptions", {}).items() if name != "State"}
    return {
        **rest,
        **({"MetadataOptions": metadata} if metadata else {}),
        "NetworkInterfaces": [
            {
                "NetworkCardIndex": card,
                "DeviceIndex": min(card, 1),
                "InterfaceType": "efa-only" if card else "efa",
                "Groups": groups,
                "DeleteOnTermination": True,
            }
            for card in range(adapters)
        ],
    }


def _template_version(entry: Mapping[str, Any], data: Mapping[str, Any]) -> TemplateVersion:
    volumes = [mapping["Ebs"] for mapping in data.get("BlockDeviceMappings", ()) if "Ebs" in mapping]
    root = None
    if len(volumes) == 1 and {"VolumeSize", "VolumeType"} <= volumes[0].keys():
        [ebs] = volumes
        root = ProvisionedVolume(
            size_gb=ebs["VolumeSize"],
            type=ebs["VolumeType"],
            iops=ebs.get("Iops"),
            throughput_mib_s=ebs.get("Throughput"),
        )
    return TemplateVersion(number=str(entry["VersionNumber"]), root_volume=root)


def _fleet(entry: Mapping[str, Any]) -> Fleet:
    return Fleet(
        id=entry["FleetId"],
        state=entry["FleetState"],
        tags=_tags(entry),
        created_at=entry["CreateTime"].astimezone(UTC),
    )


def _ids(name: str, value: str) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": [value]}]


def _tags(entry: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in entry.get("Tags", ())}


def _instance(entry: Mapping[str, Any]) -> Instance:
    ended = _TIME_IN_REASON.search(entry.get("StateTransitionReason") or "")
    return Instance(
        id=entry["InstanceId"],
        type=entry["InstanceType"],
        zone=entry.get("Placement", {}).get("AvailabilityZone", ""),
        spot=entry.get("InstanceLifecycle") == "spot",
        state=entry["State"]["Name"],
        launched_at=entry["LaunchTime"].astimezone(UTC),
        ended_at=None if ended is None else datetime.fromisoformat(f"{ended[1]}+00:00"),
        reason=(entry.get("StateReason") or {}).get("Code") or None,
        tags=_tags(entry),
    )


def _subnet(
    entry: Mapping[str, Any], *, tables: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]
) -> Subnet:
    """Read a subnet. Where it has no route table of its own, the VPC's main one holds."""
    subnet_id, vpc_id = entry["SubnetId"], entry["VpcId"]
    associated = [(table, each) for table in tables for each in table.get("Associations", ())]
    own = [table for table, each in associated if each.get("SubnetId") == subnet_id]
    main = [table for table, each in associated if each.get("Main") and table["VpcId"] == vpc_id]
    table = next(iter(own + main), {})
    targets = [_target(route) for route in table.get("Routes", ()) if route.get("State") != "blackhole"]
    return Subnet(
        id=subnet_id,
        public_addresses=bool(entry.get("MapPublicIpOnLaunch")),
        targets=tuple(target for target in targets if target != "local" and not target.startswith("vpce-")),
        endpoints=frozenset(
            _AWS_ENDPOINT.sub("", each["ServiceName"])
            for each in endpoints
            if each["VpcId"] == vpc_id and each.get("State", "").lower() == "available"
            # A gateway is a route; an interface is found by its name, where the VPC gives it the service's own.
            if each.get("PrivateDnsEnabled") or table.get("RouteTableId") in each.get("RouteTableIds", ())
        ),
    )


def _traffic_rules(entries: Iterable[Mapping[str, Any]]) -> Iterator[TrafficRule]:
    """Read the rules of a security group that let TCP through."""
    for each in entries:
        if each["IpProtocol"] not in _TCP:
            continue
        every_port = each["IpProtocol"] == _EVERY_PROTOCOL
        yield TrafficRule(
            first_port=0 if every_port else each.get("FromPort", 0),
            last_port=_LAST_PORT if every_port else each.get("ToPort", _LAST_PORT),
            groups=frozenset(pair["GroupId"] for pair in each.get("UserIdGroupPairs", ())),
            networks=tuple(network["CidrIp"] for network in each.get("IpRanges", ())),
            unread=bool(each.get("PrefixListIds")),
        )


def _target(route: Mapping[str, Any]) -> str:
    """Return the target of a route. It is the one field that names neither the route's destination nor its origin."""
    named = (
        value
        for field, value in route.items()
        if field.endswith(("Id", "Arn")) and not field.startswith("Destination") and field != "InstanceOwnerId"
    )
    return str(next(named, "local"))


def _said(description: str) -> str:
    """Return the description of an error, which is a sentence. That of an instance is JSON, and not for people."""
    try:
        json.loads(description)
    except ValueError:
        return description
    return ""


def _in_clusters(strategies: Sequence[str] | None) -> bool | None:
    return None if strategies is None else "cluster" in strategies


def _accelerators(described: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of an instance type that need a driver, in words.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTypeInfo.html
    """
    gpus = described.get("GpuInfo", {}).get("Gpus", ())
    others = described.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
    found = [f"{gpu.get('Manufacturer', 'unknown')} GPUs" for gpu in gpus]
    found += ["AWS Neuron devices"] if "NeuronInfo" in described else []
    found += [f"{other.get('Manufacturer', 'unknown')} accelerators" for other in others] if not found else []
    return tuple(dict.fromkeys(found))
