"""Proves grants and bounds by taking them away: what was granted is decided about again, and must be denied. Pure.

| is taken away, or made wrong | the call must be |
|---|---|
| an action of a statement that allows | denied |
| the value of a condition's key, or of a policy variable | denied |
| the resource: another account, another name in its place | denied |
| (a statement that denies:) what it denies is asked for | denied by this statement |

What is proven is a statement of a role or a user, or of a resource's policy. Only what was granted since the local AWS
began can be asked for again: a grant that nothing used is without proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.conditions import Quantifier, UndefinedConditionError
from spotkeep_local.iam.denial import denial_message
from spotkeep_local.iam.evaluation import Question, is_assuming
from spotkeep_local.iam.patterns import Pattern, Variable
from spotkeep_local.iam.policy import Effect

if TYPE_CHECKING:
    from spotkeep_local.iam.conditions import Condition, RequestContext
    from spotkeep_local.iam.evaluation import AuthorizationDecision
    from spotkeep_local.iam.policy import PolicyDocument, Statement
    from spotkeep_local.iam.uses import Use

ANOTHER: Final = "another-"
"""Before a name, it makes another."""
ANOTHER_ACCOUNT: Final = "999999999999"
_ACCOUNT_SECTION: Final = 4
_ARN_SECTIONS: Final = 6
_ACCOUNT: Final = re.compile(r"\d{12}")
# What the evaluation itself puts into every request: it is never missing.
_NEVER_MISSING: Final = frozenset({"aws:resourceaccount"})


@dataclass(frozen=True, kw_only=True)
class GrantProof:
    """What became of the calls that one grant had allowed, when it was taken away.

    Attributes:
        identity: The name of the role or the user; of a service that acts for itself, its principal.
        statement: Its policy, its place there, and its own name.
        action: As it is written there.
        operations: The calls that it had allowed; empty where nothing used it.
        denial: AWS's message for the first that was denied; None where none was.
        allowed_by: The statements that allowed them all the same.
    """

    identity: str
    statement: str
    action: str
    operations: tuple[str, ...]
    denial: str | None = None
    allowed_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Granted:
    """What was granted although it is out of a bound.

    Attributes:
        action: What was asked for.
        tried: In place of which right thing.
        allowed_by: The statements that allowed it.
    """

    action: str
    tried: str
    allowed_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BoundProof:
    """What became of the calls that one statement had allowed, when they were out of one of its bounds.

    Attributes:
        identity: As in `GrantProof`.
        statement: As in `GrantProof`.
        bound: A condition, a policy variable, the resources; of a statement that denies, an action.
        tried: What was asked for in place of the right thing; empty where nothing that was tried is out of the bound.
        denial: AWS's message for the first that was denied; None where none was.
        granted: What was granted all the same.
    """

    identity: str
    statement: str
    bound: str
    tried: tuple[str, ...]
    denial: str | None
    granted: tuple[Granted, ...]

    @property
    def holds(self) -> bool:
        """Whether something was out of the bound, and all of that was denied."""
        return bool(self.tried) and not self.granted


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """What taking everything away showed.

    Attributes:
        grants: One for each action of each statement that allows, of the roles and users; and of those statements of
            resources' policies that allowed something.
        bounds: One for each bound of each statement that allowed something, and for each action of each statement that
            denies.
    """

    grants: tuple[GrantProof, ...]
    bounds: tuple[BoundProof, ...]


PROOFS: Final[TypeAdapter[Proofs]] = TypeAdapter(Proofs)
"""How proofs are sent and kept: as JSON."""


def prove(identities: Mapping[str, Sequence[PolicyDocument]], granted: Mapping[Use, Sequence[Question]]) -> Proofs:
    """Take away each grant, and step over each bound.

    Args:
        identities: The identity policies of every role and user, by its name.
        granted: Questions of each use that was granted.
    """
    grants: list[GrantProof] = []
    bounds: list[BoundProof] = []
    for name in sorted(identities.keys() | {use.identity for use in granted}):
        own = [(use, each) for use, questions in granted.items() if use.identity == name for each in questions]
        for statement in (statement for policy in identities.get(name, ()) for statement in policy.statements):
            used = _used(statement, own)
            if statement.effect is Effect.DENY:
                bounds += _denies(name, statement, own[0][1]) if own else ()
            else:
                grants += [_grant(name, statement, action, used) for action in statement.actions]
                grants += _of_the_rest(name, statement)
                bounds += _bounds(name, statement, used)
        for statement in _of_resources(own):
            used = _used(statement, own)
            grants += [
                grant for action in statement.actions if (grant := _grant(name, statement, action, used)).operations
            ]
            bounds += _bounds(name, statement, used)
    for policy, question in _resource_policies(granted):
        for statement in policy.statements:
            if statement.effect is Effect.DENY:
                bounds += _denies(policy.name, statement, question)
    return Proofs(grants=tuple(grants), bounds=tuple(bounds))


_Used = Sequence[tuple["Use", Question]]
"""What was granted to one identity."""


def _used(statement: Statement, own: _Used) -> _Used:
    """Return what a statement allowed, as far as it is today what it was then."""
    return [each for each in own if statement.id in each[0].statements and statement in _statements(each[1])]


def _of_resources(own: _Used) -> Sequence[Statement]:
    """Return the statements of resources' policies that allowed something."""
    found = [
        statement
        for use, question in own
        if (policy := question.policies.resource) is not None
        for statement in policy.statements
        if statement.id in use.statements
    ]
    return tuple(dict.fromkeys(found))


