"""A job's input data: objects in S3 become files below `/opt/ml/input/data/<channel>`.

FastFile shows the same files as File does, made read-only; nothing is streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spotkeep_fleet.channel_files import channel_files
from spotkeep_fleet.errors import ChannelDataError
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.object_store import ObjectStore, S3Location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spotkeep_local.training.opt_ml import OptMl

_READ_ONLY = 0o444
_FAILED = "ClientError: Data download failed:"


def download_channels(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl) -> Iterator[Path]:
    """Copy every channel, and yield each file as it is there, so that the caller may stop in between.

    Raises:
        JobFailedError: A channel's objects cannot be read, cannot be files, or there are none.
    """
    default_mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    for channel in request.get("InputDataConfig", []):
        folder = opt_ml.channel(channel["ChannelName"])
        folder.mkdir(parents=True, exist_ok=True)
        uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
        read_only = channel.get("InputMode", default_mode) == "FastFile"
        prefix = S3Location.parse(uri)
        try:
            for found, path in channel_files(store.list_objects(prefix), bucket=prefix.bucket, prefix=prefix.key):
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
    """Return what SageMaker says of a channel whose prefix is empty.

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
