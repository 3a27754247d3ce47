"""Keeps the files of parameters that jobs in queues read, in the checkpoint bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.backends.batch.parameters_file import ParametersFile
from spotkeep_jobs.backends.training_bundle import bucket_and_key
from spotkeep_jobs.temporary_errors import call_error

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class ParametersStore:
    """Puts files, with a boto3 client that is made when it is first needed."""

    def __init__(self, make_client: Callable[[], S3Client]) -> None:
        """Bind what makes the client of S3."""
        self._make_client = make_client

    def keep(self, file: ParametersFile) -> None:
        """Put a file. The same one again changes nothing.

        Raises:
            AwsRefusedError: S3 will not take it.
            AwsBusyError: S3 could not answer; call again.
        """
        bucket, key = bucket_and_key(file.uri)
        try:
            self._make_client().put_object(Bucket=bucket, Key=key, Body=file.content, ContentType="application/json")
        except (ClientError, BotoCoreError) as error:
            raise call_error("PutObject", error) from error
