"""The jobs' logs in CloudWatch. No other module reads them.

SageMaker writes every training job of an account into one log group. Each host and each start has a stream
`<job>/algo-1-<epoch>`.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/logging-cloudwatch.html
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.progress.job_log import Extent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_logs import CloudWatchLogsClient

LOG_GROUP: Final = "/aws/sagemaker/TrainingJobs"

# FilterLogEvents takes at most 100 stream names, and answers at most 10,000 events or 1 MB at once.
_STREAMS_AT_ONCE: Final = 100
_MAX_STREAMS: Final = 500
_MAX_PAGES: Final = 60
_MAX_EMPTY_PAGES: Final = 600
_MAX_SECONDS: Final = 20.0
_CLOCKS_DIFFER_SECONDS: Final = 60


class JobLogs:
    """The logs of one log group."""

    def __init__(
        self,
        client: CloudWatchLogsClient,
        *,
        group: str = LOG_GROUP,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the log group.

        Args:
            client: A CloudWatch Logs client.
            group: SageMaker's log group, or that of the deployment's instances.
            elapsed: Seconds since any fixed moment.
        """
        self._client = client
        self._group = group
        self._elapsed = elapsed

    def read(
        self, job_names: Sequence[str], take: Callable[[str], None], /, *, launch: str, since: float | None = None
    ) -> Extent:
        """Read the messages of a job's first host that carry the id of its launch, in about the order of time.

        The reading is bounded by 60 pages of 1 MB, 500 restarts and 20 seconds, for listing and reading. A longer log
        is read in part. A page is forgotten before the next is asked for.

        Args:
            job_names: The training job, or those that AWS Batch made for one attempt in a queue, first to last.
            take: Takes a message.
            launch: The id of the launch. Messages of others in the same streams are left out.
            since: Epoch seconds, or None to read everything. Messages from well before are left out.

        Returns:
            The part of the log that was read. An unreadable log is no error.
        """
        try:
            return self._give(take, job_names, launch=launch, since=since)
        except (ClientError, BotoCoreError) as error:
            return Extent.WHOLE if _says_no_such_log(error) else Extent.UNREAD

    def _give(
        self, take: Callable[[str], None], job_names: Sequence[str], *, launch: str, since: float | None
    ) -> Extent:
        until = self._elapsed() + _MAX_SECONDS
        streams, all_listed = self._streams(job_names, until=until)
        pages_left, empty_pages_left = _MAX_PAGES, _MAX_EMPTY_PAGES
        for first in range(0, len(streams), _STREAMS_AT_ONCE):
            query: dict[str, Any] = {
                "logGroupName": self._group,
                "logStreamNames": streams[first : first + _STREAMS_AT_ONCE],
                # CloudWatch Logs leaves out all other lines, however many there are.
                "filterPattern": f'"{launch}"',
            }
            if since is not None:
                query["startTime"] = max(0, math.floor((since - _CLOCKS_DIFFER_SECONDS) * 1_000))
            while True:
                if not pages_left or not empty_pages_left or self._elapsed() >= until:
                    return Extent.CUT
                page = self._client.filter_log_events(**query)
                if page["events"]:
                    pages_left -= 1
                else:
                    empty_pages_left -= 1
                for event in page["events"]:
                    take(event.get("message", ""))
                token = page.get("nextToken")
                if token is None or token == query.get("nextToken"):
                    break
                query["nextToken"] = token
        return Extent.WHOLE if all_listed else Extent.CUT

    def _streams(self, job_names: Sequence[str], *, until: float) -> tuple[list[str], bool]:
        """Return the streams of jobs, and False when these are not all.

        There may be too many, or listing takes too long.
        """
        streams: list[str] = []
        listed = 0
        for name in job_names:
            query: dict[str, Any] = {"logGroupName": self._group, "logStreamNamePrefix": f"{name}/algo-1-"}
            while True:
                if len(streams) >= _MAX_STREAMS or (listed and self._elapsed() >= until):
                    return streams[:_MAX_STREAMS], False
                page = self._client.describe_log_streams(**query)
                listed += 1
                streams += [stream["logStreamName"] for stream in page["logStreams"]]
                if page.get("nextToken") is None:
                    break
                query["nextToken"] = page["nextToken"]
        return streams[:_MAX_STREAMS], len(streams) < _MAX_STREAMS


def _says_no_such_log(error: ClientError | BotoCoreError) -> bool:
    """Say whether there is no such log.

    A job that never trained has none. Before an account's first job there is no log group.
    """
    return isinstance(error, ClientError) and error.response["Error"]["Code"] == "ResourceNotFoundException"
