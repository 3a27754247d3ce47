"""The judge of a local AWS from which grants are taken away, and which keeps an example of each permission it granted.

`lifecycle.start` runs it in the server. `control` is its client.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spotkeep_local.iam.judge import Judge, stored_policies
from spotkeep_local.iam.uses import Use
from tests.permissions.proof import PROOFS, prove
from tests.permissions.withheld import MISSED, WITHHELD, Withheld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotkeep_local.iam.authorization import Call
    from spotkeep_local.iam.evaluation import AuthorizationDecision, Question
    from spotkeep_local.service_base.aws_service import Operation


class Examples:
    """The first questions of each use that was granted. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[Use, dict[tuple[str, ...], Question]] = {}

    def add(self, identity: str, *, call: Call, question: Question, decision: AuthorizationDecision) -> None:
        """Keep a question that was granted, unless its statements' resources named an earlier one alike."""
        use = Use(
            identity=identity,
            operation=call.name,
            action=question.authorization.action,
            allowed=True,
            statements=decision.statements,
            reason=decision.reason.value,
        )
        with self._lock:
            self._questions.setdefault(use, {}).setdefault(_resources_named(question, decision), question)

    def granted(self) -> Mapping[Use, Sequence[Question]]:
        """Return the questions of each use."""
        with self._lock:
            return {use: tuple(questions.values()) for use, questions in self._questions.items()}


def _resources_named(question: Question, decision: AuthorizationDecision) -> tuple[str, ...]:
    """Return the texts that name the resource, of the deciding statements of the caller that have several."""
    return tuple(
        pattern.text
        for policy in question.policies.identity
        for statement in policy.statements
        if len(statement.resources) > 1 and statement.id in decision.statements
        for pattern in statement.resources
        if pattern.matches(question.authorization.resource, question.context.values)
    )


class WithholdingJudge(Judge):
    """Denies a call that a withheld grant alone would allow, once."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._withheld = Withheld()
        self._examples = Examples()

    def decided(self, question: Question, *, call: Call, identity: str) -> AuthorizationDecision:
        """Decide as if withheld grants were not deployed."""
        granted = super().decided(question, call=call, identity=identity)
        if not granted.allowed:
            return granted
        denial = self._withheld.denial(identity, call=call, question=question, granted=granted)
        if denial is None:
            self._examples.add(identity, call=call, question=question, decision=granted)
        return denial or granted

    def control_operations(self) -> dict[str, Operation]:
        """Return the operations of every judge, and those of `control`."""
        return {
            **super().control_operations(),
            "Missed": self._missed,
            "Proofs": self._proofs,
            "Withhold": self._withhold,
        }

    def _proofs(self, _request: dict[str, Any]) -> Mapping[str, Any]:
        policies = {name: policies for name, (policies, _problems) in stored_policies().items()}
        document: Mapping[str, Any] = PROOFS.dump_python(prove(policies, self._examples.granted()), mode="json")
        return document

    def _withhold(self, request: dict[str, Any]) -> Mapping[str, Any]:
        self._withheld.withhold(WITHHELD.validate_python(request.get("grants")))
        return {}

    def _missed(self, _request: dict[str, Any]) -> Mapping[str, Any]:
        return {"missed": MISSED.dump_python(list(self._withheld.missed()), mode="json")}
