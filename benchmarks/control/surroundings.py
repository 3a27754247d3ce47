"""A model of what a look for leftovers sees beside training jobs: the schedules of a group, and a bucket's objects.

Spelled as boto3's clients of EventBridge Scheduler and of S3, as far as the functions know them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.control.dynamodb import client_error
from spotkeep_fleet.run_prefixes import run_prefix

BUCKET: Final = "checkpoints"
_KEYS_A_PAGE: Final = 1_000

Called = Callable[[str, Callable[[], Any]], Any]
"""Makes one AWS call: its operation, and what it does."""
Removing = Callable[[str, str], None]
"""Told of what is removed, and its name, before it is."""


class Schedules:
    """One-time schedules, which delete themselves when their time has come.

    Attributes:
        made: What was made and has not fired, by name: when it fires, its input, when it was made.
    """

    def __init__(self, called: Called, *, removing: Removing, now: Callable[[], datetime]) -> None:
        self._called = called
        self._removing = removing
        self._now = now
        self.made: dict[str, tuple[datetime, str, datetime]] = {}

    def create_schedule(self, **schedule: Any) -> None:
        self._called("CreateSchedule", lambda: self._create(schedule))

    def list_schedules(self, *, GroupName: str, MaxResults: int, NextToken: str = "0") -> Any:  # noqa: N803
        return self._called("ListSchedules", lambda: self._page(int(NextToken), MaxResults))

    def get_schedule(self, *, GroupName: str, Name: str) -> Any:  # noqa: N803
        return self._called("GetSchedule", lambda: {"Target": {"Input": self._found(Name)[1]}})

    def delete_schedule(self, *, GroupName: str, Name: str) -> None:  # noqa: N803
        def delete() -> None:
            self._removing("schedule", self._found(Name)[1])
            del self.made[Name]

        self._called("DeleteSchedule", delete)

    def _create(self, schedule: dict[str, Any]) -> None:
        self._fire()
        if schedule["Name"] in self.made:
            raise client_error("CreateSchedule", "ConflictException")
        at = datetime.fromisoformat(schedule["ScheduleExpression"].removeprefix("at(").rstrip(")")).replace(tzinfo=UTC)
        self.made[schedule["Name"]] = (at, schedule["Target"]["Input"], self._now())

    def _page(self, first: int, size: int) -> dict[str, Any]:
        self._fire()
        listed = [{"Name": name, "CreationDate": made_at} for name, (_, _, made_at) in sorted(self.made.items())]
        page: dict[str, Any] = {"Schedules": listed[first : first + size]}
        return page | ({"NextToken": str(first + size)} if first + size < len(listed) else {})

    def _found(self, name: str) -> tuple[datetime, str, datetime]:
        self._fire()
        if name not in self.made:
            raise client_error("GetSchedule", "ResourceNotFoundException")
        return self.made[name]

    def _fire(self) -> None:
        """Who is invoked by it, and when, is the story's choice."""
        now = self._now()
        self.made = {name: each for name, each in self.made.items() if each[0] > now}


class Objects:
    """The checkpoint bucket.

    Attributes:
        written: When each object was written, by key.
    """

    def __init__(self, called: Called, *, removing: Removing) -> None:
        self._called = called
        self._removing = removing
        self.written: dict[str, datetime] = {}

    def below(self, run: str) -> list[str]:
        """The keys of what is stored for a run."""
        return [key for key in self.written if key.startswith(run_prefix(run))]

    def get_paginator(self, operation: str) -> Objects:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str, Delimiter: str | None = None) -> Iterator[Any]:  # noqa: N803
        for first in itertools.count(0, _KEYS_A_PAGE):
            page = self._called("ListObjectsV2", functools.partial(self._page, Prefix, Delimiter, first))
            yield page
            if not page["IsTruncated"]:
                return

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        keys = [each["Key"] for each in Delete["Objects"]]

        def delete() -> dict[str, Any]:
            for key in keys:
                self._removing("object", key)
                self.written.pop(key, None)
            return {}

        answer: dict[str, Any] = self._called("DeleteObjects", delete)
        return answer

    def _page(self, prefix: str, delimiter: str | None, first: int) -> dict[str, Any]:
        keys = sorted(key for key in self.written if key.startswith(prefix))
        if delimiter is not None:
            folders = sorted({key[: key.index(delimiter, len(prefix)) + 1] for key in keys})
            found: list[dict[str, Any]] = [{"Prefix": folder} for folder in folders]
            return {
                "CommonPrefixes": found[first : first + _KEYS_A_PAGE],
                "IsTruncated": first + _KEYS_A_PAGE < len(found),
            }
        contents = [{"Key": key, "Size": 1_000_000, "LastModified": self.written[key]} for key in keys]
        return {
            "Contents": contents[first : first + _KEYS_A_PAGE],
            "IsTruncated": first + _KEYS_A_PAGE < len(contents),
        }
