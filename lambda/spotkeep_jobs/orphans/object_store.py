"""What the checkpoint bucket holds of runs: the only module of orphans that calls S3's client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spotkeep_fleet.run_prefixes import run_prefix, runs_prefix


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run that something is stored for.

    Attributes:
        run: Its id.
        team: The isolated team below whose prefix it is; None for any other run.
    """

    run: str
    team: str | None = None


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored below one run's prefix.

    Attributes:
        stored_bytes: The bytes of the current versions.
        objects: How many there are.
        newest_at: When the newest was written.
    """

    stored_bytes: int
    objects: int
    newest_at: datetime


class RunObjects:
    """Lists objects by run."""

    def __init__(self, client: Any, *, bucket: str, isolated_teams: Sequence[str] = ()) -> None:
        """Bind the bucket.

        Args:
            client: A boto3 client of S3.
            bucket: The checkpoint bucket.
            isolated_teams: Those whose runs are listed besides all others.
        """
        self._client = client
        self._bucket = bucket
        self._teams = (None, *isolated_teams)

    def runs(self) -> Iterator[StoredRun]:
        """List the runs that anything is stored for."""
        for team in self._teams:
            prefix = runs_prefix(team)
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                for found in page.get("CommonPrefixes", ()):
                    yield StoredRun(run=str(found["Prefix"]).removeprefix(prefix).rstrip("/"), team=team)

    def stored(self, run: StoredRun) -> Stored | None:
        """Add up what is stored for a run; None when there is nothing."""
        total, objects, newest_at = 0, 0, None
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=run_prefix(run.run, team=run.team)
        )
        for page in pages:
            for found in page.get("Contents", ()):
                total += int(found["Size"])
                objects += 1
                newest_at = found["LastModified"] if newest_at is None else max(newest_at, found["LastModified"])
        return None if newest_at is None else Stored(stored_bytes=total, objects=objects, newest_at=newest_at)

    def uri(self, run: StoredRun) -> str:
        """Return where a run's objects are: `s3://bucket/runs/<run>/`, or below its team's prefix."""
        return f"s3://{self._bucket}/{run_prefix(run.run, team=run.team)}"
