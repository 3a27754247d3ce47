"""CloudWatch Logs in memory: the logs of training jobs, spelled as boto3's client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from spotkeep_jobs.progress.job_events import MARKER
from tests.models.faults import Called, Model


class _ResourceNotFoundError(Exception):
    """There is no such log group yet."""


class Logs(Model):
    """The log group of training jobs.

    Attributes:
        lines: What each job printed, by its name, in the one stream that most tests need. A line of an event that names
            no launch gets the id of the one that is asked for, as a job prints it.
        streams: Further streams by their names: the milliseconds at which each line was written, and the line.
        page: How many items an answer holds; None for all.
        queries: What was asked of FilterLogEvents.
        exceptions: As boto3's clients have them.
    """

    exceptions = SimpleNamespace(ResourceNotFoundException=_ResourceNotFoundError)

    def __init__(self, called: Called | None = None, *, page: int | None = None) -> None:
        super().__init__(called)
        self.lines: dict[str, list[str]] = {}
        self.streams: dict[str, list[tuple[float, str]]] = {}
        self.page = page
        self.queries: list[dict[str, Any]] = []

    def describe_log_streams(self, **query: Any) -> Any:
        return self._call(
            "DescribeLogStreams", lambda: self._paged(query, self._named(query["logStreamNamePrefix"]), "logStreams")
        )

    def filter_log_events(self, **query: Any) -> Any:
        self.queries.append(query)
        return self._call("FilterLogEvents", lambda: self._paged(query, self._events(query), "events"))

    def get_log_events(self, **query: Any) -> Any:
        lines, limit = self._all()[query["logStreamName"]], query.get("limit", 10_000)
        most = min(limit, self.page or limit)
        position = int(query.get("nextToken", "f/0").removeprefix("f/"))
        start = position if query["startFromHead"] else max(0, len(lines) - most)
        written = lines[start : start + most]
        return self._call(
            "GetLogEvents",
            lambda: {
                "events": [{"timestamp": time, "message": line} for time, line in written],
                "nextForwardToken": f"f/{start + len(written)}",
            },
        )

    def get_paginator(self, operation: str) -> Any:
        return SimpleNamespace(paginate=lambda **query: self._pages(getattr(self, operation), query))

    def _pages(self, ask: Any, query: dict[str, Any]) -> Iterator[Any]:
        if not self._all():
            raise self.exceptions.ResourceNotFoundException
        token: dict[str, Any] = {}
        while True:
            page = ask(**query, **token)
            yield page
            if "nextToken" not in page:
                return
            token = {"nextToken": page["nextToken"]}

    def _all(self) -> dict[str, list[tuple[float, str]]]:
        printed = {
            f"{job}/algo-1-1": [(_milliseconds(line), line) for line in said] for job, said in self.lines.items()
        }
        return printed | self.streams

    def _named(self, prefix: str) -> list[dict[str, str]]:
        return [{"logStreamName": name} for name in self._all() if name.startswith(prefix)]

    def _events(self, query: dict[str, Any]) -> list[dict[str, str]]:
        launch = json.loads(query["filterPattern"])
        streams = self._all()
        written = [entry for name in query["logStreamNames"] for entry in streams[name]]
        marked = [
            (time, line if '"launch"' in line else line.replace('{"event"', f'{{"launch": "{launch}", "event"', 1))
            for time, line in written
        ]
        return [{"message": line} for time, line in marked if launch in line and time >= query.get("startTime", 0)]

    def _paged(self, query: dict[str, Any], items: list[Any], key: str) -> dict[str, Any]:
        first = int(query.get("nextToken", 0))
        following = len(items) if self.page is None else first + self.page
        return {key: items[first:following]} | ({"nextToken": str(following)} if following < len(items) else {})


def _milliseconds(line: str) -> float:
    """Return when a line was printed, by the first time of its event; one without a time was printed at any."""
    found = re.search(rf'{re.escape(MARKER)}.*?"time": ?(-?[0-9.]+(?:e[+-]?[0-9]+)?)', line)
    return float("inf") if found is None else float(found[1]) * 1_000