def _resource_policies(granted: Mapping[Use, Sequence[Question]]) -> Sequence[tuple[PolicyDocument, Question]]:
    """Return the policies of resources that were called, each once, with a question to which it applied."""
    found: dict[tuple[Statement, ...], tuple[PolicyDocument, Question]] = {}
    for question in (question for questions in granted.values() for question in questions):
        if (policy := question.policies.resource) is not None:
            # The policy of a bucket has the name of the object that was asked for.
            nameless = tuple(replace(each, id=each.id.removeprefix(policy.name)) for each in policy.statements)
            found.setdefault(nameless, (policy, question))
    return tuple(found.values())


def _statements(question: Question) -> Iterator[Statement]:
    policies = question.policies
    for policy in (*policies.identity, *([policies.resource] if policies.resource else [])):
        yield from policy.statements


def _grant(name: str, statement: Statement, action: Pattern, used: _Used) -> GrantProof:
    denials, operations = [], []
    allowed_by: list[str] = []
    for use, question in used:
        if not action.matches(use.action.lower(), {}):
            continue
        operations.append(use.operation)
        without = question.without(statement.id, action.text)
        decision = without.decided()
        if decision.allowed:
            allowed_by += decision.statements
        else:
            denials.append(_message(without, decision))
    return GrantProof(
        identity=name,
        statement=statement.id,
        action=action.text,
        operations=tuple(sorted(set(operations))),
        denial=denials[0] if denials else None,
        allowed_by=tuple(dict.fromkeys(allowed_by)),
    )


def _of_the_rest(name: str, statement: Statement) -> Sequence[GrantProof]:
    """Return what `NotAction` allows as one grant without proof: it has no action that could be taken away alone."""
    if statement.actions:
        return ()
    action = f"all but {', '.join(pattern.text for pattern in statement.not_actions)}"
    return (GrantProof(identity=name, statement=statement.id, action=action, operations=()),)


def _message(question: Question, decision: AuthorizationDecision) -> str:
    return denial_message(question.authorization, decision, question.caller)


def _bounds(name: str, statement: Statement, used: _Used) -> Iterator[BoundProof]:
    questions = [question for _use, question in used]
    if not questions:
        return
    for condition in statement.conditions:
        text = f"{condition.name} {condition.key} {', '.join(condition.values)}"
        changes = [change for question in questions for change in _against(condition, question)]
        yield _bound(name, statement, text, changes)
    for key in sorted(_variable_keys(statement)):
        changes = [change for question in questions for change in _with_other_value(key, question)]
        yield _bound(name, statement, f"${{{key}}}", changes)
    if statement.resources and all(pattern.text != "*" for pattern in statement.resources):
        text = ", ".join(pattern.text for pattern in statement.resources)
        changes = [change for question in questions for change in _on_other_resources(question)]
        yield _bound(name, statement, text, changes)


