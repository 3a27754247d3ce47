"""The directory that a job sees as `/opt/ml`, with its layout and the files that the platform writes there.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
"""

from __future__ import annotations

import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spotkeep_fleet.channel_files import channel_files
from spotkeep_fleet.errors import ChannelDataError
from spotkeep_local.hosts.written_files import read_beginning
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.object_store import ObjectStore, S3Location
from spotkeep_local.training.request_rules import DEFAULT_CHECKPOINT_PATH, instance_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_local.training.job_network import HostPlace

BASE = "/opt/ml"
_MOST_FAILURE_BYTES = 64 * 1024
MOST_UNSAVED_FILES = 20
_BASE_IN_TEXT = re.compile(r"(?<![\w/.-])/opt/ml(?![\w.-])")


_READ_ONLY = 0o444
_FAILED = "ClientError: Data download failed:"


@dataclass(frozen=True)
class OptMl:
    """One host's `/opt/ml`, at `root` on this machine."""

    root: Path

    @property
    def configuration(self) -> Path:
        """`/opt/ml/input/config`."""
        return self.root / "input" / "config"

    @property
    def model(self) -> Path:
        """`/opt/ml/model`."""
        return self.root / "model"

    @property
    def output_data(self) -> Path:
        """`/opt/ml/output/data`."""
        return self.root / "output" / "data"

    def channel(self, name: str) -> Path:
        """`/opt/ml/input/data/<name>`."""
        return self.root / "input" / "data" / name

    def at(self, path: str) -> Path:
        """Return the place on this machine of a path below `/opt/ml`."""
        return self.root / path.removeprefix(BASE).strip("/")

    def written_beside_source(self, *, since: float) -> tuple[str, ...]:
        """Return files that a script wrote in the directory of its source, at most 20.

        The files of an unpacked archive are older than the job. Of a checkout nothing is known.

        Args:
            since: The start of the process, in epoch seconds.
        """
        source, found = self.root / "source", list[str]()
        if (source / ".git").exists():
            return ()
        for folder, folders, names in os.walk(source):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = Path(folder) / name
                if not path.is_symlink() and path.stat().st_mtime >= since:
                    found.append(path.relative_to(source).as_posix())
            if len(found) >= MOST_UNSAVED_FILES:
                break
        return tuple(found[:MOST_UNSAVED_FILES])

    def failure_text(self) -> str:
        """Return the text that the job wrote to `/opt/ml/output/failure`. Empty when it wrote none."""
        try:
            written = read_beginning(self.root / "output" / "failure", most_bytes=_MOST_FAILURE_BYTES)
        except OSError:
            return ""
        return written.decode("utf-8", errors="replace")

    def lay_out(self, request: dict[str, Any], place: HostPlace) -> None:
        """Make the folders and write the configuration files for a CreateTrainingJob request.

        Args:
            request: The request.
            place: The place of the host among the job's.
        """
        for folder in (self.configuration, self.root / "input" / "data", self.model, self.output_data):
            folder.mkdir(parents=True, exist_ok=True)
        files: dict[str, Any] = {
            "hyperparameters": request.get("HyperParameters", {}),
            "inputdataconfig": _input_data_configuration(request),
            "resourceconfig": _resource_configuration(request, place),
        }
        if checkpoints := request.get("CheckpointConfig"):
            files["checkpointconfig"] = {"LocalPath": DEFAULT_CHECKPOINT_PATH} | checkpoints
            self.at(files["checkpointconfig"]["LocalPath"]).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (self.configuration / f"{name}.json").write_text(json.dumps(content))


def relocate(text: str, root: Path) -> str:
    """Return the text with `/opt/ml` replaced by where it is on this machine, wherever it begins a path."""
    return _BASE_IN_TEXT.sub(lambda _: str(root), text)


def _input_data_configuration(request: dict[str, Any]) -> dict[str, Any]:
    default_mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    return {
        channel["ChannelName"]: {
            "TrainingInputMode": channel.get("InputMode", default_mode),
            "S3DistributionType": channel["DataSource"]
            .get("S3DataSource", {})
            .get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        | ({"ContentType": channel["ContentType"]} if "ContentType" in channel else {})
        for channel in request.get("InputDataConfig", [])
    }


def _resource_configuration(request: dict[str, Any], place: HostPlace) -> dict[str, Any]:
    kind = instance_type(request)
    group = "homogeneousCluster"
    hosts = list(place.names)
    return {
        "current_host": place.name,
        "current_instance_type": kind,
        "current_group_name": group,
        "hosts": hosts,
        "instance_groups": [{"instance_group_name": group, "instance_type": kind, "hosts": hosts}],
        "network_interface_name": place.interface,
    }


def download_channels(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl, place: HostPlace) -> Iterator[Path]:
    """Copy every channel, and yield each file as it is there, so that the caller may stop in between.

    A host gets all objects of a channel, or its share of them where the channel is divided by key.

    Raises:
        JobFailedError: A channel's objects cannot be read, cannot be files, or there are none.
    """
    default_mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    for channel in request.get("InputDataConfig", []):
        folder = opt_ml.channel(channel["ChannelName"])
        folder.mkdir(parents=True, exist_ok=True)
        source = channel["DataSource"].get("S3DataSource")
        if source is None:
            continue  # A file system, which is mounted when the host starts.
        uri = source["S3Uri"]
        read_only = channel.get("InputMode", default_mode) == "FastFile"
        prefix = S3Location.parse(uri)
        divided = source.get("S3DataDistributionType") == "ShardedByS3Key"
        first, step = (place.number - 1, len(place.names)) if divided else (0, 1)
        try:
            files = channel_files(store.list_objects(prefix), bucket=prefix.bucket, prefix=prefix.key)
            for found, path in itertools.islice(files, first, None, step):
                target = folder / path
                if target.exists():
                    raise JobFailedError(f"{_FAILED} {found.key}: this disk takes its name for that of another key")
                store.download(S3Location(prefix.bucket, found.key), target)
                if read_only:
                    target.chmod(_READ_ONLY)
                yield target
        except ClientError as error:
            raise JobFailedError(f"{_FAILED} {uri}: {error.response['Error']['Message']}") from error
        except (ChannelDataError, OSError) as error:
            raise JobFailedError(f"{_FAILED} {error}") from error


def no_objects_message(source: dict[str, Any], request: dict[str, Any]) -> str:
    """Return SageMaker's message about a channel with an empty prefix.

    Args:
        source: The channel's S3DataSource.
        request: The CreateTrainingJob request.
    """
    bucket = S3Location.parse(source["S3Uri"]).bucket
    return (
        f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please ensure that '
        f"the bucket exists in the selected region, that objects exist under that S3 prefix, and that the role "
        f'"{request["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}".'
    )
