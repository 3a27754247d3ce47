"""Grants that are taken away in place, until a call misses them: what is deployed stays as it is.

A call that a withheld grant alone would allow is denied, once: with this denial the grant is given back, so that what
was refused can be tried again and gets one step further.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from spotkeep_local.iam.denial import denial_message
from spotkeep_local.iam.patterns import read_pattern

if TYPE_CHECKING:
    from spotkeep_local.iam.authorization import Call
    from spotkeep_local.iam.evaluation import AuthorizationDecision, Question


@dataclass(frozen=True, kw_only=True)
class WithheldGrant:
    """One action of one statement of a role or user.

    Attributes:
        identity: The name of the role or the user.
        statement: Its policy, its place there, and its own name.
        action: As it is written there.
    """

    identity: str
    statement: str
    action: str


@dataclass(frozen=True, kw_only=True)
class MissedGrant:
    """A withheld grant, and the call that was denied for want of it.

    Attributes:
        grant: The grant, which is given back.
        operation: botocore's names: `s3.GetObject`.
        denial: AWS's message, which the caller got.
    """

    grant: WithheldGrant
    operation: str
    denial: str


WITHHELD: Final[TypeAdapter[list[WithheldGrant]]] = TypeAdapter(list[WithheldGrant])
MISSED: Final[TypeAdapter[list[MissedGrant]]] = TypeAdapter(list[MissedGrant])
"""How both are sent: as JSON."""


class Withheld:
    """What is withheld, and what was missed. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grants: frozenset[WithheldGrant] = frozenset()
        self._missed: list[MissedGrant] = []

    def withhold(self, grants: Iterable[WithheldGrant]) -> None:
        """Withhold these grants, and give back all others."""
        with self._lock:
            self._grants = frozenset(grants)

    def missed(self) -> Sequence[MissedGrant]:
        """Return what was missed so far, in its order."""
        with self._lock:
            return tuple(self._missed)

    def denial(
        self, identity: str, *, call: Call, question: Question, granted: AuthorizationDecision
    ) -> AuthorizationDecision | None:
        """Return the denial of what would be granted with what is withheld; None where it is granted without.

        Args:
            identity: The name of the role or the user that asks.
            call: What is called.
            question: What is decided about.
            granted: The decision with everything.
        """
        if not self._grants:
            return None
        with self._lock:
            taken, without = [], question
            for grant in self._grants:
                if grant.identity == identity and grant.statement in granted.statements and _names(grant, question):
                    taken.append(grant)
                    without = without.without(grant.statement, grant.action)
            decision = without.decided() if taken else granted
            if decision.allowed:
                return None
            message = denial_message(without.authorization, decision, without.caller)
            self._missed += [MissedGrant(grant=grant, operation=call.name, denial=message) for grant in taken]
            self._grants = self._grants.difference(taken)
            return decision


def _names(grant: WithheldGrant, question: Question) -> bool:
    pattern = read_pattern(grant.action.lower(), wildcards=True, variables=False)
    return pattern.matches(question.action, {})
