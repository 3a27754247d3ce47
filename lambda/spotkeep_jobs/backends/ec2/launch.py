"""The request of one attempt to EC2 and to its instances, from the run's request and the deployment. Pure.

It is recorded with the attempt before anything is created, so that a launcher completes an interrupted launch with the
same request. The key of nodes is not in it. It is made when their job is written, and only they read that.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-allocation-strategy.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotkeep_fleet.instance_job import LUSTRE, NFS, FileSystemSpec, InstanceJob, NodesSpec, VolumeSpec, read_job
from spotkeep_fleet.record import CurrentVolume
from spotkeep_fleet.tags import (
    ATTEMPT_TAG,
    CHECKPOINTS_TAG,
    DEPLOYMENT_TAG,
    OF_INSTANCES_ALONE,
    OWNER_TAG,
    RUN_TAG,
)
from spotkeep_jobs.backends.ec2.facts import NodesTemplate
from spotkeep_jobs.backends.ec2.history import NodesWanted
from spotkeep_jobs.document.capacity import NextJob
from spotkeep_jobs.document.command import number_in, training_spec_of
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.source import FileSystemChannel
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Capacity, Record, RunGroup


@dataclass(frozen=True, kw_only=True)
class FleetPlatform:
    """The settings that a deployment gives every fleet.

    Attributes:
        launch_template_id: The deployed launch template.
        subnets: The subnets for instances, as zones by subnet id.
        instance_types: The instance types of jobs that name none, the preferred first.
        log_group: The log group to which instances write.
        event_bus: The event bus to which instances send their events.
        volume_kms_key_arn: The ARN of the KMS key that encrypts the runs' volumes. None for the account's own EBS key.
        nodes_security_group_id: The security group in which the nodes of a run reach each other.
        file_systems: The DNS names of the file systems that a request mounts, by their ids.
    """

    launch_template_id: str
    subnets: Mapping[str, str]
    instance_types: tuple[str, ...] = ()
    log_group: str | None = None
    event_bus: str | None = "default"
    volume_kms_key_arn: str | None = None
    nodes_security_group_id: str | None = None
    file_systems: Mapping[str, str] = field(default_factory=dict)


class FleetLaunch(Record):
    """All that creates one attempt's fleets, as it is recorded."""

    run: str
    attempt: int
    token: str
    """The launch's idempotency token, for all that it creates."""
    capacity: Capacity
    template_id: str
    tags: dict[str, str]
    """The tags of the fleet and its instances."""
    overrides: tuple[dict[str, str], ...]
    """Each type in each subnet, with the highest price, if there is one. For nodes they are the places in order."""
    nodes: NodesWanted | None = None
    """The nodes that train together. None for one instance with its volume."""
    nodes_template: NodesTemplate | None = None
    """The settings of nodes beside the deployed template."""
    in_cluster: bool = False
    """True for nodes in the cluster placement group of their subnet. False for any place in it."""
    max_run_seconds: int
    max_wait_seconds: int | None = None
    has_max_cost: bool = False
    """True where the run has a max_cost, so that each reading of the fleet counts its cost."""
    job: dict[str, Any]
    """The job of the instances, as `InstanceJob.document` writes it."""
    brought_volume: str | None = None
    """A volume of the user's own."""

    @property
    def instance_job(self) -> InstanceJob:
        """Returns the job of the instances, with the tags of the volumes and snapshots that they make."""
        job = read_job(self.job)
        return replace(job, volume=replace(job.volume, tags=self.users_tags))

    def nodes_job(self, *, key: str) -> InstanceJob:
        """Return the job of nodes that show each other a key. For one instance it is its job.

        Args:
            key: A secret of these nodes.
        """
        job, nodes = self.instance_job, self.nodes
        if nodes is None:
            return job
        return replace(job, nodes=NodesSpec(nodes.at_least, nodes.at_most, nodes.wait_seconds, key))

    @property
    def users_tags(self) -> dict[str, str]:
        """The user's own tags and the owner's. All that the run makes and EC2 bills has them."""
        given = {key: value for key, value in self.tags.items() if key not in {*OF_INSTANCES_ALONE, DEPLOYMENT_TAG}}
        if given.get("Name") == self._name:
            del given["Name"]  # It is ours.
        return given

    @property
    def _name(self) -> str:
        return f"{self.run}-{self.attempt}"


