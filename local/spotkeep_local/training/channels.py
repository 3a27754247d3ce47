"""A job's input data: objects in S3 become files below `/opt/ml/input/data/<channel>`.

FastFile shows the same files as File does, made read-only; nothing is streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.object_store import ObjectStore, S3Location, file_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spotkeep_local.training.opt_ml import OptMl

_READ_ONLY = 0o444


def download_channels(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl) -> Iterator[Path]:
    """Copy every channel, and yield each file as it is there, so that the caller may stop in between.

    Raises:
        JobFailedError: A channel's objects cannot be read, or there are none.
    """
    default_mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    for channel in request.get("InputDataConfig", []):
        folder = opt_ml.channel(channel["ChannelName"])
        folder.mkdir(parents=True, exist_ok=True)
        source = channel["DataSource"]["S3DataSource"]
        read_only = channel.get("InputMode", default_mode) == "FastFile"
        try:
            found = False
            prefix = S3Location.parse(source["S3Uri"])
            for key in store.list_keys(prefix):
                found = True
                target = file_in(folder, relative_path(key, prefix=prefix.key))
                store.download(S3Location(prefix.bucket, key), target)
                if read_only:
                    target.chmod(_READ_ONLY)
                yield target
        except ClientError as error:
            raise JobFailedError(
                f"ClientError: Data download failed: {source['S3Uri']}: {error.response['Error']['Message']}"
            ) from error
        if not found:
            raise JobFailedError(f"ClientError: Data download failed:{no_objects_message(source, request)}")


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


def relative_path(key: str, *, prefix: str) -> str:
    """Return where an object goes in its channel's folder.

    Args:
        key: The object's key.
        prefix: The channel's: a folder, a whole key, or the beginning of several.
    """
    folder = prefix if prefix.endswith("/") else f"{prefix}/"
    if prefix and key.startswith(folder):
        return key[len(folder) :]
    return key[prefix.rfind("/") + 1 :]
