"""The forms of AWS's errors in each protocol, known in this one place.

| form | protocols | status, error and message are in |
|---|---|---|
| `JSON` | `json`, `rest-json` | the body's `__type` and `message`, the header `x-amzn-errortype` |
| `CBOR` | `smithy-rpc-v2-cbor` | the same, as CBOR |
| `QUERY` | `query` | `<ErrorResponse><Error>` |
| `EC2` | `ec2` | `<Response><Errors><Error>` |
| `S3` | `rest-xml` | `<Error>` |

A client that still knows a service by its old query protocol reads the old error code from `x-amzn-query-error`.

Sources: botocore's `parsers`, and "Smithy RPC v2 CBOR protocol" and "AWS Query compatible" in Smithy's documentation.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from xml.sax.saxutils import escape

ErrorAnswer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


class ErrorForm(Enum):
    """A form in which an error is written."""

    JSON = "json"
    CBOR = "cbor"
    QUERY = "query"
    EC2 = "ec2"
    S3 = "s3"


_OF_PROTOCOLS: Final = {
    "json": ErrorForm.JSON,
    "rest-json": ErrorForm.JSON,
    "smithy-rpc-v2-cbor": ErrorForm.CBOR,
    "query": ErrorForm.QUERY,
    "ec2": ErrorForm.EC2,
    "rest-xml": ErrorForm.S3,
}
_JSON: Final = "application/x-amz-json-1.1"


def error_form(headers: Mapping[str, str], *, protocol: str | None) -> ErrorForm:
    """Return the form that the client of a request reads, because some services have several protocols.

    Args:
        headers: The headers of the request, by their names in lower case.
        protocol: The service's protocol in its model. None when the service is not known.
    """
    if headers.get("smithy-protocol") == "rpc-v2-cbor":
        return ErrorForm.CBOR
    if "x-amz-target" in headers:
        return ErrorForm.JSON
    form = _OF_PROTOCOLS.get(protocol or "", ErrorForm.JSON)
    is_form_data = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    return ErrorForm.QUERY if is_form_data and form not in (ErrorForm.EC2, ErrorForm.S3) else form


def error_answer(
    form: ErrorForm,
    *,
    code: str,
    message: str,
    status: int,
    content_type: str = _JSON,
    query_code: str | None = None,
) -> ErrorAnswer:
    """Write an error.

    Args:
        form: The form that the client reads.
        code: AWS's error code.
        message: The fault, as a sentence.
        status: The HTTP status.
        content_type: The content type of an answer in JSON.
        query_code: The code in the service's old query protocol, for the services with such codes in their models.
    """
    compatible = {} if query_code is None else {"x-amzn-query-error": f"{query_code};Sender"}
    text = {"__type": code, "message": message}
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    request_id = uuid.uuid4()
    match form:
        case ErrorForm.JSON:
            return status, {"Content-Type": content_type, "x-amzn-errortype": code, **compatible}, _as_json(text)
        case ErrorForm.CBOR:
            headers = {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor", **compatible}
            return status, headers, _as_cbor(text)
        case ErrorForm.QUERY:
            error = f"<Error><Type>Sender</Type>{error}</Error>"
            body = f"<ErrorResponse>{error}<RequestId>{request_id}</RequestId></ErrorResponse>"
        case ErrorForm.EC2:
            body = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request_id}</RequestID></Response>"
        case ErrorForm.S3:
            body = f"<Error>{error}<RequestId>{request_id}</RequestId></Error>"
    return (
        status,
        {"Content-Type": "text/xml;charset=UTF-8"},
        f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode(),
    )


def _as_json(text: Mapping[str, str]) -> bytes:
    return json.dumps(text).encode()


_CBOR_TEXT: Final = 3
_CBOR_MAP: Final = 5


def _as_cbor(text: Mapping[str, str]) -> bytes:
    pairs = (part.encode() for pair in text.items() for part in pair)
    return _cbor_start(_CBOR_MAP, len(text)) + b"".join(_cbor_start(_CBOR_TEXT, len(part)) + part for part in pairs)


def _cbor_start(kind: int, length: int) -> bytes:
    """Write the start of a text or a map (RFC 8949).

    It has the kind, and the length in the same byte or in those that follow.
    """
    if length < 24:
        return bytes([kind << 5 | length])
    size, marker = next((size, marker) for size, marker in ((1, 24), (2, 25), (4, 26)) if length < 256**size)
    return bytes([kind << 5 | marker]) + length.to_bytes(size, "big")


@dataclass(frozen=True, kw_only=True)
class BusyErrors:
    """The errors of one service.

    Attributes:
        throttle: The error code of a throttled call.
        throttle_status: The HTTP status of a throttled call.
        server_error: The error code of a failure of the service's own, with status 500.
    """

    throttle: str
    throttle_status: int = 400
    server_error: str


BUSY_ERRORS: Final[Mapping[str, BusyErrors]] = {
    # "Troubleshooting AWS Batch", "Common Error Types"
    "batch": BusyErrors(throttle="TooManyRequestsException", throttle_status=429, server_error="ServerException"),
    # "Error handling with DynamoDB"
    "dynamodb": BusyErrors(throttle="ProvisionedThroughputExceededException", server_error="InternalServerError"),
    # "Error codes for the Amazon EC2 API"
    "ec2": BusyErrors(throttle="RequestLimitExceeded", throttle_status=503, server_error="InternalError"),
    # "Invoke" (API reference)
    "lambda": BusyErrors(throttle="TooManyRequestsException", throttle_status=429, server_error="ServiceException"),
    # "FilterLogEvents", "Common Error Types"
    "logs": BusyErrors(throttle="ThrottlingException", server_error="ServiceUnavailableException"),
    # "Amazon S3 error best practices"
    "s3": BusyErrors(throttle="SlowDown", throttle_status=503, server_error="InternalError"),
    # "Common Error Types" (API reference)
    "sagemaker": BusyErrors(throttle="ThrottlingException", server_error="InternalFailure"),
    # "CreateSchedule" (API reference)
    "scheduler": BusyErrors(
        throttle="ThrottlingException", throttle_status=429, server_error="InternalServerException"
    ),
    # "Publish"; knowledge center, "ThrottlingException" in SNS
    "sns": BusyErrors(throttle="ThrottlingException", server_error="InternalError"),
    # "SendMessage", "Common Error Types" (API reference)
    "sqs": BusyErrors(throttle="RequestThrottled", server_error="InternalFailure"),
}
"""By botocore's name of the service. Above each, AWS's page."""
