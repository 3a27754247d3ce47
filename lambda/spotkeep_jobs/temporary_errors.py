"""The meaning of failed calls to AWS. Some failures pass by themselves, so that the call may be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spotkeep_jobs.errors import AwsBusyError, AwsCallError, AwsRefusedError

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_THROTTLES: Final = frozenset(
    {"BandwidthLimitExceeded", "PriorRequestNotComplete", "ProvisionedThroughputExceededException",
     "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException", "SlowDown", "ThrottledException",
     "Throttling", "ThrottlingException", "TooManyRequestsException", "TransactionConflictException",
     "TransactionInProgressException"}
)  # fmt: skip
# Nothing is wrong with the request: the caller's credentials are out of date, and the next call has new ones.
_CREDENTIALS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "RequestExpired", "UnrecognizedClientException"}
)
_SERVER_ERROR: Final = 500
KindOf: TypeAlias = Callable[[str, str], type[AwsCallError]]
"""The error type of a service's error answer that is not temporary, by its code and its reason."""


def is_temporary(response: Mapping[str, Any]) -> bool:
    """Return whether an error answer says nothing about the request itself.

    Args:
        response: the `response` of a botocore `ClientError`.
    """
    code = str(response.get("Error", {}).get("Code", ""))
    http_status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return code in _THROTTLES | _CREDENTIALS or http_status >= _SERVER_ERROR


def _refused(_code: str, _reason: str) -> type[AwsCallError]:
    return AwsRefusedError


@contextmanager
def typed_errors(method: str, *, kind_of: KindOf = _refused) -> Iterator[None]:
    """Raise each failure of a call to AWS as an `AwsCallError`.

    Args:
        method: The method of the boto3 client that is called, which gives the API operation. For example,
            `describe_fleets` is DescribeFleets.
        kind_of: The meaning of this service's errors that are not temporary.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        operation = "".join(word.capitalize() for word in method.split("_"))
        raise call_error(operation, error, kind_of=kind_of) from error


def call_error(operation: str, error: ClientError | BotoCoreError, *, kind_of: KindOf = _refused) -> AwsCallError:
    """Return the typed error of a failed call, which is refused for good or worth another try.

    Args:
        operation: The API operation that was called.
        error: The error that botocore raised.
        kind_of: The meaning of this service's errors that are not temporary.
    """
    from botocore.exceptions import ClientError, ParamValidationError

    if isinstance(error, ClientError):
        found: Mapping[str, Any] = error.response.get("Error", {})
        code, reason = str(found.get("Code", "Unknown")), str(found.get("Message", ""))
        kind = AwsBusyError if is_temporary(error.response) else kind_of(code, reason)
        return kind(operation=operation, code=code, reason=reason)
    if isinstance(error, ParamValidationError):
        return AwsRefusedError(operation=operation, code="ParamValidation", reason=str(error))
    return AwsBusyError(operation=operation, code=type(error).__name__, reason=str(error))
