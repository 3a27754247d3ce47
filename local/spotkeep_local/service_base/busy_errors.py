"""How each service says that it cannot answer now: that it was called too often, and that something in it failed.

| service | called too often | failed: 500 | AWS's page |
|---|---|---|---|
| Batch | TooManyRequestsException, 429 | ServerException | "Troubleshooting AWS Batch", "Common Error Types" |
| DynamoDB | ProvisionedThroughputExceededException | InternalServerError | "Error handling with DynamoDB" |
| EC2 | RequestLimitExceeded, 503 | InternalError | "Error codes for the Amazon EC2 API" |
| Lambda | TooManyRequestsException, 429 | ServiceException | "Invoke" (API reference) |
| CloudWatch Logs | ThrottlingException | ServiceUnavailableException | "FilterLogEvents", "Common Error Types" |
| S3 | SlowDown, 503 | InternalError | "Amazon S3 error best practices" |
| SageMaker | ThrottlingException | InternalFailure | "Common Error Types" (API reference) |
| EventBridge Scheduler | ThrottlingException, 429 | InternalServerException | "CreateSchedule" (API reference) |
| SNS | ThrottlingException | InternalError | "Publish"; knowledge center, "ThrottlingException" in SNS |
| SQS | RequestThrottled | InternalFailure | "SendMessage", "Common Error Types" (API reference) |
"""

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
    "batch": BusyErrors(throttle="TooManyRequestsException", throttle_status=429, server_error="ServerException"),
    "dynamodb": BusyErrors(throttle="ProvisionedThroughputExceededException", server_error="InternalServerError"),
    "ec2": BusyErrors(throttle="RequestLimitExceeded", throttle_status=503, server_error="InternalError"),
    "lambda": BusyErrors(throttle="TooManyRequestsException", throttle_status=429, server_error="ServiceException"),
    "logs": BusyErrors(throttle="ThrottlingException", server_error="ServiceUnavailableException"),
    "s3": BusyErrors(throttle="SlowDown", throttle_status=503, server_error="InternalError"),
    "sagemaker": BusyErrors(throttle="ThrottlingException", server_error="InternalFailure"),
    "scheduler": BusyErrors(
        throttle="ThrottlingException", throttle_status=429, server_error="InternalServerException"
    ),
    "sns": BusyErrors(throttle="ThrottlingException", server_error="InternalError"),
    "sqs": BusyErrors(throttle="RequestThrottled", server_error="InternalFailure"),
}
"""By botocore's name of the service."""
