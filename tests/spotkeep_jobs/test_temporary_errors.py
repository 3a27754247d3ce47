"""Which failures of an AWS call pass by themselves."""

from __future__ import annotations

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ParamValidationError

from spotkeep_jobs.errors import AwsBusyError, AwsCallError, AwsRefusedError
from spotkeep_jobs.temporary_errors import call_error, is_temporary


@pytest.mark.parametrize(
    ("code", "http_status", "expected"),
    [
        ("ThrottlingException", 400, True),
        ("ProvisionedThroughputExceededException", 400, True),
        ("TransactionInProgressException", 400, True),
        ("ExpiredTokenException", 400, True),
        ("InternalServerError", 500, True),
        ("ResourceLimitExceeded", 400, False),
        ("ConditionalCheckFailedException", 400, False),
    ],
)
def test_throttles_old_credentials_and_server_errors_pass(code: str, http_status: int, expected: bool) -> None:
    assert is_temporary({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": http_status}}) is expected


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (
            ClientError({"Error": {"Code": "Throttling", "Message": "slowly"}}, "Invoke"),
            AwsBusyError,
            "Throttling: slowly",
        ),
        (
            ClientError({"Error": {"Code": "NoSuchKey", "Message": "gone"}}, "Invoke"),
            AwsRefusedError,
            "NoSuchKey: gone",
        ),
        (ClientError({}, "Invoke"), AwsRefusedError, "Unknown: "),
        (ParamValidationError(report="Name"), AwsRefusedError, "ParamValidation: "),
        (ConnectTimeoutError(endpoint_url="https://aws"), AwsBusyError, "ConnectTimeoutError: "),
    ],
)
def test_a_failed_call_is_refused_or_worth_another_try(
    raised: ClientError | BotoCoreError, kind: type[AwsCallError], says: str
) -> None:
    error = call_error("Invoke", raised)
    assert type(error) is kind
    assert str(error).startswith(f"Invoke failed with {says}")
