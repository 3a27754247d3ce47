"""What lies below `runs/` of the checkpoint bucket: the only module of leftovers that calls S3's client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from spotkeep_jobs.errors import SpotkeepJobsError

RUNS_PREFIX: Final = "runs/"


class ObjectsNotRemovedError(SpotkeepJobsError):
    """S3 kept some of the objects it was to delete; the next look finds them again."""

    def __init__(self, *, uri: str, kept: int, reason: str) -> None:
        super().__init__(f"{kept} objects below {uri} could not be deleted: {reason}. The next look tries again")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored below one run's prefix.

    Attributes:
        stored_bytes: Of the current versions.
        objects: How many there are.
        newest_at: When the newest was written.
    """

    stored_bytes: int
    objects: int
    newest_at: datetime


class RunObjects(Protocol):
    """The seam: objects by run."""

    def runs(self) -> Iterator[str]:
        """The runs that anything is stored for."""
        ...

    def stored(self, run: str, /) -> Stored | None:
        """What is stored for a run; None when there is nothing."""
        ...

    def uri(self, run: str, /) -> str:
        """`s3://bucket/runs/<run>/`."""
        ...

    def remove(self, run: str, /) -> None:
        """Delete everything stored for a run. The bucket keeps the versions for some days.

        Raises:
            ObjectsNotRemovedError: S3 kept some of it.
        """
        ...


class S3RunObjects:
    """The seam, on a boto3 client of S3."""

    def __init__(self, client: Any, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def runs(self) -> Iterator[str]:
        """The runs that anything is stored for; see `RunObjects.runs`."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=RUNS_PREFIX, Delimiter="/"
        )
        for page in pages:
            for found in page.get("CommonPrefixes", ()):
                yield str(found["Prefix"]).removeprefix(RUNS_PREFIX).rstrip("/")

    def stored(self, run: str, /) -> Stored | None:
        """What is stored for a run; see `RunObjects.stored`."""
        total, objects, newest_at = 0, 0, None
        for page in self._pages(run):
            for found in page.get("Contents", ()):
                total += int(found["Size"])
                objects += 1
                newest_at = found["LastModified"] if newest_at is None else max(newest_at, found["LastModified"])
        return None if newest_at is None else Stored(stored_bytes=total, objects=objects, newest_at=newest_at)

    def uri(self, run: str, /) -> str:
        """Where a run's objects are; see `RunObjects.uri`."""
        return f"s3://{self._bucket}/{RUNS_PREFIX}{run}/"

    def remove(self, run: str, /) -> None:
        """Delete a run's objects; see `RunObjects.remove`."""
        for page in self._pages(run):
            keys = [{"Key": found["Key"]} for found in page.get("Contents", ())]
            if not keys:
                continue
            answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True})
            if errors := answer.get("Errors"):
                raise ObjectsNotRemovedError(
                    uri=self.uri(run), kept=len(errors), reason=str(errors[0].get("Message", "unknown"))
                )

    def _pages(self, run: str) -> Iterator[Any]:
        pages: Iterator[Any] = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{RUNS_PREFIX}{run}/"
        )
        return pages
