"""A deployed Spotkeep as the commands see it, with boto3 clients and AWS's errors in a user's words.

The calls to AWS are in `aws_calls`. `connection` finds the deployment.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from spotkeep_cli.aws.calls import ClientFactory, Connection, translated_aws_errors
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.launcher_calls import DirectInvocation, LauncherCall, UrlCall, ask_until_answered
from spotkeep_jobs.progress.training_logs import LOG_GROUP
from spotkeep_jobs.record.run_table import RunTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from spotkeep_cli.aws.job_log import AttemptLog
    from spotkeep_cli.aws.launcher_calls import LauncherUrl
    from spotkeep_cli.aws.stored_objects import StoredObjects, StoredVersion
    from spotkeep_jobs.record.record import BackendName

HIDDEN_SECONDS: Final = 300
"""Seconds that a taken message is hidden from other readers, unless it is given back.

They are more than a replay takes.
"""
_WAIT_SECONDS: Final = 1
"""A receive that does not wait asks a part of SQS's servers only.
Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""
_MESSAGES_A_CALL: Final = 10


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message of the queue.

    Attributes:
        notification_id: The notification it is about.
        subject_id: The run that it is about.
        receipt: The receipt handle, to delete it or give it back.
    """

    notification_id: str
    subject_id: str
    receipt: str


class DeadLetters:
    """The queue.

    Args:
        client: A boto3 client of SQS.
        queue_url: The queue.
        options: The user's options for the deployment, for hints.
    """

    def __init__(self, client: SQSClient, *, queue_url: str, options: ConnectionOptions) -> None:
        self._client = client
        self._queue_url = queue_url
        self._options = options

    def take(self) -> Sequence[DeadLetter]:
        """Return every message that no other reader holds, and hide them from others for some minutes.

        Raises:
            NoConnectionError: SQS refused or could not be reached.
        """
        found: dict[str, DeadLetter] = {}
        with translated_aws_errors("reading the dead-letter queue of notifications", options=self._options):
            for message in self._received():
                letter = _letter_of(message)
                if letter is not None:
                    found[message["MessageId"]] = letter
        return tuple(found.values())

    def delete(self, letters: Sequence[DeadLetter]) -> None:
        """Delete messages that were taken. One that is gone already is no error.

        Raises:
            NoConnectionError: SQS refused or could not be reached.
        """
        with translated_aws_errors("deleting from the dead-letter queue of notifications", options=self._options):
            for letter in letters:
                self._client.delete_message(QueueUrl=self._queue_url, ReceiptHandle=letter.receipt)

    def give_back(self, letters: Sequence[DeadLetter]) -> None:
        """Let other readers see messages again that were taken.

        Raises:
            NoConnectionError: SQS refused or could not be reached. They are seen again in some minutes.
        """
        with translated_aws_errors("giving back to the dead-letter queue of notifications", options=self._options):
            for letter in letters:
                self._client.change_message_visibility(
                    QueueUrl=self._queue_url, ReceiptHandle=letter.receipt, VisibilityTimeout=0
                )

    def _received(self) -> Iterator[Any]:
        while True:
            answer = self._client.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=_MESSAGES_A_CALL,
                VisibilityTimeout=HIDDEN_SECONDS,
                WaitTimeSeconds=_WAIT_SECONDS,
            )
            messages = answer.get("Messages", [])
            if not messages:
                return
            yield from messages


def _letter_of(message: Any) -> DeadLetter | None:
    """Return the message. None for a message that no function of ours wrote. It is left alone."""
    try:
        body = json.loads(message["Body"])
        return DeadLetter(
            notification_id=str(body["notification_id"]),
            subject_id=str(body["subject_id"]),
            receipt=message["ReceiptHandle"],
        )
    except (ValueError, KeyError, TypeError):
        return None


class CallCount:
    """Counts the calls to the run table and the logs. A page of a list that boto3 reads on is not counted.

    Attributes:
        made: Number of calls so far.
    """

    def __init__(self) -> None:
        self.made = 0

    def counting(self, client: Any) -> Any:
        """Return a client of boto3 whose calls are counted."""
        return _CountedClient(client, count=self)


class _CountedClient:
    def __init__(self, client: Any, *, count: CallCount) -> None:
        self._client = client
        self._count = count

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if name in {"exceptions", "meta", "get_paginator"}:
            return attribute

        def call(**request: Any) -> Any:
            self._count.made += 1
            return attribute(**request)

        return call


class DeploymentClient:
    """One deployed Spotkeep, in AWS or in the local AWS.

    Args:
        connection: The names of the deployment's resources.
        client: Makes a boto3 client of a service, with the right credentials and region.
        options: The user's options for the deployment, for hints.
        launcher_url: The URL of the launcher. None where it is invoked directly.
        sleep: Waits between two tries.

    Attributes:
        calls: The count of its calls to the run table and the logs.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        client: ClientFactory,
        options: ConnectionOptions,
        launcher_url: LauncherUrl | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connection = connection
        self._launcher_url = launcher_url
        self._sleep = sleep
        self.client = client
        self.options = options
        self.calls = CallCount()

    @property
    def name(self) -> str:
        """The deployment's name."""
        return self.options.deployment

    @property
    def region(self) -> str:
        """The region of the deployment."""
        return self.connection.region

    @property
    def systems_manager_url(self) -> str:
        """The URL of Systems Manager."""
        return str(self.client("ssm").meta.endpoint_url)

    @property
    def controller_function(self) -> str:
        """The name of its controller."""
        return self.connection.controller_function

    @property
    def checkpoint_bucket(self) -> str:
        """The bucket of its runs."""
        return self.connection.checkpoint_bucket

    def isolated(self, team: object) -> str | None:
        """Return the team of a job, if that team's runs are stored apart.

        Args:
            team: As the job says it.
        """
        return team if isinstance(team, str) and team in self.connection.isolated_teams.split() else None

    @property
    def notification_topic_arn(self) -> str:
        """The SNS topic of its notifications."""
        return self.connection.notification_topic_arn

    @cached_property
    def table(self) -> RunTable:
        """Its run table, with AWS's errors translated. Commands only read it."""
        counted = self.calls.counting(self.client("dynamodb"))
        client = _TranslatingClient(counted, doing="reading the run table", options=self.options)
        return RunTable.of(client=cast("DynamoDBClient", client), table_name=self.connection.run_table)

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead-letter queue of notifications."""
        return DeadLetters(
            self.client("sqs"), queue_url=self.connection.dead_notification_queue_url, options=self.options
        )

    def invoke_launcher(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Call the launcher. Tried again when the connection breaks.

        A launch carries its token, so the same payload again answers the same and launches nothing twice.

        Raises:
            LauncherError: The function failed, or its answer is not a JSON object.
            NoConnectionError: The call did not come through.
        """
        return ask_until_answered(self._launcher, payload, sleep=self._sleep)

    @cached_property
    def _launcher(self) -> LauncherCall:
        function = self.connection.launcher_function
        if self._launcher_url is not None:
            return UrlCall(self._launcher_url, function=function, options=self.options)
        return DirectInvocation(function, client=self.client, options=self.options)

    def job_log(self, *job_names: str, backend: BackendName = "sagemaker") -> AttemptLog:
        """Return the log of an attempt. SageMaker and the instances of fleets have a log group each.

        Args:
            job_names: Its job. In a queue, all jobs that AWS Batch made for it.
            backend: The backend that runs it.
        """
        from spotkeep_cli.aws.job_log import AttemptLog

        group = self.connection.fleet_log_group if backend == "ec2" else LOG_GROUP
        client = self.calls.counting(self.client("logs"))
        return AttemptLog(client, job_names=job_names, options=self.options, group=group)

    def training_job_request(self, name: str) -> dict[str, Any]:
        """Return the answers of DescribeTrainingJob and ListTags for a job with the deployment's tag.

        Raises:
            NoConnectionError: SageMaker refused. There is no such job, or it lacks the tag.
        """
        sagemaker = self.client("sagemaker")
        with translated_aws_errors(f"describing the training job {name}", options=self.options):
            job: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=name)
            tags = sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
        return job | {"Tags": tags}

    def upload_source(self, uri: str, *, content: bytes) -> None:
        """Put a source archive into the bucket. Its address holds its hash, so a repeat changes nothing.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        with translated_aws_errors(f"uploading the source to {bucket}", options=self.options):
            self.client("s3").put_object(Bucket=bucket, Key=key, Body=content)

    def stored_objects(self, uri: str) -> StoredObjects:
        """Return the objects below an S3 URI of this deployment."""
        from spotkeep_cli.aws.stored_objects import StoredObjects

        return StoredObjects(self.client("s3"), uri=uri, options=self.options)

    def stored_versions(self) -> Iterator[StoredVersion]:
        """Yield every version of every run's objects that the bucket still holds.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
        from spotkeep_cli.aws.stored_objects import versions_by_run

        with translated_aws_errors(f"listing {self.checkpoint_bucket}", options=self.options):
            yield from versions_by_run(self.client("s3"), bucket=self.checkpoint_bucket)


class _TranslatingClient:
    """A client of boto3 whose calls raise AWS's errors in a user's words."""

    def __init__(self, client: Any, *, doing: str, options: ConnectionOptions) -> None:
        self._client = client
        self._doing = doing
        self._options = options

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            with translated_aws_errors(self._doing, options=self._options):
                return method(**request)

        return call