_Change = tuple[str, Question]
"""What is asked for in place of the right thing, in words and as it is decided about."""


def _bound(name: str, statement: Statement, bound: str, changes: Iterable[_Change]) -> BoundProof:
    """Ask for each change that the statement does not allow: nothing else may."""
    tried, denials, granted = [], [], []
    for words, question in changes:
        if _applies(statement, question):
            continue
        tried.append(words)
        decision = question.decided()
        if decision.allowed:
            granted.append(Granted(action=question.authorization.action, tried=words, allowed_by=decision.statements))
        else:
            denials.append(_message(question, decision))
    return BoundProof(
        identity=name,
        statement=statement.id,
        bound=bound,
        tried=tuple(dict.fromkeys(tried)),
        denial=denials[0] if denials else None,
        granted=tuple(dict.fromkeys(granted)),
    )


def _applies(statement: Statement, question: Question) -> bool:
    try:
        return question.satisfies(statement)
    except UndefinedConditionError:
        return False


def _with_value(question: Question, key: str, value: tuple[str, ...]) -> Question:
    """Return the question with another value of a condition key (in lower case), or without the key where it is ()."""
    caller, authorization = question.caller, question.authorization
    of_caller = {name: found for name, found in caller.context.items() if name != key}
    of_request = {name: found for name, found in authorization.context.items() if name.lower() != key}
    if value:
        (of_caller if key in caller.context else of_request)[key] = value
    return replace(
        question,
        caller=replace(caller, context=of_caller),
        authorization=replace(authorization, context=of_request),
    )


def _against(condition: Condition, question: Question) -> Iterator[_Change]:
    """Yield the question with values of the condition's key that it is there to keep out."""
    key = condition.key.lower()
    context = question.context
    found = context.values.get(key, ())
    for value in (*_wrong_values(condition, found, context), ()):
        if value or (found and key not in _NEVER_MISSING):
            changed = _with_value(question, key, value)
            yield f"{condition.key} = {', '.join(value)}" if value else f"no {condition.key}", changed


def _wrong_values(condition: Condition, found: tuple[str, ...], context: RequestContext) -> Iterator[tuple[str, ...]]:
    operator = condition.name.rpartition(":")[2].removesuffix("IfExists")
    if operator == "Null":
        yield (ANOTHER,)
    elif operator == "Bool":
        yield ("false" if condition.wanted[0] else "true",)
    elif operator.startswith("Numeric") and not operator.endswith("NotEquals"):
        outside = min(condition.wanted) - 1 if "Greater" in operator else max(condition.wanted) + 1
        yield (str(outside),)
    elif condition.operator.negated:
        yield from ((_an_example(each, context.values),) for each in condition.wanted)
    elif condition.quantifier is Quantifier.ALL_VALUES:
        yield from ((*found, other) for other in _others(found[0] if found else ""))
    else:
        yield from ((other,) for other in _others(found[0] if found else ""))


def _others(value: str) -> Iterator[str]:
    """Yield values that differ: of another account, with another name in front, with another name behind."""
    sections = value.split(":", _ARN_SECTIONS - 1)
    if _ACCOUNT.fullmatch(value):
        yield ANOTHER_ACCOUNT
    elif len(sections) == _ARN_SECTIONS and sections[0] == "arn":
        yield from _other_arns(value)
    else:
        yield f"{ANOTHER}{value}"
        yield f"{value}-{ANOTHER[:-1]}"


