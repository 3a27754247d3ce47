"""As unsure as AWS is: which calls of a story are throttled, which answers get lost, and what is read late.

`faults` makes what this chooses happen. A story switches it on; without it a model answers at once and truly, as tests
of one thing need it. With which errors a service says that it cannot answer now is in the local AWS's `error_answers`.

An answer is lost as a server error or as a connection that is silent until the client's time is over; the call has
taken effect. "Making retries safe with idempotent APIs" (Amazon Builders' Library) is about both; of S3 "Amazon S3
error best practices" says that a request whose answer was an error may or may not have been processed.

| what is read | late here | AWS's page |
|---|---|---|
| S3, consistent reads of DynamoDB | never | "What is Amazon S3?", data consistency model; "DynamoDB read consistency" |
| other reads of DynamoDB, its indexes | while replicas lag | "DynamoDB read consistency" |
| what SageMaker says of jobs; Batch's list of jobs | while replicas lag; what is new is not found | no page denies it |
| events | in any order, again, or never | "Delivery level for AWS service events": best effort, or at least once |

EC2 is "eventually consistent" by its own guide. In stories of fleets it throttles and loses answers, and nothing is
read late. The tests of its backend read late.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ReadTimeoutError

from spotkeep_local.service_base.error_answers import BUSY_ERRORS
from tests.models.faults import Fault, client_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import BotoCoreError, ClientError

THROTTLED_SHARE: Final = 0.03
LOST_SHARE: Final = 0.02
"""Of all calls, after a client's own retries: far more than AWS's, so that each call of a story may be hit."""

_SELDOM_CALLED: Final = frozenset({"logs", "scheduler", "sns"})
_TIMES_FOR_SELDOM_CALLED: Final = 4
"""A story makes few calls of these services, most none: the same share of them would be none in hundreds of stories."""

_SILENT_SHARE: Final = 0.5
"""Of the answers that are lost."""


SERVICES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "SubmitServiceJob", "DescribeServiceJob", "ListServiceJobs", "TerminateServiceJob", "UpdateServiceJob",
        ),
        "batch",
    ),
    **dict.fromkeys(("GetItem", "PutItem", "DeleteItem", "Query", "Scan", "TransactWriteItems"), "dynamodb"),
    **dict.fromkeys(("DescribeLogStreams", "FilterLogEvents"), "logs"),
    **dict.fromkeys(("ListObjectsV2", "PutObject"), "s3"),
    **dict.fromkeys(
        (
            "CreateFleet", "CreateLaunchTemplateVersion", "DeleteFleets", "DeleteLaunchTemplateVersions",
            "DescribeFleetHistory", "DescribeFleets", "DescribeImages", "DescribeInstances",
            "DescribeLaunchTemplateVersions", "DescribeSnapshots", "DescribeSpotPriceHistory", "DescribeVolumes",
            "GetConsoleOutput", "TerminateInstances",
        ),
        "ec2",
    ),
    **dict.fromkeys(
        (
            "CreateTrainingJob", "DescribeTrainingJob", "ListTags", "ListTrainingJobs", "Search", "StopTrainingJob",
            "UpdateTrainingJob",
        ),
        "sagemaker",
    ),
    "CreateSchedule": "scheduler",
    "Publish": "sns",
    "Invoke": "lambda",
    **dict.fromkeys(("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"), "sqs"),
}  # fmt: skip
"""Botocore's names of the services, by operation. An operation that is not here is a KeyError: add it."""


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
        service = SERVICES[operation]
        drawn = self._chance.random() / (_TIMES_FOR_SELDOM_CALLED if service in _SELDOM_CALLED else 1)
        if drawn < THROTTLED_SHARE:
            self.met[f"throttled: {service}"] += 1
            return Fault.REFUSED
        if drawn < THROTTLED_SHARE + LOST_SHARE:
            self.met[f"answers lost: {service}"] += 1
            return Fault.ANSWER_LOST
        return None

    def error_of(self, fault: Fault, operation: str) -> ClientError | BotoCoreError:
        """Return what the caller gets: the service's throttle, a server error, or no answer in time."""
        if fault is Fault.REFUSED:
            return throttle_of(operation)
        if self._chance.random() < _SILENT_SHARE:
            return ReadTimeoutError(endpoint_url=f"https://{operation}.amazonaws.com")
        errors = BUSY_ERRORS[SERVICES[operation]]
        return client_error(operation, errors.server_error, ResponseMetadata={"HTTPStatusCode": 500})


def throttle_of(operation: str) -> ClientError:
    """Return what a client gets whose call is one too many: the throttle of the operation's service."""
    errors = BUSY_ERRORS[SERVICES[operation]]
    status = {"HTTPStatusCode": errors.throttle_status}
    return client_error(operation, errors.throttle, "Rate exceeded", ResponseMetadata=status)
