"""Which failures of an AWS call pass by themselves, so that the same call may be made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_THROTTLES: Final = frozenset(
    {"BandwidthLimitExceeded", "PriorRequestNotComplete", "ProvisionedThroughputExceededException",
     "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException", "SlowDown", "ThrottledException",
     "Throttling", "ThrottlingException", "TooManyRequestsException", "TransactionInProgressException"}
)  # fmt: skip
# Nothing is wrong with the request: the caller's credentials are out of date, and the next call has new ones.
_CREDENTIALS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "RequestExpired", "UnrecognizedClientException"}
)
_SERVER_ERROR: Final = 500


def is_temporary(response: Mapping[str, Any]) -> bool:
    """Return whether an error answer says nothing about the request itself.

    Args:
        response: the `response` of a botocore `ClientError`.
    """
    code = str(response.get("Error", {}).get("Code", ""))
    http_status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return code in _THROTTLES | _CREDENTIALS or http_status >= _SERVER_ERROR
