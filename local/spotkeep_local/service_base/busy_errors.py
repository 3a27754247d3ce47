"""How each service says that it cannot answer now: that it was called too often, and that something in it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class BusyErrors:
    """The errors of one service.

    Attributes:
        throttle: The code with which it refuses one call too many.
        throttle_status: The HTTP status of that.
        server_error: The code of a failure of its own, whose status is 500.
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
"""By botocore's name of the service; above each, AWS's page."""
