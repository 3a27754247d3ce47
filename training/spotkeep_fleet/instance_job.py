"""What the instances of a run are asked to do: written by the launcher, read by the agent when its instance starts.

It is one item of the run table, `fleet-job#<run>` / `fleet-job`, apart from the fleet record: IAM lets instances read
this partition, and only functions write it. So what a script writes into a fleet record is never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .reading import Reader, read_json_text, read_whole

FLEET_JOB_SORT_KEY = "fleet-job"
FLEET_JOB_PARTITION_PREFIX = "fleet-job#"
"""In the run table IAM lets an instance read its run's partition with this prefix, and that of its fleet record."""

ARGUMENTS = ("hyperparameters", "json", "none")
REBALANCE_MODES = ("leave", "save", "ignore")
METADATA_MODES = ("closed", "open")
INITIALIZATION_RATES_MIB_S = (100, 300)
"""The bounds of VolumeInitializationRate: "Initialize Amazon EBS volumes", EBS user guide."""

_S3_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class VolumeSpec:
    """The volume of a run.

    Attributes:
        size_gb: GiB; a volume that is restored is at least as large as its snapshot.
        type: `gp3`, `io2`, ...
        iops: Provisioned, where the type takes them; None for the type's own.
        throughput_mib_s: Provisioned, for gp3; None for the type's own.
        initialization_rate_mib_s: How fast a volume is filled from its snapshot, 100 to 300; None: lazily, on access.
        kms_key_id: What encrypts it; None for the account's own EBS key. It is always encrypted.
        snapshot_id: What the first volume is made from; None for an empty one.
        tags: The user's own of volumes and snapshots, and the owner's.
    """

    size_gb: int
    type: str = "gp3"
    iops: int | None = None
    throughput_mib_s: int | None = None
    initialization_rate_mib_s: int | None = None
    kms_key_id: str | None = None
    snapshot_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class JobSource:
    """Where the training's source is: an archive in S3, or a commit of a git repository.

    Attributes:
        uri: The URI of the archive.
        sha256: The SHA-256 of the archive's bytes, hexadecimal: whatever else is found there is not unpacked.
        git_url: The URL of the repository.
        git_commit: By its whole hash.
    """

    uri: str | None = None
    sha256: str | None = None
    git_url: str | None = None
    git_commit: str | None = None


@dataclass(frozen=True)
class InstanceJob:
    """What to train, with what, and where to leave it.

    Attributes:
        command: The training command and its arguments, or a block of lines for bash.
        volume: The volume that follows the run.
        environment: Variables of the command.
        hyperparameters: As SageMaker's: they become `input/config/hyperparameters.json`.
        arguments: What follows the command: its `hyperparameters` in the toolkit's way, `json` for values as JSON, or
            `none`.
        install: What is installed before the command: `auto`, `none`, or the path of a requirements file in the source.
        requirements: A list of what to install, instead of `install`.
        setup: A command that is run once an instance, after the installation: its words, or a block of lines for bash;
            empty for none.
        source: Where the source is; None when the image holds it.
        channels: S3 prefixes by channel name; copied to the volume once.
        checkpoint_uri: The second tier, `s3://bucket/prefix`; None for the volume alone.
        output_uri: Where `model.tar.gz` goes after a success; None for nowhere.
        log_group: CloudWatch log group; None for no logs there.
        event_bus: EventBridge bus of the agent's events; None for none.
        max_script_retries: How often a script that failed is started again, over the whole run.
        rebalance: What a rebalance recommendation means: `save` and go on, `leave` as on a notice, or `ignore`.
        instance_metadata: Whether the training reaches the instance metadata service, and with it the instance's role:
            `closed` or `open`.
        attempt: The run's attempt, for the script and the logs.
        launch: The id of its launch, which every event carries; None for events without.
        image: The container image that the command runs in; None for the AMI itself.
    """

    command: tuple[str, ...] | str
    volume: VolumeSpec
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    hyperparameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    arguments: str = "hyperparameters"
    install: str = "none"
    requirements: tuple[str, ...] = ()
    setup: tuple[str, ...] | str = ()
    source: JobSource | None = None
    channels: Mapping[str, str] = field(default_factory=dict, hash=False)
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

    def document(self) -> dict[str, Any]:
        """Give it as JSON values."""
        words = {"command": self.command, "requirements": self.requirements, "setup": self.setup}
        return {**asdict(self), **{name: each if isinstance(each, str) else list(each) for name, each in words.items()}}


def fleet_job_key(run: str) -> tuple[str, str]:
    """Give the partition key and the sort key (`pk`, `sk`) of a run's job in the run table."""
    return FLEET_JOB_PARTITION_PREFIX + run, FLEET_JOB_SORT_KEY


def encode_job(job: InstanceJob) -> str:
    """Write a job as JSON text."""
    return json.dumps(job.document(), separators=(",", ":"), allow_nan=False)


def decode_job(text: str) -> InstanceJob:
    """Read what `encode_job` wrote.

    Raises:
        DocumentError: If it is no such text; names everything that is wrong with it.
    """
    return read_json_text(text, "job", job_from)


def read_job(document: Any) -> InstanceJob:
    """Read what `InstanceJob.document` gave.

    Raises:
        DocumentError: If anything is wrong; names all of it.
    """
    return read_whole(document, "job", job_from)


def job_from(reader: Reader) -> InstanceJob:
    """Read a job's fields; what is wrong is left with the reader."""
    volume = reader.nested("volume", _volume_from)
    if volume is None:
        reader.problems.append(f"{reader.where}.volume is missing; give at least its size_gb")
    command = reader.text_or_texts("command")
    if not command:
        reader.problems.append(f"{reader.where}.command is empty; give the training command")
    job = InstanceJob(
        command=command,
        volume=volume or VolumeSpec(size_gb=1),
        environment=reader.text_mapping("environment"),
        hyperparameters=reader.text_mapping("hyperparameters"),
        arguments=reader.choice("arguments", ARGUMENTS, "hyperparameters"),
        install=reader.text("install", "none"),
        requirements=reader.texts("requirements"),
        setup=reader.text_or_texts("setup"),
        source=reader.nested("source", _source_from),
        channels=reader.text_mapping("channels"),
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
    )
    places = {
        "checkpoint_uri": job.checkpoint_uri,
        "output_uri": job.output_uri,
        **{f"channels.{name}": uri for name, uri in job.channels.items()},
    }
    for name, uri in places.items():
        if uri is not None and not _S3_URI.fullmatch(uri):
            reader.problems.append(f"{reader.where}.{name} is {uri!r}; use s3://bucket/prefix")
    return job


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


def _source_from(reader: Reader) -> JobSource:
    source = JobSource(
        uri=reader.optional_text("uri"),
        sha256=reader.optional_text("sha256"),
        git_url=reader.optional_text("git_url"),
        git_commit=reader.optional_text("git_commit"),
    )
    if (source.uri is None) == (source.git_url is None):
        reader.problems.append(f"{reader.where} must name either uri or git_url with git_commit")
    if source.git_url is not None and not _COMMIT.fullmatch(source.git_commit or ""):
        reader.problems.append(f"{reader.where}.git_commit is {source.git_commit!r}; use 40 hexadecimal digits")
    if source.uri is not None and not _SHA256.fullmatch(source.sha256 or ""):
        reader.problems.append(f"{reader.where}.sha256 is {source.sha256!r}; use 64 hexadecimal digits")
    if source.uri is not None and not _S3_URI.fullmatch(source.uri):
        reader.problems.append(f"{reader.where}.uri is {source.uri!r}; use s3://bucket/key")
    return source
