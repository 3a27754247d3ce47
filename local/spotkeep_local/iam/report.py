"""The calls of each role and user, the statements that allowed them, and the grants that nothing used. Pure.

A grant is one action of one statement that allows. A grant with wildcards is used when any action that it names is
used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from spotkeep_local.iam.policy import Effect

if TYPE_CHECKING:
    from spotkeep_local.iam.policy import PolicyDocument
    from spotkeep_local.iam.uses import Counted, Use


@dataclass(frozen=True, kw_only=True)
class Called:
    """One permission that an identity asked for.

    Attributes:
        operation: botocore's names: `dynamodb.TransactWriteItems`.
        action: The action as in policies, for example `dynamodb:PutItem`.
        times: The number of times that it was asked for.
        example: The first resource that it was asked for.
        statements: Those that allowed it, or denied it. Empty where no statement is about it.
    """

    operation: str
    action: str
    times: int
    example: str
    statements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Denied(Called):
    """One permission that an identity asked for and did not get.

    Attributes:
        reason: The reason, in words.
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One action of one statement that allows.

    Attributes:
        statement: Its policy, its place there, and its own name.
        action: The action as it is written, with its wildcards.
    """

    statement: str
    action: str


@dataclass(frozen=True, kw_only=True)
class IdentityReport:
    """The use that one role or user made of its permissions.

    Attributes:
        name: The name of the role or the user.
        granted: The permissions that it asked for and got.
        denied: The permissions that it asked for and did not get.
        unused: The grants that nothing used.
        problems: The policies that cannot be judged, with the reasons. All calls of the identity are then denied.
    """

    name: str
    granted: tuple[Called, ...]
    denied: tuple[Denied, ...]
    unused: tuple[Grant, ...]
    problems: tuple[str, ...] = ()


REPORTS: Final[TypeAdapter[list[IdentityReport]]] = TypeAdapter(list[IdentityReport])
"""The form in which reports are sent and kept, which is JSON."""


def report_of(
    uses: Mapping[Use, Counted],
    *,
    policies: Mapping[str, Sequence[PolicyDocument]],
    problems: Mapping[str, Sequence[str]],
) -> tuple[IdentityReport, ...]:
    """Put together the used and the unused grants.

    Args:
        uses: The number of times that each permission was asked for.
        policies: The identity policies of every role and user in the report.
        problems: The reasons that others of their policies cannot be judged.
    """
    return tuple(
        _of_identity(
            name,
            {use: counted for use, counted in uses.items() if use.identity == name},
            policies=own,
            problems=problems.get(name, ()),
        )
        for name, own in sorted(policies.items())
    )


def _of_identity(
    name: str, uses: Mapping[Use, Counted], *, policies: Sequence[PolicyDocument], problems: Sequence[str]
) -> IdentityReport:
    ordered = sorted(uses, key=lambda use: (use.operation, use.action))
    asked: dict[Use, dict[str, Any]] = {
        use: {
            "operation": use.operation,
            "action": use.action,
            "times": uses[use].times,
            "example": uses[use].example,
            "statements": use.statements,
        }
        for use in ordered
    }
    return IdentityReport(
        name=name,
        granted=tuple(Called(**asked[use]) for use in ordered if use.allowed),
        denied=tuple(Denied(**asked[use], reason=use.reason) for use in ordered if not use.allowed),
        unused=tuple(
            Grant(statement=statement.id, action=pattern.text)
            for policy in policies
            for statement in policy.statements
            if statement.effect is Effect.ALLOW
            for pattern in statement.actions
            if not any(
                use.allowed and statement.id in use.statements and pattern.matches(use.action.lower(), {})
                for use in uses
            )
        ),
        problems=tuple(problems),
    )
