"""The job of a run's instances. The launcher writes it, and the agent reads it when its instance starts.

It is one item of the run table, `fleet-job#<run>` / `fleet-job`, apart from the fleet record. IAM lets instances read
this partition, and only functions write it. So the agent never executes a script's own writes to a fleet record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .reading import Reader, read_json_text, read_whole
from .training_spec import S3_URI, TrainingSpec, spec_from

FLEET_JOB_SORT_KEY = "fleet-job"
FLEET_JOB_PARTITION_PREFIX = "fleet-job#"
"""The beginning of the partition key of a run's job. IAM lets an instance read its run's partition with this prefix."""

REBALANCE_MODES = ("leave", "save", "ignore")
METADATA_MODES = ("closed", "open")
MOST_NODES = 64
"""The most nodes of a run."""
SHORTEST_KEY = 16
"""The fewest characters of the nodes' key."""
INITIALIZATION_RATES_MIB_S = (100, 300)
"""The bounds of VolumeInitializationRate, in MiB/s. Source: "Initialize Amazon EBS volumes", EBS user guide."""


@dataclass(frozen=True)
class VolumeSpec:
    """The volume of a run.

    Attributes:
        size_gb: Its size in GiB, which is that of its snapshot at least where it is restored.
        type: The EBS volume type, such as `gp3` or `io2`.
        iops: Provisioned IOPS, where the type takes them. None for the type's own.
        throughput_mib_s: Provisioned throughput in MiB/s, for gp3. None for the type's own.
        initialization_rate_mib_s: The rate at which EBS fills a volume from its snapshot, 100 to 300 MiB/s. None for
            lazily, on access.
        kms_key_id: The KMS key that encrypts it. None for the account's own EBS key. It is always encrypted.
        snapshot_id: The snapshot of the first volume. None for an empty one.
        tags: The user's own tags of volumes and snapshots, and the owner's.
    """

    size_gb: int
    type: str = "gp3"
    iops: int | None = None
    throughput_mib_s: int | None = None
    initialization_rate_mib_s: int | None = None
    kms_key_id: str | None = None
    snapshot_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)


LUSTRE, NFS = "lustre", "nfs4"
FILE_SYSTEM_KINDS = (LUSTRE, NFS)
"""The types of file systems that an instance mounts, by their names for `mount -t`."""


@dataclass(frozen=True)
class FileSystemSpec:
    """A directory of a file system that an instance mounts as a channel.

    Attributes:
        kind: One of `FILE_SYSTEM_KINDS`.
        source: The directory, as `mount` names it, such as `<DNS name>@tcp:/<mount name>/<folder>` for Lustre.
        writable: True where the training may write.
    """

    kind: str
    source: str
    writable: bool = False


@dataclass(frozen=True)
class NodesSpec:
    """The instances that train a run together.

    Attributes:
        at_least: The fewest that train. With fewer they wait, with all steps saved.
        at_most: The most that train, which is the number that the fleet asks for.
        wait_seconds: The longest time in seconds that nodes wait, on the bill, for the rest.
        key: A secret of the run's nodes, which the launcher makes. A node without it is no node of the run.
    """

    at_least: int
    at_most: int
    wait_seconds: int
    key: str = field(repr=False)


@dataclass(frozen=True)
class InstanceJob:
    """The training of an instance, its data, and the places of its results.

    Attributes:
        training: The spec of the training, for the runner.
        volume: The volume that follows the run.
        channels: S3 prefixes by channel name. The agent copies each to the volume once.
        file_systems: Directories of file systems by channel name. The agent mounts each before the training.
        checkpoint_uri: The second tier, `s3://bucket/prefix`. None for the volume alone.
        output_uri: The place of `model.tar.gz` after a success. None for nowhere.
        log_group: CloudWatch log group, or None for no logs there.
        event_bus: EventBridge bus of the agent's events, or None.
        max_script_retries: The number of times that the agent starts a failed script again, over the whole run.
        rebalance: The answer to a rebalance recommendation, which is `save` and go on, `leave` as on a notice, or
            `ignore`.
        instance_metadata: `open` where the training reaches the instance metadata service, and with it the instance's
            role. Otherwise `closed`.
        attempt: The run's attempt, for the script and the logs.
        launch: The id of its launch, which every event carries. None for events without.
        image: The container image in which the command runs. None for the AMI itself.
        nodes: The instances that train together, without a volume. None for one instance with the volume.
        checkpoint_channel: The channel in `file_systems` in which all nodes have their checkpoints, below a folder of
            the run's name. None where each node has them on its own disk.
    """

    training: TrainingSpec
    volume: VolumeSpec
    channels: Mapping[str, str] = field(default_factory=dict, hash=False)
    file_systems: Mapping[str, FileSystemSpec] = field(default_factory=dict, hash=False)
    checkpoint_uri: str | None = None
    output_uri: str | None = None
    log_group: str | None = None
    event_bus: str | None = None
    max_script_retries: int = 0
    rebalance: str = "save"
    instance_metadata: str = "closed"
    attempt: int = 1
    launch: str | None = None
    image: str | None = None
    nodes: NodesSpec | None = None
    checkpoint_channel: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return {**asdict(self), "training": self.training.document()}


