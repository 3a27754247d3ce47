"""The objects below one prefix of S3, to be listed and fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_fleet.run_prefixes import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from spotkeep_cli.aws.connection_options import ConnectionOptions


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object in S3.

    Attributes:
        key: Its key, without the prefix that was asked for.
        size: Its length in bytes.
    """

    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class StoredVersion:
    """One version of an object.

    Attributes:
        run: The run it is stored for.
        size: Its length in bytes.
        written_at: The time of its writing.
    """

    run: str
    size: int
    written_at: datetime


class StoredObjects:
    """The objects below one prefix.

    Args:
        client: A boto3 client of S3.
        uri: `s3://bucket/prefix/`.
        options: The user's options for the deployment, for hints.
    """

    def __init__(self, client: Any, *, uri: str, options: ConnectionOptions) -> None:
        self._client = client
        self._options = options
        self._bucket, _, self._prefix = uri.removeprefix("s3://").partition("/")

    def list(self) -> list[StoredObject]:
        """Return everything below the prefix.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        with translated_aws_errors(f"listing s3://{self._bucket}/{self._prefix}", options=self._options):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            return [
                StoredObject(key=found["Key"].removeprefix(self._prefix), size=found["Size"])
                for page in pages
                for found in page.get("Contents", [])
            ]

    def read(self, key: str, *, max_bytes: int) -> bytes:
        """Return the first bytes of one object.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        with translated_aws_errors(f"reading {key}", options=self._options):
            body = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"]
            content: bytes = body.read(max_bytes)
            return content

    def download(self, key: str, path: Path, *, on_bytes: Callable[[int], None]) -> None:
        """Put one object into a new file. Call `on_bytes` with the number of further bytes, from any thread.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        with translated_aws_errors(f"downloading {key}", options=self._options):
            self._client.download_file(self._bucket, self._prefix + key, str(path), Callback=on_bytes)


def versions_by_run(client: Any, *, bucket: str) -> Iterator[StoredVersion]:
    """Yield every stored version of the runs, a thousand a call. The storage of isolated teams is not among them.

    Args:
        client: A boto3 client of S3.
        bucket: The checkpoint bucket.
    """
    for prefix in PREFIXES:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
            for found in page.get("Versions", ()):
                run = found["Key"].removeprefix(prefix).partition("/")[0]
                yield StoredVersion(run=run, size=found["Size"], written_at=found["LastModified"])
