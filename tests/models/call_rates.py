"""The rates at which AWS takes calls: what comes faster is answered with the service's own throttle.

| operation | calls a second | AWS's page |
|---|---|---|
| CreateTrainingJob | 1 | "Amazon SageMaker AI endpoints and quotas", AWS General Reference |
| SubmitServiceJob | 5 | "AWS Batch service quotas", user guide |
| every other operation of Batch | 50 | 'How do I resolve the "Getting error Too Many Requests" error?', AWS re:Post |

All are of an account in a region. For DescribeTrainingJob, StopTrainingJob and Search AWS publishes no rate, so none of
their calls is refused here; how many come in a second is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Final

from botocore.exceptions import ClientError

from spotkeep_local.service_base.busy_errors import BUSY_ERRORS
from tests.models.faults import client_error
from tests.models.unsureness import SERVICES

CALLS_A_SECOND: Final[Mapping[str, int]] = {
    "CreateTrainingJob": 1,
    "SubmitServiceJob": 5,
    **dict.fromkeys(("DescribeServiceJob", "ListServiceJobs", "TerminateServiceJob", "UpdateServiceJob"), 50),
}
_SECOND: Final = 1.0


class CallRates:
    """Holds the calls of an account to AWS's rates.

    Attributes:
        throttled: How many calls were refused, by operation.
        most_in_a_second: The most calls that came within a second, refused ones too, by operation.
    """

    def __init__(self) -> None:
        self.throttled: Counter[str] = Counter()
        self.most_in_a_second: dict[str, int] = {}
        self._taken: dict[str, deque[float]] = defaultdict(deque)
        self._came: dict[str, deque[float]] = defaultdict(deque)

    def refusal_of(self, operation: str, *, at: float) -> ClientError | None:
        """Return what a call gets that comes too fast; None where it is taken.

        Args:
            operation: Of the call.
            at: When it comes, in seconds; calls come in order.
        """
        came, taken = (_within_a_second(times[operation], at=at) for times in (self._came, self._taken))
        came.append(at)
        self.most_in_a_second[operation] = max(len(came), self.most_in_a_second.get(operation, 0))
        if len(taken) >= CALLS_A_SECOND.get(operation, len(taken) + 1):
            self.throttled[operation] += 1
            errors = BUSY_ERRORS[SERVICES[operation]]
            status = {"HTTPStatusCode": errors.throttle_status}
            return client_error(operation, errors.throttle, "Rate exceeded", ResponseMetadata=status)
        taken.append(at)
        return None


def _within_a_second(times: deque[float], *, at: float) -> deque[float]:
    while times and times[0] <= at - _SECOND:
        times.popleft()
    return times
