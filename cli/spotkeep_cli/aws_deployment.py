"""The real deployment: boto3 behind `deployment.Deployment`, with AWS's errors in a user's words.

What it calls AWS with is in `aws_calls`; `connection` looks the deployment up.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    HTTPClientError,
)
from botocore.exceptions import (
    ConnectionError as AwsConnectionError,
)

from spotkeep_cli.aws_calls import ClientFactory, Connection, repeat_hint, translated_aws_errors
from spotkeep_cli.deployment import ConnectionOptions, LogLine
from spotkeep_cli.errors import CommandLineError, LauncherError, NoConnectionError
from spotkeep_jobs.aws.run_table import RunTable
from spotkeep_jobs.aws.training_logs import LOG_GROUP
from spotkeep_local.bounded_reading import read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mypy_boto3_logs import CloudWatchLogsClient

    from spotkeep_cli.account_check import AccountCheck
    from spotkeep_cli.deployment import DeadLetters, Drill, RunReader, StoredObjects
    from spotkeep_cli.run_storage import StoredVersion
    from spotkeep_jobs.facts.record import Backend

_INVOKE_ATTEMPTS = 4
_FUNCTION_TIMEOUT_SECONDS = 120
"""Longer than the launcher may take: an answer that is still to come must not be given up."""
_MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""A function's answer has at most 6 MB."""
_UNFINISHED = {"LaunchUnfinishedError", "Sandbox.Timedout", "Runtime.ExitError"}
"""The launcher does not know whether it came through. Asking again is how one finds out."""


class _UnfinishedError(LauncherError):
    """The launcher could not say whether it did what was asked."""


