"""S3 as the training service uses it to list, read, write and delete. The one module here that calls S3."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from botocore.exceptions import ClientError

from spotkeep_local.training.errors import JobFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class S3Location:
    """A bucket and a key or key prefix."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> S3Location:
        """Read `s3://bucket/key`.

        Raises:
            ValueError: It is something else.
        """
        scheme, separator, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme != "s3" or not separator or not bucket:
            raise ValueError(f"must be an S3 URI like s3://bucket/prefix, found {uri!r}")
        return cls(bucket, key)

    def child(self, relative: str) -> S3Location:
        """Return the key `relative` below this prefix."""
        return S3Location(self.bucket, f"{self.key.rstrip('/')}/{relative}".lstrip("/"))

    @property
    def uri(self) -> str:
        """The location as `s3://bucket/key`."""
        return f"s3://{self.bucket}/{self.key}"


class ListedObject(NamedTuple):
    """An object as a listing shows it, with its key and its size in bytes."""

    key: str
    size: int


def file_in(folder: Path, relative: str) -> Path:
    """Return the path of the rest of a key in a folder.

    Raises:
        JobFailedError: It points out of the folder: S3 takes any key, a machine must not.
    """
    if ".." in relative.split("/") or relative.startswith("/"):
        raise JobFailedError(f"ClientError: Data download failed: the key {relative!r} points out of its folder")
    return folder / relative


class ObjectStore:
    """Objects by location. Safe to use from several threads.

    Args:
        client: A boto3 S3 client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def list_objects(self, prefix: S3Location) -> Iterator[ListedObject]:
        """Yield every object that has the prefix at the beginning of its key."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=prefix.key)
        for page in pages:
            for entry in page.get("Contents", []):
                yield ListedObject(entry["Key"], entry["Size"])

    def list_keys(self, prefix: S3Location) -> Iterator[str]:
        """Yield every key that begins with the prefix, folder placeholders (keys that end in `/`) left out."""
        return (found.key for found in self.list_objects(prefix) if not found.key.endswith("/"))

    def has_any(self, prefix: S3Location) -> bool:
        """Return whether anything is there. A bucket that does not exist has nothing."""
        try:
            return next(self.list_keys(prefix), None) is not None
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchBucket", "AccessDenied"):
                return False
            raise

    def download(self, location: S3Location, target: Path) -> None:
        """Write one object to a file. Make the folders on the way."""
        target.parent.mkdir(parents=True, exist_ok=True)
        body = self._client.get_object(Bucket=location.bucket, Key=location.key)["Body"]
        with target.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)

    def upload(self, body: BinaryIO, location: S3Location) -> None:
        """Write one object. Readers see the old one or the whole new one."""
        self._client.put_object(Bucket=location.bucket, Key=location.key, Body=body)

    def delete(self, location: S3Location) -> None:
        """Delete one object. Nothing happens when it is not there."""
        self._client.delete_object(Bucket=location.bucket, Key=location.key)
