"""Which failures of an AWS call pass by themselves."""

from __future__ import annotations

import pytest

from spotkeep_jobs.temporary_errors import is_temporary


@pytest.mark.parametrize(
    ("code", "http_status", "expected"),
    [
        ("ThrottlingException", 400, True),
        ("ProvisionedThroughputExceededException", 400, True),
        ("TransactionInProgressException", 400, True),
        ("ExpiredTokenException", 400, True),
        ("InternalServerError", 500, True),
        ("ServiceUnavailable", 503, True),
        ("ValidationException", 400, False),
        ("AccessDeniedException", 400, False),
        ("ResourceLimitExceeded", 400, False),
        ("ConditionalCheckFailedException", 400, False),
    ],
)
def test_throttles_old_credentials_and_server_errors_pass(code: str, http_status: int, expected: bool) -> None:
    assert is_temporary({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": http_status}}) is expected


def test_an_answer_that_says_nothing_is_not_temporary() -> None:
    assert is_temporary({}) is False
