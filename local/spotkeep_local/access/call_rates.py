"""The rates at which AWS accepts calls. Calls beyond them get the service's own throttling error. Pure.

| operation | calls a second | AWS's page |
|---|---|---|
| CreateTrainingJob | 1 | "Amazon SageMaker AI endpoints and quotas", AWS General Reference |
| SubmitServiceJob | 5 | "AWS Batch service quotas", user guide |
| every other operation of Batch | 50 | 'How do I resolve the "Getting error Too Many Requests" error?', AWS re:Post |

All are of an account in a region. For DescribeTrainingJob, StopTrainingJob and Search AWS publishes no rate, so none of
their calls is refused here. Their calls in each second are counted.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CALLS_A_SECOND: Final[Mapping[str, int]] = {
    "CreateTrainingJob": 1,
    "SubmitServiceJob": 5,
    **dict.fromkeys(("DescribeServiceJob", "ListServiceJobs", "TerminateServiceJob", "UpdateServiceJob"), 50),
}
SERVICES: Final = frozenset({"batch", "sagemaker"})
"""The services with these operations, by botocore's names."""
_SECOND: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class CallCounts:
    """The rates of calls, by operation.

    Attributes:
        most_in_a_second: The most calls within a second, refused ones too.
        throttled: The number of calls that were refused because they came too fast.
    """

    most_in_a_second: Mapping[str, int] = field(default_factory=dict)
    throttled: Mapping[str, int] = field(default_factory=dict)


class CallRates:
    """Holds the calls of an account to rates, and counts them. Safe to call from any thread.

    Args:
        limits: The number of calls accepted in a second, by operation. An operation that is not there has no limit.
    """

    def __init__(self, limits: Mapping[str, int] = CALLS_A_SECOND) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._taken: dict[str, deque[float]] = defaultdict(deque)
        self._came: dict[str, deque[float]] = defaultdict(deque)
        self._most_in_a_second: dict[str, int] = {}
        self._throttled: Counter[str] = Counter()

    def takes(self, operation: str, *, at: float) -> bool:
        """Return whether a call is taken. A refused one leaves its place to the next.

        Args:
            operation: Of the call.
            at: The time of the call, in seconds. Calls come in order.
        """
        with self._lock:
            came, taken = (_within_a_second(times[operation], at=at) for times in (self._came, self._taken))
            came.append(at)
            self._most_in_a_second[operation] = max(len(came), self._most_in_a_second.get(operation, 0))
            if len(taken) >= self._limits.get(operation, len(taken) + 1):
                self._throttled[operation] += 1
                return False
            taken.append(at)
            return True

    def counts(self) -> CallCounts:
        """Return the rates of calls, and begin to count anew."""
        with self._lock:
            counts = CallCounts(most_in_a_second=self._most_in_a_second, throttled=dict(self._throttled))
            self._most_in_a_second, self._throttled = {}, Counter()
            return counts


def _within_a_second(times: deque[float], *, at: float) -> deque[float]:
    while times and times[0] <= at - _SECOND:
        times.popleft()
    return times
