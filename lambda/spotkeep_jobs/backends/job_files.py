"""Objects that the functions keep in the checkpoint bucket for jobs, such as `spotkeep.pyz` and training specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.document.command import SpecObject
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from spotkeep_jobs.temporary_errors import call_error, is_temporary, typed_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NOT_THERE: Final = frozenset({"403", "404"})
"""S3 answers 403 for a key that does not exist to a caller that may not list the bucket.
Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html"""


class TrainingBundleStore:
    """Keeps the copy of `spotkeep.pyz` that jobs and instances fetch at each start.

    They do not fetch the upload of `cdk deploy`. `cdk gc` deletes that once no template names it, while runs still need
    it. The boto3 client is created at its first use.
    """

    def __init__(self, make_client: Callable[[], S3Client], *, asset_uri: str, uri: str) -> None:
        """Bind the two addresses.

        Args:
            make_client: Creates a client of S3.
            asset_uri: The `s3://` address of the upload of `cdk deploy`.
            uri: The `s3://` address of the copy. The content's hash is part of its key.
        """
        self._make_client = make_client
        self._asset_uri = asset_uri
        self._uri = uri
        self._kept = False

    def keep(self) -> None:
        """Make sure that the copy is there. Asks S3 once in a process.

        Raises:
            AwsRefusedError: S3 refuses the copy. The upload is gone, or may not be read.
            AwsBusyError: S3 could not answer. Ask again.
        """
        if self._kept:
            return
        try:
            client = self._make_client()
            bucket, key = _bucket_and_key(self._uri)
            if not _is_there(client, bucket=bucket, key=key):
                source_bucket, source_key = _bucket_and_key(self._asset_uri)
                client.copy_object(
                    Bucket=bucket,
                    Key=key,
                    CopySource={"Bucket": source_bucket, "Key": source_key},
                    # `cdk gc` tags what it will delete. To copy tags would need two more permissions.
                    TaggingDirective="REPLACE",
                )
        except ClientError as error:
            kind = AwsBusyError if is_temporary(error.response) else AwsRefusedError
            found = error.response["Error"]
            raise kind(
                operation=error.operation_name,
                code=str(found.get("Code", "Unknown")),
                reason=f"{self._asset_uri} could not be copied to {self._uri}, where runs fetch it: "
                f"{found.get('Message', '')} If it is gone, deploy the app again",
            ) from error
        except BotoCoreError as error:
            raise call_error("CopyObject", error) from error
        self._kept = True


class SpecStore:
    """Puts the training specs that SageMaker's jobs read. It creates the boto3 client at its first use."""

    def __init__(self, make_client: Callable[[], S3Client]) -> None:
        """Bind the function that creates the client of S3."""
        self._make_client = make_client

    def keep(self, spec: SpecObject) -> None:
        """Put a spec. The same one again changes nothing.

        Raises:
            AwsRefusedError: S3 will not take it.
            AwsBusyError: S3 could not answer. Call again.
        """
        bucket, key = _bucket_and_key(spec.uri)
        with typed_errors("put_object"):
            self._make_client().put_object(Bucket=bucket, Key=key, Body=spec.content, ContentType="application/json")


def _is_there(client: S3Client, *, bucket: str, key: str) -> bool:
    try:
        client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"].get("Code") in _NOT_THERE:
            return False
        raise
    return True


def _bucket_and_key(uri: str) -> tuple[str, str]:
    """Return the bucket and the key of an object's `s3://` address."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
