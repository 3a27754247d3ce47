"""The objects below one prefix of S3, to be listed and fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_cli.aws_calls import translated_aws_errors
from spotkeep_cli.deployment import StoredObject, StoredVersion
from spotkeep_fleet.run_prefixes import RUNS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spotkeep_cli.connection_options import ConnectionOptions


class S3Objects:
    """Objects in S3; see `deployment.StoredObjects`.

    Args:
        client: Of S3.
        uri: `s3://bucket/prefix/`.
        options: How the user named the deployment, for hints.
    """

    def __init__(self, client: Any, *, uri: str, options: ConnectionOptions) -> None:
        self._client = client
        self._options = options
        self._bucket, _, self._prefix = uri.removeprefix("s3://").partition("/")

    def list(self) -> list[StoredObject]:
        """Everything below the prefix.

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
        """The first bytes of one object.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        with translated_aws_errors(f"reading {key}", options=self._options):
            body = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"]
            content: bytes = body.read(max_bytes)
            return content

    def download(self, key: str, path: Path, *, on_bytes: Callable[[int], None]) -> None:
        """Put one object into a new file.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        with translated_aws_errors(f"downloading {key}", options=self._options):
            self._client.download_file(self._bucket, self._prefix + key, str(path), Callback=on_bytes)


def versions_by_run(client: Any, *, bucket: str) -> Iterator[StoredVersion]:
    """Every version below `runs/`, a thousand a call; what isolated teams store is not among them.

    Args:
        client: Of S3.
        bucket: The checkpoint bucket.
    """
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=RUNS_PREFIX):
        for found in page.get("Versions", ()):
            run = found["Key"].removeprefix(RUNS_PREFIX).partition("/")[0]
            yield StoredVersion(run=run, size=found["Size"], written_at=found["LastModified"])