def _other_arns(arn: str) -> Iterator[str]:
    """Yield ARNs of another account, and with each part of the resource another one."""
    sections = arn.split(":", _ARN_SECTIONS - 1)
    *before, resource = sections
    if before[_ACCOUNT_SECTION]:
        yield ":".join([*before[:_ACCOUNT_SECTION], ANOTHER_ACCOUNT, resource])
    parts = re.split(r"([/:])", resource)
    for place in range(0, len(parts), 2):
        changed = [*parts[:place], f"{ANOTHER}{parts[place]}", *parts[place + 1 :]]
        yield ":".join([*before, "".join(changed)])


def _variable_keys(statement: Statement) -> set[str]:
    """Return the condition keys, in lower case, that a statement's resources and conditions are filled in from."""
    patterns = [
        *statement.resources,
        *(each for condition in statement.conditions for each in condition.wanted if isinstance(each, Pattern)),
    ]
    return {variable.key for pattern in patterns for variable in pattern.variables}


def _with_other_value(key: str, question: Question) -> Iterator[_Change]:
    found = question.context.values.get(key, ())
    for value in (*(_others(found[0]) if found else ()), None):
        changed = _with_value(question, key, () if value is None else (value,))
        yield f"no {key}" if value is None else f"{key} = {value}", changed


def _on_other_resources(question: Question) -> Iterator[_Change]:
    authorization = question.authorization
    if authorization.resource == "*":
        return
    for arn in _other_arns(authorization.resource):
        policies = question.policies
        if is_assuming(authorization.action):
            # The trust policy says nothing of other roles.
            policies = replace(policies, resource=None)
        yield arn, replace(question, policies=policies, authorization=replace(authorization, resource=arn))


def _denies(name: str, statement: Statement, question: Question) -> Iterator[BoundProof]:
    """Ask for what a statement denies, as the caller of a question."""
    for action in statement.actions:
        asked = _denied_question(statement, action, question)
        decision = asked.decided()
        authorization = asked.authorization
        words = f"{authorization.action} on {authorization.resource}"
        is_denied = statement.id in decision.statements and not decision.allowed
        yield BoundProof(
            identity=name,
            statement=statement.id,
            bound=action.text,
            tried=(words,),
            denial=_message(asked, decision) if is_denied else None,
            granted=()
            if is_denied
            else (Granted(action=authorization.action, tried=words, allowed_by=decision.statements),),
        )


def _denied_question(statement: Statement, action: Pattern, question: Question) -> Question:
    """Return a question that a statement which denies is about."""
    context = question.context
    resource = _an_example(statement.resources[0], context.values) if statement.resources else "*"
    asked = replace(
        question,
        authorization=Authorization(action=re.sub(r"[*?]", "x", action.text), resource=resource),
    )
    for condition in statement.conditions:
        asked = _with_value(asked, condition.key.lower(), _met(condition, context))
    return asked


def _met(condition: Condition, context: RequestContext) -> tuple[str, ...]:
    """Return a value of its key with which a condition holds; () for none."""
    candidates: list[tuple[str, ...]] = [
        (),
        (ANOTHER,),
        ("true",),
        ("false",),
        *((_an_example(each, context.values),) for each in condition.wanted),
        *((str(each + step),) for each in condition.wanted if _is_number(each) for step in (-1, 1)),
    ]
    key = condition.key.lower()
    for value in candidates:
        with_value = {name: found for name, found in context.values.items() if name != key}
        if value:
            with_value[key] = value
        if condition.holds(replace(context, values=with_value)):
            return value
    return ()


def _is_number(value: Any) -> bool:
    return not isinstance(value, (Pattern, bool, bytes)) and hasattr(value, "is_finite")


def _an_example(pattern: Any, values: Mapping[str, tuple[str, ...]]) -> str:
    """Return a text that a pattern stands for; of what is no pattern, the value as text."""
    if not isinstance(pattern, Pattern):
        return str(pattern).lower() if isinstance(pattern, bool) else str(pattern)
    pieces = []
    for part in pattern.parts:
        if isinstance(part, Variable):
            found = values.get(part.key, ())
            pieces.append(found[0] if found else part.default or "x")
        else:
            pieces.append(part if isinstance(part, str) else "x")
    return "".join(pieces)
