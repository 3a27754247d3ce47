"""CloudWatch Logs in memory: the logs of training jobs, spelled as boto3's client."""

from __future__ import annotations

import json
import re
from typing import Any

from spotkeep_jobs.progress.job_events import MARKER
from tests.models.faults import Called, Model


class Logs(Model):
    """The log group of training jobs, in which every job has one stream.

    Attributes:
        lines: What each job printed, by its name. A line of an event that names no launch gets the id of the one that
            is asked for, as a job prints it.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.lines: dict[str, list[str]] = {}

    def describe_log_streams(self, *, logGroupName: str, logStreamNamePrefix: str) -> Any:  # noqa: N803
        return self._call("DescribeLogStreams", lambda: self._streams(logStreamNamePrefix))

    def filter_log_events(
        self,
        *,
        logGroupName: str,  # noqa: N803
        logStreamNames: list[str],  # noqa: N803
        filterPattern: str,  # noqa: N803
        startTime: int = 0,  # noqa: N803
    ) -> Any:
        return self._call("FilterLogEvents", lambda: self._events(logStreamNames, filterPattern, startTime))

    def _streams(self, prefix: str) -> dict[str, Any]:
        found = [f"{job_name}/algo-1-1" for job_name in self.lines]
        return {"logStreams": [{"logStreamName": name} for name in found if name.startswith(prefix)]}

    def _events(self, streams: list[str], pattern: str, start: int) -> dict[str, Any]:
        launch = json.loads(pattern)
        printed = [line for name in streams for line in self.lines[name.partition("/")[0]]]
        marked = [
            line if '"launch"' in line else line.replace('{"event"', f'{{"launch": "{launch}", "event"', 1)
            for line in printed
        ]
        found = [line for line in marked if launch in line and _milliseconds(line) >= start]
        return {"events": [{"message": line} for line in found]}


def _milliseconds(line: str) -> float:
    """Return when a line was printed, by the first time of its event; one without a time was printed at any."""
    found = re.search(rf'{re.escape(MARKER)}.*?"time": ?(-?[0-9.]+(?:e[+-]?[0-9]+)?)', line)
    return float("inf") if found is None else float(found[1]) * 1_000
