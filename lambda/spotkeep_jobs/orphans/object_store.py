"""What the checkpoint bucket holds of runs: the only module of orphans that calls S3's client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spotkeep_fleet.run_prefixes import PREFIXES, of_team
from spotkeep_jobs.orphans.decisions import Stored, named_prefixes


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A prefix below which something is stored for a run, a sweep or a schedule.

    Attributes:
        run: Its id.
        prefix: What the keys begin with, `sources/<run>/`: of an isolated team's below the team's own.
    """

    run: str
    prefix: str


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
        """List the prefixes of runs below which anything is stored."""
        for prefix in (of_team(prefix, team) for team in self._teams for prefix in PREFIXES):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                for found in page.get("CommonPrefixes", ()):
                    key = str(found["Prefix"])
                    yield StoredRun(run=key.removeprefix(prefix).rstrip("/"), prefix=key)

    def stored(self, run: StoredRun) -> Stored | None:
        """Add up what is stored below a prefix; None when there is nothing."""
        total, objects, newest_at = 0, 0, None
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=run.prefix)
        for page in pages:
            for found in page.get("Contents", ()):
                total += int(found["Size"])
                objects += 1
                newest_at = found["LastModified"] if newest_at is None else max(newest_at, found["LastModified"])
        return None if newest_at is None else Stored(stored_bytes=total, objects=objects, newest_at=newest_at)

    def uri(self, run: StoredRun) -> str:
        """Return where they are: `s3://bucket/runs/<run>/`."""
        return f"s3://{self._bucket}/{run.prefix}"

    def named_in(self, text: str) -> Iterator[str]:
        """Yield the prefixes of runs that a text names addresses below, as far as it names them."""
        return named_prefixes(text, bucket=self._bucket)
