"""What each user and role called since the local AWS began, and which statements decided: what reports are made of."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_local.iam.authorization import Authorization, Call
    from spotkeep_local.iam.evaluation import Decision
    from spotkeep_local.iam.policy import StatementId


@dataclass(frozen=True, kw_only=True)
class Use:
    """One permission that was asked for, however often.

    Attributes:
        identity: The name of the role or the user.
        service: botocore's name of the called service.
        operation: botocore's name of the called operation.
        action: As in policies.
        allowed: Whether it was granted.
        statements: Those that granted or denied it.
        reason: Why, in words.
    """

    identity: str
    service: str
    operation: str
    action: str
    allowed: bool
    statements: tuple[StatementId, ...]
    reason: str


class Uses:
    """Counts uses. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Use, int] = {}
        self._examples: dict[Use, str] = {}

    def add(self, identity: str, *, call: Call, authorization: Authorization, decision: Decision) -> None:
        """Count what was decided.

        Args:
            identity: The name of the role or the user.
            call: What was called.
            authorization: What it asked for.
            decision: What was decided.
        """
        use = Use(
            identity=identity,
            service=call.service,
            operation=call.operation,
            action=authorization.action,
            allowed=decision.allowed,
            statements=decision.statements,
            reason=decision.unknown or decision.reason.value,
        )
        with self._lock:
            self._counts[use] = self._counts.get(use, 0) + 1
            self._examples.setdefault(use, authorization.resource)

    def counted(self) -> Mapping[Use, int]:
        """Return how often each was asked for."""
        with self._lock:
            return dict(self._counts)

    def example(self, use: Use) -> str:
        """Return the first resource that it was asked for."""
        return self._examples[use]