def fleet_launch(
    *,
    request: JobRequest,
    job: NextJob,
    platform: FleetPlatform,
    deployment: str,
    run: str,
    attempt: int,
    launch_id: str,
    checkpoint_uri: str,
    output_prefix: str,
    group: RunGroup | None = None,
) -> FleetLaunch:
    """Return the launch of an attempt.

    Args:
        request: The validated request, defaults filled in.
        job: The places in which EC2 finds capacity for it, and its time limit for training.
        platform: The settings that the deployment gives every fleet.
        deployment: Its name.
        run: The run's id.
        attempt: From 1.
        launch_id: The id of this launch.
        checkpoint_uri: The S3 prefix of the run's checkpoints.
        output_prefix: The S3 prefix of its outputs.
        group: Its place among several runs. None for a run on its own.
    """
    own = {
        DEPLOYMENT_TAG: deployment,
        RUN_TAG: run,
        ATTEMPT_TAG: str(attempt),
        CHECKPOINTS_TAG: checkpoint_uri.removeprefix("s3://").partition("/")[2].rstrip("/"),
    }
    if request.owner:
        own[OWNER_TAG] = request.owner
    on_spot = job.fallback.capacity == "spot"
    price = {"MaxPrice": f"{request.max_price:g}"} if on_spot and request.max_price is not None else {}
    nodes, network = request.several_nodes, request.network
    return FleetLaunch(
        run=run,
        attempt=attempt,
        token=launch_id,
        capacity=job.fallback.capacity,
        template_id=platform.launch_template_id,
        tags={"Name": f"{run}-{attempt}", **request.tags, **own},
        overrides=tuple(
            {"InstanceType": instance_type, "SubnetId": subnet_id, **price}
            for instance_type in job.fallback.instance_types
            for subnet_id in platform.subnets
        ),
        nodes=None
        if nodes is None
        else NodesWanted(at_least=nodes.min, at_most=nodes.max, wait_seconds=request.nodes_wait_seconds),
        nodes_template=None
        if nodes is None
        else NodesTemplate(
            security_group_id=platform.nodes_security_group_id,
            root_gb=None if request.volume is None else request.volume.size_gb,
            efa=network is not None and network.efa,
        ),
        in_cluster=nodes is not None and network is not None and network.placement is not None,
        max_run_seconds=job.max_run_seconds,
        max_wait_seconds=job.max_wait_seconds,
        has_max_cost=request.max_cost is not None,
        job=InstanceJob(
            training=training_spec_of(request, number=number_in(group)),
            volume=_volume(request, kms_key_arn=platform.volume_kms_key_arn),
            channels={channel.name: channel.uri for channel in request.s3_channels},
            file_systems={
                channel.name: _mounted(channel, dns_name=platform.file_systems[channel.file_system])
                for channel in request.file_system_channels
            },
            checkpoint_uri=checkpoint_uri if request.checkpoints else None,
            output_uri=_output_uri(output_prefix, run=run, attempt=attempt),
            log_group=platform.log_group,
            event_bus=platform.event_bus,
            max_script_retries=request.script_retries,
            rebalance=request.rebalance,
            instance_metadata=request.instance_metadata,
            attempt=attempt,
            launch=launch_id,
            image=request.image,
            checkpoint_channel=request.checkpoint_channel,
        ).document(),
        brought_volume=request.volume.volume if request.volume is not None else None,
    )


def following_launch(previous: FleetLaunch, *, job: NextJob, attempt: int, launch_id: str) -> FleetLaunch:
    """Return the launch of a run's next attempt. It does the same work on the same volume, with other capacity.

    Args:
        previous: The launch of the last attempt.
        job: The places in which EC2 finds capacity for the next one, and its time limits.
        attempt: The number of the next attempt.
        launch_id: The id of its launch.
    """
    run, before, now = previous.run, f"{previous.run}-{previous.attempt}", f"{previous.run}-{attempt}"
    tags = {**previous.tags, ATTEMPT_TAG: str(attempt)}
    if tags.get("Name") == before:
        tags["Name"] = now
    overrides = previous.overrides
    if job.fallback.capacity == "on-demand":
        overrides = tuple({key: each[key] for key in each if key != "MaxPrice"} for each in overrides)
    work = read_job(previous.job)
    output_uri = None
    if work.output_uri is not None:
        output_uri = _output_uri(work.output_uri.removesuffix(f"{before}/output/"), run=run, attempt=attempt)
    return with_changes(
        previous,
        attempt=attempt,
        token=launch_id,
        capacity=job.fallback.capacity,
        tags=tags,
        overrides=overrides,
        max_run_seconds=job.max_run_seconds,
        max_wait_seconds=job.max_wait_seconds,
        job=replace(work, attempt=attempt, launch=launch_id, output_uri=output_uri).document(),
    )


