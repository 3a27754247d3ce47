"""The log of an attempt, as its hosts wrote it to CloudWatch Logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_jobs.progress.training_logs import LOG_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import LogStreamTypeDef, OutputLogEventTypeDef

    from spotkeep_cli.aws.connection_options import ConnectionOptions


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of a job's log.

    Attributes:
        time: The time at which CloudWatch Logs received it.
        stream: The host that wrote it (`algo-1`), or the instance, of a node that waits for others.
        text: The line without its end.
        host: The same as `stream` in a job of several hosts. Empty in a job of one.
    """

    time: datetime
    stream: str
    text: str
    host: str = ""


class AttemptLog:
    """The log of an attempt in CloudWatch Logs, stream by stream, read forward.

    A managed spot job that comes back on another instance may write a new stream. Each read lists the streams again.
    """

    def __init__(
        self,
        client: CloudWatchLogsClient,
        *,
        job_names: Sequence[str],
        options: ConnectionOptions,
        group: str = LOG_GROUP,
    ) -> None:
        self._client = client
        self._group = group
        self._job_names = list(job_names)
        self._options = options
        self._positions: dict[str, str] = {}
        self._newest_stream: str | None = None

    def also(self, job_name: str) -> None:
        """Read the log of another training job from now on.

        AWS Batch makes one job after another for a run in a queue.
        """
        if job_name not in self._job_names:
            self._job_names.append(job_name)

    def read(self) -> list[LogLine]:
        """Return the lines that came since the last read, in order of time. None when there are none (yet).

        Raises:
            NoConnectionError: CloudWatch Logs refused or could not be reached.
        """
        with translated_aws_errors(f"reading the log of {', '.join(self._job_names)}", options=self._options):
            lines = [line for stream in self._streams() for line in self._read_stream(stream)]
        return sorted(lines, key=lambda line: line.time)

    def last_lines(self, most: int = 100) -> list[LogLine]:
        """Return the last lines of the newest stream of the first host. None where there is no stream (yet).

        The first rank reports the steps, and is on the first host. The first time it makes two calls, and then one.

        Args:
            most: At most so many lines.

        Raises:
            NoConnectionError: CloudWatch Logs refused or could not be reached.
        """
        with translated_aws_errors(f"reading the log of {self._job_names[-1]}", options=self._options):
            try:
                if self._newest_stream is None:
                    self._newest_stream = self._find_newest_stream()
                if self._newest_stream is None:
                    return []
                page = self._client.get_log_events(
                    logGroupName=self._group, logStreamName=self._newest_stream, limit=most, startFromHead=False
                )
            except self._client.exceptions.ResourceNotFoundException:
                return []
        return [_line_of(event, stream=self._newest_stream) for event in page["events"]]

    def _find_newest_stream(self) -> str | None:
        answer = self._client.describe_log_streams(
            logGroupName=self._group, logStreamNamePrefix=f"{self._job_names[-1]}/"
        )
        streams = sorted(answer["logStreams"], key=_of_the_first_host_and_new)
        return streams[-1]["logStreamName"] if streams else None

    def _streams(self) -> list[str]:
        try:
            paginator = self._client.get_paginator("describe_log_streams")
            return [
                stream["logStreamName"]
                for name in self._job_names
                for page in paginator.paginate(logGroupName=self._group, logStreamNamePrefix=f"{name}/")
                for stream in page["logStreams"]
            ]
        except self._client.exceptions.ResourceNotFoundException:
            return []  # no training job ever wrote a line in this account and region

    def _read_stream(self, stream: str) -> Iterator[LogLine]:
        while True:
            position = self._positions.get(stream)
            query: dict[str, Any] = {"logGroupName": self._group, "logStreamName": stream, "startFromHead": True}
            if position is not None:
                query["nextToken"] = position
            page = self._client.get_log_events(**query)
            for event in page["events"]:
                yield _line_of(event, stream=stream)
            self._positions[stream] = page["nextForwardToken"]
            # AWS: the end of the stream is reached when the token that was passed in comes back.
            if page["nextForwardToken"] == position:
                return


def _host_of(stream: str) -> str:
    host = stream.rpartition("/")[2].rpartition("-")[0]
    return host.removeprefix("algo-") if host.startswith("algo-i-") else host


def _of_the_first_host_and_new(stream: LogStreamTypeDef) -> tuple[bool, int]:
    return _host_of(stream["logStreamName"]) == "algo-1", stream.get("lastEventTimestamp", 0)


def _line_of(event: OutputLogEventTypeDef, *, stream: str) -> LogLine:
    return LogLine(
        time=datetime.fromtimestamp(event["timestamp"] / 1000, tz=UTC),
        stream=_host_of(stream) or stream,
        text=event["message"].rstrip("\n"),
    )
