"""The calls of each user and role since the local AWS began, with the statements that decided. Reports show them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from spotkeep_local.iam.authorization import Authorization, Call
    from spotkeep_local.iam.evaluation import AuthorizationDecision


@dataclass(frozen=True, kw_only=True)
class Use:
    """One permission that was asked for, however often.

    Attributes:
        identity: The name of the role or the user.
        operation: botocore's names: `s3.GetObject`.
        action: The action as in policies.
        allowed: True where it was granted.
        statements: Those that granted or denied it.
        reason: The reason, in words.
    """

    identity: str
    operation: str
    action: str
    allowed: bool
    statements: tuple[str, ...]
    reason: str


@dataclass(kw_only=True)
class Counted:
    """The number of times that a permission was asked for.

    Attributes:
        example: The first resource that it was asked for.
        times: The number of times.
    """

    example: str
    times: int = 0


@dataclass(frozen=True, kw_only=True)
class JudgingTime:
    """The processor time that judging took since the local AWS began.

    Attributes:
        calls: The number of judged requests and of judged calls that services made by themselves.
        seconds: The seconds for reading requests, their authorizations and policies, for deciding and for counting.
        slowest_seconds: The seconds of the slowest one, as the first of a service reads AWS's documentation of it.
    """

    calls: int
    seconds: float
    slowest_seconds: float


JUDGING_TIME: Final[TypeAdapter[JudgingTime]] = TypeAdapter(JudgingTime)
"""The form in which it is sent and kept, which is JSON."""


class Uses:
    """Counts uses. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[Use, Counted] = {}
        self._seconds = self._slowest_seconds = 0.0
        self._calls = 0

    def add(
        self,
        identity: str,
        *,
        call: Call,
        authorization: Authorization,
        decision: AuthorizationDecision,
    ) -> None:
        """Count a decision.

        Args:
            identity: The name of the role or the user.
            call: The call.
            authorization: The permission that it needed.
            decision: The decision about it.
        """
        use = Use(
            identity=identity,
            operation=call.name,
            action=authorization.action,
            allowed=decision.allowed,
            statements=decision.statements,
            reason=decision.unknown or decision.reason.value,
        )
        with self._lock:
            counted = self._counted.setdefault(use, Counted(example=authorization.resource))
            counted.times += 1

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the processor time that this thread takes meanwhile as the judging of one call."""
        began = time.thread_time()
        try:
            yield
        finally:
            taken = time.thread_time() - began
            with self._lock:
                self._calls += 1
                self._seconds += taken
                self._slowest_seconds = max(self._slowest_seconds, taken)

    def judging_time(self) -> JudgingTime:
        """Return the time that judging took."""
        with self._lock:
            return JudgingTime(calls=self._calls, seconds=self._seconds, slowest_seconds=self._slowest_seconds)

    def counted(self) -> Mapping[Use, Counted]:
        """Return the number of times that each was asked for."""
        with self._lock:
            return dict(self._counted)