def _output_uri(prefix: str, *, run: str, attempt: int) -> str:
    return f"{prefix}{run}-{attempt}/output/"


def token_at(launch_id: str, *, place: int) -> str:
    """Return the idempotency token of the fleet at a place.

    Args:
        launch_id: The id of the launch.
        place: The number of the place, from 0.
    """
    return f"{launch_id}-{place}" if place else launch_id


def place_of_nodes(launch: FleetLaunch, *, place: int) -> dict[str, str]:
    """Return the override of the one place in which nodes are looked for.

    Args:
        launch: The launch of an attempt with nodes.
        place: The number of the place, from 0. After the last one comes the first one.
    """
    return launch.overrides[place % len(launch.overrides)]


def create_fleet_request(
    launch: FleetLaunch, *, template_version: str, place: int = 0, placement_group: str | None = None
) -> dict[str, Any]:
    """Return the parameters of CreateFleet.

    A `maintain` fleet replaces lost instances until it is deleted. Its default strategy is the lowest price, which is
    interrupted the most. The request takes no tags for instances. Those are in the version of the launch template.
    MinTargetCapacity and SingleAvailabilityZone are for `instant` fleets alone. So a fleet of nodes names one subnet.

    Args:
        launch: The launch of the attempt.
        template_version: The version of the launch template that tags the run's instances.
        place: The number of the place in which nodes are looked for.
        placement_group: The name of the cluster placement group in that place. None for any machines there.
    """
    spot, count, overrides = launch.capacity == "spot", 1, [dict[str, Any](each) for each in launch.overrides]
    if launch.nodes is not None:
        count = launch.nodes.at_most
        grouped = {} if placement_group is None else {"Placement": {"GroupName": placement_group}}
        overrides = [{**place_of_nodes(launch, place=place), **grouped}]
    return {
        "ClientToken": token_at(launch.token, place=place),
        "Type": "maintain",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "OnDemandTargetCapacity": 0 if spot else count,
            "SpotTargetCapacity": count if spot else 0,
            "DefaultTargetCapacityType": launch.capacity,
        },
        "SpotOptions": {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        },
        "OnDemandOptions": {"AllocationStrategy": "lowest-price"},
        "ExcessCapacityTerminationPolicy": "termination",
        "TerminateInstancesWithExpiration": True,
        "ReplaceUnhealthyInstances": False,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": launch.template_id, "Version": template_version},
                "Overrides": overrides,
            }
        ],
        "TagSpecifications": [
            {"ResourceType": "fleet", "Tags": [{"Key": key, "Value": value} for key, value in launch.tags.items()]}
        ],
    }


def job_request_of(launch: FleetLaunch, *, marks: Mapping[str, str]) -> dict[str, Any]:
    """Return the launch and the marks that distinguish its job from any other, to be recorded with the attempt."""
    return {"Environment": dict(marks), "Fleet": launch.model_dump(mode="json")}


def launch_of(job_request: Mapping[str, Any]) -> FleetLaunch:
    """Read the launch from a result of `job_request_of`."""
    return FleetLaunch.model_validate(job_request["Fleet"])


def brought(launch: FleetLaunch, *, zone: str, size_gb: int) -> CurrentVolume | None:
    """Return the volume that a user brought, as the fleet record names it. None when the run makes its own."""
    if launch.brought_volume is None:
        return None
    return CurrentVolume(id=launch.brought_volume, zone=zone, size_gb=size_gb)


def _mounted(channel: FileSystemChannel, *, dns_name: str) -> FileSystemSpec:
    """Return the directory of a channel as an instance mounts it.

    Sources: "Mounting from an Amazon EC2 instance" (FSx for Lustre user guide), "Mounting file systems without the EFS
    mount helper" (Amazon EFS user guide)
    """
    kind, server = (NFS, dns_name) if channel.fsx is None else (LUSTRE, f"{dns_name}@tcp")
    return FileSystemSpec(kind, f"{server}:{channel.path}", writable=channel.access == "rw")


def _volume(request: JobRequest, *, kms_key_arn: str | None) -> VolumeSpec:
    volume = request.volume_or_default
    return VolumeSpec(
        size_gb=volume.size_gb,
        type=volume.type,
        iops=volume.iops,
        throughput_mib_s=volume.throughput,
        initialization_rate_mib_s=volume.initialization_rate,
        snapshot_id=volume.snapshot,
        kms_key_id=kms_key_arn,
    )
