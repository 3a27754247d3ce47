"""What each user and role called since the local AWS began, and which statements decided: what reports are made of."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spotkeep_local.iam.evaluation import evaluate
from spotkeep_local.iam.report import JudgingTime

if TYPE_CHECKING:
    from spotkeep_local.iam.authorization import Authorization, Call
    from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal, Policies
    from spotkeep_local.iam.policy import StatementId


@dataclass(frozen=True, kw_only=True)
class Question:
    """One authorization with all that decides about it, so that it can be decided about again.

    Attributes:
        authorization: With the condition keys of every request in its context.
        caller: Who asked.
        policies: Those that applied.
    """

    authorization: Authorization
    caller: CallingPrincipal
    policies: Policies

    def decided(self) -> AuthorizationDecision:
        """Decide about it."""
        return evaluate(self.authorization, caller=self.caller, policies=self.policies)

    def without(self, statement: StatementId, action: str) -> Question:
        """Return the question under policies without one action of one statement, of the caller or of the resource."""
        policies = self.policies
        return replace(
            self,
            policies=replace(
                policies,
                identity=tuple(policy.without(statement, action) for policy in policies.identity),
                resource=None if policies.resource is None else policies.resource.without(statement, action),
            ),
        )

    def named_by(self, statements: Collection[StatementId]) -> tuple[str, ...]:
        """Return the texts of these statements of the caller's that name the resource, of those that have several."""
        context = {**self.authorization.context, **self.caller.context}
        return tuple(
            pattern.text
            for policy in self.policies.identity
            for statement in policy.statements
            if len(statement.resources) > 1 and statement.id in statements
            for pattern in statement.resources
            if pattern.matches(self.authorization.resource, context)
        )


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
        self._granted: dict[Use, dict[tuple[str, ...], Question]] = {}
        self._seconds = self._slowest_seconds = 0.0
        self._calls = 0

    def add(
        self,
        identity: str,
        *,
        call: Call,
        authorization: Authorization,
        decision: AuthorizationDecision,
        question: Question | None = None,
    ) -> None:
        """Count what was decided.

        Args:
            identity: The name of the role or the user.
            call: What was called.
            authorization: What it asked for.
            decision: What was decided.
            question: What was decided about; None where the policies were not asked.
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
            if decision.allowed and question is not None:
                self._granted.setdefault(use, {}).setdefault(question.named_by(decision.statements), question)

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
        """Return what judging took."""
        with self._lock:
            return JudgingTime(calls=self._calls, seconds=self._seconds, slowest_seconds=self._slowest_seconds)

    def counted(self) -> Mapping[Use, int]:
        """Return how often each was asked for."""
        with self._lock:
            return dict(self._counts)

    def example(self, use: Use) -> str:
        """Return the first resource that it was asked for."""
        return self._examples[use]

    def granted(self) -> Mapping[Use, Sequence[Question]]:
        """Return questions of each use that was granted: the first by each of the texts that name resources."""
        with self._lock:
            return {use: tuple(questions.values()) for use, questions in self._granted.items()}
