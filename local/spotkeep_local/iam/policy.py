"""Policy documents, read whole. A document with any unknown part is refused, and the error names all such parts.

Sources: "IAM JSON policy element reference", "Grammar of the IAM JSON policy language", "AWS JSON policy elements:
Principal" and ": NotPrincipal" in the IAM user guide.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam.conditions import Condition, read_condition
from spotkeep_local.iam.patterns import Pattern, read_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class PolicyKind(StrEnum):
    """The kind of thing that a document is attached to. It decides about required and forbidden elements."""

    IDENTITY = "identity"
    """Users, roles. Also permissions boundaries and session policies. No principals."""
    RESOURCE = "resource"
    TRUST = "trust"
    """The trust policy of a role, about the principals that may assume it. It names no resources."""


class Effect(StrEnum):
    """The effect of a statement on the requests that it applies to."""

    ALLOW = "Allow"
    DENY = "Deny"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement. Of each pair (`actions` and `not_actions`, and so on) at most one is not empty.

    Attributes:
        id: Its place as `policy#index`, with its own name in brackets where it has one. The policy is called as it was
            read, for example `spotkeep-launcher/DefaultPolicy`.
        actions: Actions in lower case, because names of actions are not case-sensitive. Their `text` is as written.
        resources: Empty in trust policies.
        principals: ARNs of users, roles and sessions, ids of accounts, and names of services. An account's id stands
            for its root user's ARN. A service is for example `events.amazonaws.com`. `*` stands for everyone. No caller
            of the local AWS is `Federated` or a `CanonicalUser`. None in identity policies, and where `NotPrincipal`
            stands.
    """

    id: str
    effect: Effect
    actions: tuple[Pattern, ...] = ()
    not_actions: tuple[Pattern, ...] = ()
    resources: tuple[Pattern, ...] = ()
    not_resources: tuple[Pattern, ...] = ()
    principals: frozenset[str] | None = None
    not_principals: frozenset[str] | None = None
    conditions: tuple[Condition, ...] = ()

    def names_action(self, action: str) -> bool:
        """Return whether it is about an action, given in lower case."""
        if self.actions:
            return any(pattern.matches(action, {}) for pattern in self.actions)
        return not any(pattern.matches(action, {}) for pattern in self.not_actions)

    def names_resource(self, resource: str, values: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether it is about a resource, with its policy variables filled in."""
        if self.resources:
            return any(pattern.matches(resource, values) for pattern in self.resources)
        return not any(pattern.matches(resource, values) for pattern in self.not_resources)


@dataclass(frozen=True, kw_only=True)
class PolicyDocument:
    """One policy document, read.

    Attributes:
        name: Its name in reports.
        statements: In their order.
    """

    name: str
    statements: tuple[Statement, ...]

    def about(self, action: str) -> tuple[Statement, ...]:
        """Return the statements about an action in lower case. Answers are kept, because a role has few actions."""
        if (found := self._about.get(action)) is None:
            found = tuple(statement for statement in self.statements if statement.names_action(action))
            self._about[action] = found
        return found

    @functools.cached_property
    def _about(self) -> dict[str, tuple[Statement, ...]]:
        return {}

    def without(self, statement: str, action: str) -> PolicyDocument:
        """Return the policy without one action of one statement. Without the statement, when that was its last one.

        Args:
            statement: The statement's id.
            action: The action as it is written there.
        """
        kept = []
        for each in self.statements:
            if each.id != statement:
                kept.append(each)
            elif actions := tuple(pattern for pattern in each.actions if pattern.text != action):
                kept.append(replace(each, actions=actions))
        return PolicyDocument(name=self.name, statements=tuple(kept))


def read_policy(document: Mapping[str, Any], *, name: str, kind: PolicyKind) -> PolicyDocument:
    """Read a policy document.

    Args:
        document: The document as IAM or the resource stores it, parsed from JSON.
        name: Its name in reports.
        kind: The kind of thing that it is attached to.

    Raises:
        IamPolicyError: It holds elements that AWS does not know, or lacks required ones. The error names all of them.
    """
    problems = [f"the element `{key}` is not known" for key in document if key not in ("Version", "Id", "Statement")]
    version = document.get("Version", _VERSION_WITHOUT_VARIABLES)
    if version not in (_VERSION_WITHOUT_VARIABLES, _VERSION_WITH_VARIABLES):
        problems.append(f"Version: `{version}` is neither {_VERSION_WITH_VARIABLES} nor {_VERSION_WITHOUT_VARIABLES}")
    written = document.get("Statement", [])
    statements = []
    for index, each in enumerate([written] if isinstance(written, Mapping) else written):
        sid = each.get("Sid") if isinstance(each, Mapping) else None
        reader = _StatementReader(
            written=each if isinstance(each, Mapping) else {},
            id=f"{name}#{index}" + (f" ({sid})" if isinstance(sid, str) and sid else ""),
            kind=kind,
            variables=version == _VERSION_WITH_VARIABLES,
        )
        statements.append(reader.read())
        problems += (f"Statement[{index}]: {problem}" for problem in reader.problems)
    if not statements:
        problems.append("there is no Statement")
    if problems:
        raise IamPolicyError(name, problems=problems)
    return PolicyDocument(name=name, statements=tuple(statements))


_VERSION_WITH_VARIABLES: Final = "2012-10-17"
_VERSION_WITHOUT_VARIABLES: Final = "2008-10-17"
_ELEMENTS: Final = frozenset(
    ("Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition")
)
_ACTION: Final = re.compile(r"\*|[A-Za-z0-9-]+:[A-Za-z0-9*?]+")
_ACCOUNT: Final = re.compile(r"\d{12}")
_ROOT: Final = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}):root")
_PRINCIPAL: Final = re.compile(
    r"arn:aws[a-z-]*:(?:iam::\d{12}:(?:user|role)/[^*?]+|sts::\d{12}:(?:assumed-role/[^*?/]+/[^*?/]+|federated-user/[^*?]+))"
)
_SERVICE: Final = re.compile(r"[a-z0-9.-]+\.(?:amazonaws\.com(?:\.cn)?|internal|aws\.internal)")
_SECTIONS_BEFORE_THE_RESOURCE: Final = 5


class _StatementReader:
    """Reads one statement and collects everything that is wrong with it."""

    def __init__(self, *, written: Mapping[str, Any], id: str, kind: PolicyKind, variables: bool) -> None:  # noqa: A002
        self._written = written
        self._id = id
        self._kind = kind
        self._variables = variables
        self.problems: list[str] = []

    def read(self) -> Statement:
        self.problems += [f"the element `{key}` is not known" for key in self._written if key not in _ELEMENTS]
        sid = self._written.get("Sid", "")
        if not isinstance(sid, str):
            self.problems.append(f"Sid: `{sid}` is not text")
        self._exactly_one("Action", "NotAction")
        if self._kind is PolicyKind.TRUST:
            self._none_of("Resource", "NotResource", why="a trust policy is about its role")
        else:
            self._exactly_one("Resource", "NotResource")
        if self._kind is PolicyKind.IDENTITY:
            self._none_of("Principal", "NotPrincipal", why="the policy of an identity is about that identity")
        else:
            self._exactly_one("Principal", "NotPrincipal")
        return Statement(
            id=self._id,
            effect=self._effect(),
            actions=self._patterns("Action", self._action),
            not_actions=self._patterns("NotAction", self._action),
            resources=self._patterns("Resource", self._resource),
            not_resources=self._patterns("NotResource", self._resource),
            principals=self._principals("Principal"),
            not_principals=self._principals("NotPrincipal"),
            conditions=tuple(self._conditions()),
        )

    def _exactly_one(self, element: str, other: str) -> None:
        if (element in self._written) is (other in self._written):
            both = "both are there" if element in self._written else "neither is there"
            self.problems.append(f"either `{element}` or `{other}` must be there: {both}")

    def _none_of(self, *elements: str, why: str) -> None:
        self.problems += [f"`{element}` must not be there: {why}" for element in elements if element in self._written]

    def _effect(self) -> Effect:
        effect = self._written.get("Effect")
        if effect in (Effect.ALLOW, Effect.DENY):
            return Effect(effect)
        self.problems.append(f"Effect: `{effect}` is neither Allow nor Deny")
        return Effect.DENY

    def _patterns(self, element: str, read: Callable[[str], Pattern]) -> tuple[Pattern, ...]:
        found = []
        for text in self._texts(element, self._written[element]) if element in self._written else ():
            try:
                found.append(read(text))
            except ValueError as error:
                self.problems.append(f"{element}: {error}")
        return tuple(found)

    def _texts(self, element: str, written: Any) -> Iterator[str]:
        several = written if isinstance(written, Sequence) and not isinstance(written, str) else [written]
        if not several:
            self.problems.append(f"{element}: there is no value")
        for each in several:
            match each:
                case str():
                    yield each
                case bool():
                    yield "true" if each else "false"
                case int() | float():
                    yield str(each)
                case _:
                    self.problems.append(f"{element}: `{each}` is not text")

    def _action(self, text: str) -> Pattern:
        if not _ACTION.fullmatch(text):
            raise ValueError(f"`{text}` is no action; write `service:Name`, with `*` and `?` in the name only, or `*`")
        return Pattern(text, read_pattern(text.lower(), wildcards=True, variables=False).parts)

    def _resource(self, text: str) -> Pattern:
        if text != "*" and not text.startswith("arn:"):
            raise ValueError(f"`{text}` is no ARN; write one, or `*`")
        pattern = read_pattern(text, wildcards=True, variables=self._variables)
        before = text.partition("${")[0] if pattern.variables else text
        if pattern.variables and before.count(":") < _SECTIONS_BEFORE_THE_RESOURCE:
            raise ValueError(f"`{text}` has a policy variable before its fifth colon, where AWS takes none")
        return pattern

    def _principals(self, element: str) -> frozenset[str] | None:
        written = self._written.get(element)
        if written is None:
            return None
        if written == "*":
            return frozenset("*")
        if not isinstance(written, Mapping) or not written:
            self.problems.append(f"{element}: `{written}` is neither `*` nor a type of principal with its principals")
            return frozenset()
        found = set()
        for kind, given in written.items():
            for text in self._texts(f"{element}.{kind}", given):
                if kind == "AWS" and (account := _ROOT.fullmatch(text)):
                    found.add(account[1])
                elif (
                    (kind == "AWS" and text == "*" and element == "Principal")
                    or (kind == "AWS" and (_ACCOUNT.fullmatch(text) or _PRINCIPAL.fullmatch(text)))
                    or (kind == "Service" and _SERVICE.fullmatch(text))
                ):
                    found.add(text)
                elif kind not in ("Federated", "CanonicalUser"):
                    self.problems.append(f"{element}.{kind}: `{text}` is no principal that is known")
        return frozenset(found)

    def _conditions(self) -> Iterator[Condition]:
        written = self._written.get("Condition", {})
        if not isinstance(written, Mapping):
            self.problems.append(f"Condition: `{written}` is not an object")
            return
        for operator, keys in written.items():
            if not isinstance(keys, Mapping):
                self.problems.append(f"Condition.{operator}: `{keys}` is not an object")
                continue
            for key, given in keys.items():
                values = tuple(self._texts(f"Condition.{operator}.{key}", given))
                try:
                    yield read_condition(operator, key, values, variables=self._variables)
                except ValueError as error:
                    self.problems.append(f"Condition: {error}")