class AwsDeployment:
    """A deployment in AWS, or in the local AWS.

    Args:
        connection: Where everything is.
        client: Makes a boto3 client of a service, with the right credentials and region.
        options: How the user named the deployment, for hints.
        sleep: Waits between two tries.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        client: ClientFactory,
        options: ConnectionOptions,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._sleep = sleep
        self._client = client
        self._options = options

    @property
    def region(self) -> str:
        """The region of the deployment."""
        return self._connection.region

    @property
    def checkpoint_bucket(self) -> str:
        """The bucket of its runs."""
        return self._connection.checkpoint_bucket

    @property
    def notification_topic_arn(self) -> str:
        """The SNS topic of its notifications."""
        return self._connection.notification_topic_arn

    @cached_property
    def runs(self) -> RunReader:
        """Its run table, with AWS's errors translated."""
        table = RunTable(client=self._client("dynamodb"), table_name=self._connection.run_table)
        return _TranslatingRunReader(table, options=self._options)

    @property
    def dead_letters(self) -> DeadLetters | None:
        """Its dead-letter queue of notifications."""
        from spotkeep_cli.dead_letters import SqsDeadLetters

        if not self._connection.dead_notification_queue_url:
            return None
        return SqsDeadLetters(
            self._client("sqs"), queue_url=self._connection.dead_notification_queue_url, options=self._options
        )

    def invoke_launcher(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Calls the launcher; tried again when the connection breaks.

        A launch carries its token, so the same payload again answers the same and launches nothing twice.

        Raises:
            LauncherError: The function raised, or its answer is not a JSON object.
            NoConnectionError: The call did not come through.
        """
        function = self._connection.launcher_function
        # botocore would repeat a call whose answer is late; here each repeat is ours, and the last error is told.
        client = self._client(
            "lambda",
            config=Config(read_timeout=_FUNCTION_TIMEOUT_SECONDS, connect_timeout=5, retries={"total_max_attempts": 1}),
        )
        body = json.dumps(payload, default=str).encode()
        for attempt in itertools.count(1):
            try:
                with translated_aws_errors(f"invoking {function}", options=self._options, payload=payload):
                    answer = client.invoke(FunctionName=function, Payload=body)
                try:
                    content = read_answer(answer["Payload"], most_bytes=_MOST_ANSWER_BYTES)
                except OSError as error:
                    raise LauncherError(f"the answer of {function} cannot be read: {error.strerror}") from error
                return _read_answer(content, function=function, failed="FunctionError" in answer, payload=payload)
            except (NoConnectionError, LauncherError) as error:
                if attempt == _INVOKE_ATTEMPTS or not _worth_repeating(error):
                    raise
                self._sleep(2 ** (attempt - 1) / 2)
        raise AssertionError  # the count does not end

    def check_account(self, *, clock: Callable[[], datetime]) -> AccountCheck:
        """Looks for what belongs to no live run, and at quotas.

        Raises:
            NoConnectionError: The run table cannot be read; what else cannot be is told in the check.
        """
        from spotkeep_cli.aws_account import check_account

        table = RunTable(client=self._client("dynamodb"), table_name=self._connection.run_table)
        with translated_aws_errors("looking at the account", options=self._options):
            return check_account(connection=self._connection, client=self._client, table=table, clock=clock)

    def job_log(self, job_name: str, *, backend: Backend = "sagemaker") -> CloudWatchJobLog:
        """The log of an attempt: SageMaker and the instances of fleets have a log group each."""
        group = self._connection.fleet_log_group if backend == "ec2" else LOG_GROUP
        return CloudWatchJobLog(self._client("logs"), job_name=job_name, options=self._options, group=group)

    def drill(self, run: str) -> Drill:
        """A drill on a run."""
        from spotkeep_cli.drill.on_aws import AwsDrill

        return AwsDrill(connection=self._connection, client=self._client, options=self._options, run=run)

    def upload_source(self, *, key: str, content: bytes) -> str:
        """Puts a source archive into the bucket unless the same key is there: its name is its hash.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        s3 = self._client("s3")
        bucket = self.checkpoint_bucket
        with translated_aws_errors(f"uploading the source to {bucket}", options=self._options):
            s3.put_object(Bucket=bucket, Key=key, Body=content)
        return f"s3://{bucket}/{key}"

    def stored_objects(self, uri: str) -> StoredObjects:
        """What is stored below an S3 URI."""
        from spotkeep_cli.stored_objects import S3Objects

        return S3Objects(self._client("s3"), uri=uri, options=self._options)

    def stored_versions(self) -> Iterator[StoredVersion]:
        """Every version of every run's objects.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        from spotkeep_cli.stored_objects import versions_by_run

        with translated_aws_errors(f"listing {self.checkpoint_bucket}", options=self._options):
            yield from versions_by_run(self._client("s3"), bucket=self.checkpoint_bucket)


class CloudWatchJobLog:
    """A training job's log, stream by stream, read forward.

    A managed spot job that comes back on another instance may write a new stream; each read looks for it.
    """

    def __init__(
        self, client: CloudWatchLogsClient, *, job_name: str, options: ConnectionOptions, group: str = LOG_GROUP
    ) -> None:
        self._client = client
        self._group = group
        self._job_name = job_name
        self._options = options
        self._positions: dict[str, str] = {}

    def read(self) -> list[LogLine]:
        """The lines since the last read, in order of time.

        Raises:
            NoConnectionError: CloudWatch Logs refused or could not be reached.
        """
        with translated_aws_errors(f"reading the log of {self._job_name}", options=self._options):
            lines = [line for stream in self._streams() for line in self._read_stream(stream)]
        return sorted(lines, key=lambda line: line.time)

    def _streams(self) -> list[str]:
        try:
            pages = self._client.get_paginator("describe_log_streams").paginate(
                logGroupName=self._group, logStreamNamePrefix=f"{self._job_name}/"
            )
            return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
        except self._client.exceptions.ResourceNotFoundException:
            return []  # no training job ever wrote a line in this account and region

    def _read_stream(self, stream: str) -> Iterator[LogLine]:
        host = stream.rpartition("/")[2].rpartition("-")[0] or stream
        while True:
            position = self._positions.get(stream)
            query: dict[str, Any] = {"logGroupName": self._group, "logStreamName": stream, "startFromHead": True}
            if position is not None:
                query["nextToken"] = position
            page = self._client.get_log_events(**query)
            for event in page["events"]:
                yield LogLine(
                    time=datetime.fromtimestamp(event["timestamp"] / 1000, tz=UTC),
                    stream=host,
                    text=event["message"].rstrip("\n"),
                )
            self._positions[stream] = page["nextForwardToken"]
            # AWS: the end of the stream is reached when the token that was passed in comes back.
            if page["nextForwardToken"] == position:
                return


class _TranslatingRunReader:
    def __init__(self, table: RunTable, *, options: ConnectionOptions) -> None:
        self._table = table
        self._options = options

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with translated_aws_errors("reading the run table", options=self._options):
                return method(*args, **kwargs)

        return call


def _worth_repeating(error: CommandLineError) -> bool:
    if isinstance(error, _UnfinishedError):
        return True
    cause = error.__cause__
    if isinstance(cause, ClientError):
        status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status == 429 or status >= 500
    return isinstance(cause, AwsConnectionError | HTTPClientError)


def _read_answer(body: bytes, *, function: str, failed: bool, payload: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise LauncherError(
            f"{function} answered {body[:80]!r}, which is not JSON", hint=f"look at its log: /aws/lambda/{function}"
        ) from error
    if failed:
        kind = answer.get("errorType", "error") if isinstance(answer, dict) else "error"
        words = str(answer.get("errorMessage", answer) if isinstance(answer, dict) else answer)
        message = f"{function} failed with {kind}: {words.splitlines()[0] if words else 'no message'}"
        if kind in _UNFINISHED:
            raise _UnfinishedError(message, hint=repeat_hint(payload))
        raise LauncherError(message, hint=f"its log says more: aws logs tail /aws/lambda/{function}")
    if not isinstance(answer, dict):
        raise LauncherError(f"{function} answered {answer!r}, not an object", hint="is the deployment up to date?")
    return answer
