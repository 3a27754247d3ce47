"""As unsure as AWS is: which calls of a story are throttled, which answers get lost, and what is read late.

`faults` makes what this chooses happen. A story switches it on; without it a model answers at once and truly, as tests
of one thing need it. What AWS documents, service by service:

| service | refuses one call too many with | has an error of its own: 500 | AWS's page |
|---|---|---|---|
| DynamoDB | ProvisionedThroughputExceededException | InternalServerError | "Error handling with DynamoDB" |
| EventBridge Scheduler | ThrottlingException, 429 | InternalServerException | "CreateSchedule" (API reference) |
| CloudWatch Logs | ThrottlingException | ServiceUnavailableException | "FilterLogEvents", "Common Error Types" |
| S3 | SlowDown, 503 | InternalError | "Amazon S3 error best practices" |
| SageMaker | ThrottlingException | InternalFailure | "Common Error Types" (API reference) |
| SNS | ThrottlingException | InternalError | "Publish"; knowledge center, "ThrottlingException" in SNS |
| SQS | RequestThrottled | InternalFailure | "SendMessage", "Common Error Types" (API reference) |

An answer is lost as a server error or as a connection that is silent until the client's time is over; the call has
taken effect. "Making retries safe with idempotent APIs" (Amazon Builders' Library) is about both; of S3 "Amazon S3
error best practices" says that a request whose answer was an error may or may not have been processed.

| what is read | late here | AWS's page |
|---|---|---|
| S3, consistent reads of DynamoDB | never | "What is Amazon S3?", data consistency model; "DynamoDB read consistency" |
| other reads of DynamoDB, its indexes | while replicas lag | "DynamoDB read consistency" |
| what SageMaker says of jobs, and their tags | while replicas lag; what is new is not found | no page denies it |
| events | in any order, again, or never | "Delivery level for AWS service events": best effort, or at least once |

EC2, which is "eventually consistent" by its own guide, is in no story: they are about training jobs.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ReadTimeoutError

from tests.models.faults import Fault, client_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import BotoCoreError, ClientError

THROTTLED_SHARE: Final = 0.03
LOST_SHARE: Final = 0.02
"""Of all calls, after a client's own retries: far more than AWS's, so that each call of a story may be hit."""

_SILENT_SHARE: Final = 0.5
"""Of the answers that are lost."""


@dataclass(frozen=True, kw_only=True)
class ServiceErrors:
    """How one service says that it cannot answer now.

    Attributes:
        service: Its name.
        throttle: The code with which it refuses one call too many.
        throttle_status: The HTTP status of that.
        server_error: The code of a server error, whose status is 500.
    """

    service: str
    throttle: str
    throttle_status: int = 400
    server_error: str


_DYNAMODB: Final = ServiceErrors(
    service="DynamoDB", throttle="ProvisionedThroughputExceededException", server_error="InternalServerError"
)
_SCHEDULER: Final = ServiceErrors(
    service="Scheduler",
    throttle="ThrottlingException",
    throttle_status=429,
    server_error="InternalServerException",
)
_LOGS: Final = ServiceErrors(service="Logs", throttle="ThrottlingException", server_error="ServiceUnavailableException")
_S3: Final = ServiceErrors(service="S3", throttle="SlowDown", throttle_status=503, server_error="InternalError")
_SAGEMAKER: Final = ServiceErrors(service="SageMaker", throttle="ThrottlingException", server_error="InternalFailure")
_SNS: Final = ServiceErrors(service="SNS", throttle="ThrottlingException", server_error="InternalError")
_SQS: Final = ServiceErrors(service="SQS", throttle="RequestThrottled", server_error="InternalFailure")

_ERRORS: Final[Mapping[str, ServiceErrors]] = {
    **dict.fromkeys(("GetItem", "PutItem", "DeleteItem", "Query", "TransactWriteItems"), _DYNAMODB),
    "CreateSchedule": _SCHEDULER,
    **dict.fromkeys(("DescribeLogStreams", "FilterLogEvents"), _LOGS),
    "ListObjectsV2": _S3,
    **dict.fromkeys(
        (
            "CreateTrainingJob", "DescribeTrainingJob", "ListTags", "ListTrainingJobs", "Search", "StopTrainingJob",
            "UpdateTrainingJob",
        ),
        _SAGEMAKER,
    ),
    "Publish": _SNS,
    **dict.fromkeys(("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"), _SQS),
}  # fmt: skip
"""By operation."""


class Unsureness:
    """Chooses what becomes of each call.

    Args:
        seed: What chance starts from.

    Attributes:
        met: How often each thing happened, by service.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a story's, to be repeated
        self.met: Counter[str] = Counter()

    def fault_of(self, operation: str) -> Fault | None:
        """Choose what a call meets, and count it."""
        drawn = self._chance.random()
        service = errors_of(operation).service
        if drawn < THROTTLED_SHARE:
            self.met[f"throttled: {service}"] += 1
            return Fault.REFUSED
        if drawn < THROTTLED_SHARE + LOST_SHARE:
            self.met[f"answers lost: {service}"] += 1
            return Fault.ANSWER_LOST
        return None

    def error_of(self, fault: Fault, operation: str) -> ClientError | BotoCoreError:
        """Return what the caller gets: the service's throttle, a server error, or no answer in time."""
        errors = errors_of(operation)
        if fault is Fault.REFUSED:
            status = {"HTTPStatusCode": errors.throttle_status}
            return client_error(operation, errors.throttle, "Rate exceeded", ResponseMetadata=status)
        if self._chance.random() < _SILENT_SHARE:
            return ReadTimeoutError(endpoint_url=f"https://{operation}.amazonaws.com")
        return client_error(operation, errors.server_error, ResponseMetadata={"HTTPStatusCode": 500})


def errors_of(operation: str) -> ServiceErrors:
    """Return how the service of an operation says that it cannot answer now.

    Raises:
        KeyError: The table has no such operation: add it, with AWS's page.
    """
    return _ERRORS[operation]
