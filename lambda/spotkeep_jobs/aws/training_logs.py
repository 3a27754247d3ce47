"""The jobs' logs in CloudWatch: the only module that reads them.

SageMaker writes every training job of an account into one log group, a stream for each host and each start:
`<job>/algo-1-<epoch>`. Source: https://docs.aws.amazon.com/sagemaker/latest/dg/logging-cloudwatch.html
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.facts.job_events import MARKER, JobLog, parse_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_logs import CloudWatchLogsClient

LOG_GROUP: Final = "/aws/sagemaker/TrainingJobs"

# FilterLogEvents takes at most 100 stream names, and answers at most 10,000 events or 1 MB at once.
_STREAMS_AT_ONCE: Final = 100
_MAX_STREAMS: Final = 500
_MAX_PAGES: Final = 60
_CLOCKS_DIFFER_SECONDS: Final = 60


class JobLogs(Protocol):
    """The seam: what Spotkeep asks of the logs."""

    def read(self, job_name: str, /, *, since: float | None = None) -> JobLog:
        """The events that a job wrote into its log; an unreadable log is an incomplete one, not an error.

        Args:
            job_name: The training job.
            since: Epoch seconds; what was logged well before is left out. None: everything.
        """
        ...


class CloudWatchJobLogs:
    """The seam, on a boto3 client."""

    def __init__(self, client: CloudWatchLogsClient, *, group: str = LOG_GROUP) -> None:
        """Bind the log group.

        Args:
            client: A CloudWatch Logs client.
            group: The log group; SageMaker's, or that of the deployment's instances.
        """
        self._client = client
        self._group = group

    def read(self, job_name: str, /, *, since: float | None = None) -> JobLog:
        """The events of a job's first host; see `JobLogs.read`.

        Bounded: a log beyond 60 pages (some 60 MB of event lines) or 500 restarts is read in part.
        """
        messages: list[str] = []
        try:
            complete = self._read_into(messages, job_name, since=since)
        except (ClientError, BotoCoreError) as error:
            if _says_no_such_log(error):
                return JobLog()
            complete = False
        return parse_log(messages, complete=complete)

    def _read_into(self, messages: list[str], job_name: str, *, since: float | None) -> bool:
        streams = list(self._streams(f"{job_name}/algo-1-"))
        pages_left = _MAX_PAGES
        for first in range(0, len(streams), _STREAMS_AT_ONCE):
            query: dict[str, Any] = {
                "logGroupName": self._group,
                "logStreamNames": streams[first : first + _STREAMS_AT_ONCE],
                "filterPattern": f'"{MARKER}"',
            }
            if since is not None:
                query["startTime"] = max(0, math.floor((since - _CLOCKS_DIFFER_SECONDS) * 1_000))
            while True:
                if pages_left == 0:
                    return False
                pages_left -= 1
                page = self._client.filter_log_events(**query)
                messages.extend(event.get("message", "") for event in page["events"])
                token = page.get("nextToken")
                if token is None or token == query.get("nextToken"):
                    break
                query["nextToken"] = token
        return len(streams) < _MAX_STREAMS

    def _streams(self, prefix: str) -> Iterator[str]:
        found = 0
        query: dict[str, Any] = {"logGroupName": self._group, "logStreamNamePrefix": prefix}
        while True:
            page = self._client.describe_log_streams(**query)
            for stream in page["logStreams"]:
                yield stream["logStreamName"]
                found += 1
                if found == _MAX_STREAMS:
                    return
            if page.get("nextToken") is None:
                return
            query["nextToken"] = page["nextToken"]


def _says_no_such_log(error: ClientError | BotoCoreError) -> bool:
    """A job that never trained has no log; the first job of an account finds no log group either."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"] == "ResourceNotFoundException"