def fleet_job_key(run: str) -> tuple[str, str]:
    """Return the partition key and the sort key (`pk`, `sk`) of a run's job in the run table."""
    return FLEET_JOB_PARTITION_PREFIX + run, FLEET_JOB_SORT_KEY


def encode_job(job: InstanceJob) -> str:
    """Write a job as JSON text."""
    return json.dumps(job.document(), separators=(",", ":"), allow_nan=False)


def decode_job(text: str) -> InstanceJob:
    """Read a text of `encode_job`.

    Raises:
        DocumentError: The text is no such one. The error names every fault of it.
    """
    return read_json_text(text, "job", job_from)


def read_job(document: Any) -> InstanceJob:
    """Read a document of `InstanceJob.document`.

    Raises:
        DocumentError: The document has a fault. The error names all of them.
    """
    return read_whole(document, "job", job_from)


def job_from(reader: Reader) -> InstanceJob:
    """Read a job's fields. The reader keeps the problems."""
    volume = reader.nested("volume", _volume_from)
    if volume is None:
        reader.problems.append(f"{reader.where}.volume is missing; give at least its size_gb")
    training = reader.nested("training", spec_from)
    if training is None:
        reader.problems.append(f"{reader.where}.training is missing; give at least its command")
    job = InstanceJob(
        training=training or TrainingSpec(()),
        volume=volume or VolumeSpec(size_gb=1),
        channels=reader.text_mapping("channels"),
        file_systems=reader.each_named("file_systems", _file_system_from),
        checkpoint_uri=reader.optional_text("checkpoint_uri"),
        output_uri=reader.optional_text("output_uri"),
        log_group=reader.optional_text("log_group"),
        event_bus=reader.optional_text("event_bus"),
        max_script_retries=reader.whole("max_script_retries", 0),
        rebalance=reader.choice("rebalance", REBALANCE_MODES, "save"),
        instance_metadata=reader.choice("instance_metadata", METADATA_MODES, "closed"),
        attempt=reader.whole("attempt", 1, at_least=1),
        launch=reader.optional_text("launch"),
        image=reader.optional_text("image"),
        nodes=reader.nested("nodes", _nodes_from),
        checkpoint_channel=reader.optional_text("checkpoint_channel"),
    )
    places = {
        "checkpoint_uri": job.checkpoint_uri,
        "output_uri": job.output_uri,
        **{f"channels.{name}": uri for name, uri in job.channels.items()},
    }
    for name, uri in places.items():
        if uri is not None and not S3_URI.fullmatch(uri):
            reader.problems.append(f"{reader.where}.{name} is {uri!r}; use s3://bucket/prefix")
    if job.nodes is not None and job.checkpoint_uri is None:
        reader.problems.append(f"{reader.where}.nodes have no checkpoint_uri; give one, for S3 is all that they share")
    shared = job.file_systems.get(job.checkpoint_channel or "")
    if job.checkpoint_channel is not None and (shared is None or not shared.writable):
        reader.problems.append(
            f"{reader.where}.checkpoint_channel is {job.checkpoint_channel!r}; name a writable one of file_systems"
        )
    return job


def _file_system_from(reader: Reader) -> FileSystemSpec:
    return FileSystemSpec(
        kind=reader.choice("kind", FILE_SYSTEM_KINDS, LUSTRE),
        source=reader.text("source"),
        writable=reader.flag("writable"),
    )


def _nodes_from(reader: Reader) -> NodesSpec:
    spec = NodesSpec(
        at_least=reader.whole("at_least", at_least=1, at_most=MOST_NODES),
        at_most=reader.whole("at_most", at_least=1, at_most=MOST_NODES),
        wait_seconds=reader.whole("wait_seconds"),
        key=reader.text("key"),
    )
    if spec.at_least > spec.at_most:
        reader.problems.append(f"{reader.where}.at_least is {spec.at_least}; at_most is {spec.at_most}, which is fewer")
    if len(spec.key) < SHORTEST_KEY:
        reader.problems.append(f"{reader.where}.key has {len(spec.key)} characters; use {SHORTEST_KEY} or more")
    return spec


def _volume_from(reader: Reader) -> VolumeSpec:
    spec = VolumeSpec(
        size_gb=reader.whole("size_gb", at_least=1),
        type=reader.text("type", "gp3"),
        iops=reader.optional_whole("iops"),
        throughput_mib_s=reader.optional_whole("throughput_mib_s"),
        initialization_rate_mib_s=reader.optional_whole("initialization_rate_mib_s"),
        kms_key_id=reader.optional_text("kms_key_id"),
        snapshot_id=reader.optional_text("snapshot_id"),
        tags=reader.text_mapping("tags"),
    )
    rate, (low, high) = spec.initialization_rate_mib_s, INITIALIZATION_RATES_MIB_S
    if rate is not None and not low <= rate <= high:
        reader.problems.append(f"{reader.where}.initialization_rate_mib_s is {rate}; EC2 takes {low} to {high}")
    return spec
