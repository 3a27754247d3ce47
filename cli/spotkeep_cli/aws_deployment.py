"""The real deployment: boto3 behind `deployment.Deployment`, with AWS's errors in a user's words.

The only module of the command line that calls AWS, besides `connection`, which looks the deployment up, and
`drill.on_aws`.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
)
from botocore.exceptions import (
    ConnectionError as AwsConnectionError,
)
from pydantic import BaseModel, ConfigDict

from spotkeep_cli.deployment import ConnectionOptions, LogLine
from spotkeep_cli.errors import CommandLineError, LauncherError, NoConnectionError
from spotkeep_jobs.aws.run_table import RunTable
from spotkeep_jobs.aws.training_logs import LOG_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mypy_boto3_logs import CloudWatchLogsClient

    from spotkeep_cli.account_check import AccountCheck
    from spotkeep_cli.deployment import DeadLetters, Drill, RunReader, StoredObjects
    from spotkeep_cli.run_storage import StoredVersion
    from spotkeep_jobs.facts.record import Backend

ClientFactory = Callable[..., Any]
"""`boto3.Session.client`, or the local AWS's."""

_INVOKE_ATTEMPTS = 4
_FUNCTION_TIMEOUT_SECONDS = 120
"""Longer than the launcher may take: an answer that is still to come must not be given up."""
_UNFINISHED = {"LaunchUnfinishedError", "Sandbox.Timedout", "Runtime.ExitError"}
"""The launcher does not know whether it came through. Asking again is how one finds out."""

_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"}
_STALE = {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException",
    "InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired"}  # fmt: skip


class Connection(BaseModel):
    """What `/<deployment>/connection` says. Fields this version does not know are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int
    deployment: str
    region: str
    launcher_function: str
    run_table: str
    checkpoint_bucket: str
    notice_topic_arn: str
    dead_notice_queue_url: str = ""
    """Where the notices are that could not be sent; empty in the connection of an older deployment."""
    pool_schedule_group: str | None = None
    """None in the connection of an older deployment."""
    fleet_log_group: str = ""
    """Where the instances of runs on EC2 write; empty in a deployment without fleets."""
    drill_template_id: str = ""
    """The experiment that takes an instance away; empty in a deployment without drills."""


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
    def notice_topic_arn(self) -> str:
        """The SNS topic of its notices."""
        return self._connection.notice_topic_arn

    @cached_property
    def runs(self) -> RunReader:
        """Its run table, with AWS's errors translated."""
        table = RunTable(client=self._client("dynamodb"), table_name=self._connection.run_table)
        return _TranslatingRunReader(table, options=self._options)

    @property
    def dead_letters(self) -> DeadLetters | None:
        """Its dead-letter queue of notices."""
        from spotkeep_cli.dead_letters import SqsDeadLetters

        if not self._connection.dead_notice_queue_url:
            return None
        return SqsDeadLetters(
            self._client("sqs"), queue_url=self._connection.dead_notice_queue_url, options=self._options
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
                    content = answer["Payload"].read()
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


@contextmanager
def translated_aws_errors(
    doing: str, *, options: ConnectionOptions, payload: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turns what botocore raises into one line and a hint.

    Args:
        doing: What was being done, for the message: `reading the run table`.
        options: How the user named the deployment.
        payload: The launch document, whose token makes a repeat safe.

    Raises:
        NoConnectionError: AWS refused, or could not be reached.
    """
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, SSOError) as error:
        raise NoConnectionError(
            f"{doing}: no usable AWS credentials ({error})",
            hint="sign in (`aws sso login`, `aws configure`) or name a profile: spotkeep --profile NAME ...",
        ) from error
    except ClientError as error:
        raise NoConnectionError(f"{doing}: {_words(error)}", hint=_hint_for(error, options=options)) from error
    except (AwsConnectionError, HTTPClientError) as error:
        raise NoConnectionError(
            f"{doing}: no connection ({error})", hint=_reconnect_hint(options=options, payload=payload)
        ) from error
    except BotoCoreError as error:
        raise NoConnectionError(f"{doing}: {error}", hint="check the AWS configuration: aws configure list") from error


def _worth_repeating(error: CommandLineError) -> bool:
    if isinstance(error, _UnfinishedError):
        return True
    cause = error.__cause__
    if isinstance(cause, ClientError):
        status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status == 429 or status >= 500
    return isinstance(cause, AwsConnectionError | HTTPClientError)


def _words(error: ClientError) -> str:
    details = error.response.get("Error", {})
    return f"{details.get('Code', 'error')}: {details.get('Message', str(error))}"


def _hint_for(error: ClientError, *, options: ConnectionOptions) -> str:
    code = error.response.get("Error", {}).get("Code", "")
    if code in _DENIED:
        return f"ask for the managed policy of users of the deployment {options.deployment!r}"
    if code in _STALE:
        return "the credentials are out of date; sign in again (aws sso login)"
    if code in {"ResourceNotFoundException", "NoSuchBucket"}:
        return "the deployment is not complete; deploy it again: cdk deploy --all"
    if "Throttl" in code or code == "TooManyRequestsException":
        return "AWS is busy with this account's calls; try again in a moment"
    return "try again; if it stays, look at the AWS service's status in this region"


def _reconnect_hint(*, options: ConnectionOptions, payload: Mapping[str, Any] | None) -> str:
    if payload is not None and payload.get("action") is None:
        return _repeat_hint(payload)
    if options.local:
        return "is the local AWS still up? spotkeep local status"
    return "check the network and the region"


def _repeat_hint(payload: Mapping[str, Any]) -> str:
    if not payload.get("token"):
        return "try again: asking twice does no harm"
    return (
        "it may or may not have been launched; the same token again is safe and launches nothing twice: "
        f"--set token={payload['token']}"
    )


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
            raise _UnfinishedError(message, hint=_repeat_hint(payload))
        raise LauncherError(message, hint=f"its log says more: aws logs tail /aws/lambda/{function}")
    if not isinstance(answer, dict):
        raise LauncherError(f"{function} answered {answer!r}, not an object", hint="is the deployment up to date?")
    return answer
