"""Decides what the roles of a synthesized deployment may do, as IAM would: the attacks on permissions are judged by it.

It reads identity policies alone. What it does not know (an operator, an intrinsic function) fails the test that
asks, so nothing passes by accident.

Source: "Policy evaluation logic" and "IAM JSON policy elements: Condition operators", IAM User Guide.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from tests.infrastructure.conftest import Templates

Context = Mapping[str, str | Sequence[str]]
"""The request's condition keys: `aws:PrincipalTag/run`, `dynamodb:LeadingKeys`. Some keys have several values."""

REGION, ACCOUNT = "us-west-1", "111122223333"
_PSEUDO = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com"}
_NAMES = ("BucketName", "TableName", "FunctionName", "TopicName", "QueueName", "RoleName", "LogGroupName", "Name")
_ARNS = {
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{{name}}",
    "AWS::DynamoDB::GlobalTable": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{{name}}",
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{name}}",
    "AWS::KMS::Key": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{{name}}",
    "AWS::Lambda::Function": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{{name}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{name}}:*",
    "AWS::SNS::Topic": f"arn:aws:sns:{REGION}:{ACCOUNT}:{{name}}",
    "AWS::SQS::Queue": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{name}}",
}
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


@dataclass(frozen=True)
class Policies:
    """The identity policies of one deployment.

    Attributes:
        templates: The synthesized deployment.
    """

    templates: Templates

    def arn(self, kind: str, *, named: str = "") -> str:
        """Give the ARN of the one resource of a type whose logical id starts with a name."""
        (name,) = [name for name in self.templates.resources(kind) if name.startswith(named)]
        return self._arn(name)

    def allows(self, principal: str, action: str, resource: str, context: Context | None = None) -> bool:
        """Decide one request.

        Args:
            principal: How the logical id of the role or the managed policy starts: `InstanceRole`, `UsersPolicy`.
            action: `s3:GetObject`.
            resource: The ARN the request is for; `*` for an action without resources.
            context: The request's condition keys.
        """
        given = context or {}
        asked = {key.lower(): [value] if isinstance(value, str) else list(value) for key, value in given.items()}
        applying = {
            statement["Effect"]
            for statement in self._statements(principal)
            if _names(statement, action) and self._covers(statement, resource, asked) and self._holds(statement, asked)
        }
        return applying == {"Allow"}

    def _statements(self, principal: str) -> Iterator[Mapping[str, Any]]:
        found = False
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            for name, policy in self.templates.resources(kind).items():
                attached = [_logical_id(role) for role in policy["Properties"].get("Roles", [])]
                if any(owner.startswith(principal) for owner in (name, *attached)):
                    found = True
                    yield from policy["Properties"]["PolicyDocument"]["Statement"]
        assert found, f"no role and no managed policy of this deployment is called {principal}*"

    def _covers(self, statement: Mapping[str, Any], resource: str, asked: Mapping[str, list[str]]) -> bool:
        listed = _listed(statement["NotResource" if "NotResource" in statement else "Resource"])
        patterns = (_filled(self._text(pattern), asked) for pattern in listed)
        named = any(pattern is not None and _like(resource, pattern) for pattern in patterns)
        return named is ("Resource" in statement)

    def _holds(self, statement: Mapping[str, Any], asked: Mapping[str, list[str]]) -> bool:
        return all(
            _condition(operator, [self._text(value) for value in _listed(wanted)], asked.get(key.lower()), asked)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )

    def _text(self, value: Any) -> str:
        match value:
            case str() | bool() | int():
                return str(value)
            case {"Fn::Join": [delimiter, parts]}:
                return str(delimiter).join(map(self._text, parts))
            case {"Ref": name} if name in _PSEUDO:
                return _PSEUDO[name]
            case {"Ref": name}:
                return self._name(name)
            case {"Fn::GetAtt": [name, "Arn"]}:
                return self._arn(name)
            case {"Fn::GetStackOutput": {"OutputName": output}}:
                (found,) = [
                    template["Outputs"][output]["Value"]
                    for template in self.templates.by_stack.values()
                    if output in template.get("Outputs", {})
                ]
                return self._text(found)
        raise AssertionError(f"this evaluator cannot resolve {value}")

    def _resource(self, name: str) -> Mapping[str, Any] | None:
        stacks = self.templates.by_stack.values()
        return next((stack["Resources"][name] for stack in stacks if name in stack["Resources"]), None)

    def _name(self, name: str) -> str:
        properties = (self._resource(name) or {}).get("Properties", {})
        given = next((properties[key] for key in _NAMES if key in properties), name)
        return self._text(given)

    def _arn(self, name: str) -> str:
        resource = self._resource(name)
        assert resource is not None, f"no stack holds {name}"
        kind = resource["Type"]
        assert kind in _ARNS, f"this evaluator knows no ARN of {kind}"
        return _ARNS[kind].format(name=self._name(name))


def _names(statement: Mapping[str, Any], action: str) -> bool:
    assert "NotAction" not in statement, "this evaluator knows no NotAction"
    return any(_like(action.lower(), pattern.lower()) for pattern in _listed(statement["Action"]))


def _condition(operator: str, wanted: list[str], found: list[str] | None, asked: Mapping[str, list[str]]) -> bool:
    """One key of one operator. Several wanted values are alternatives; of a negated operator, none may match."""
    quantifier, _, plain = operator.rpartition(":")
    optional, plain = plain.endswith("IfExists"), plain.removesuffix("IfExists")
    if plain == "Null":
        return (found is None) == (wanted == ["true"])
    if found is None:
        # ForAllValues holds for a request without the key, which is why it never stands alone before what matters.
        return optional or quantifier == "ForAllValues" or plain in _NEGATED
    matches = _NEGATED.get(plain) or _OPERATORS.get(plain)
    assert matches is not None, f"this evaluator knows no operator {operator}"
    patterns = [pattern for value in wanted if (pattern := _filled(value, asked)) is not None]
    hits = [any(matches(value, pattern) for pattern in patterns) for value in found]
    if plain in _NEGATED:
        hits = [not hit for hit in hits]
    return all(hits) if quantifier == "ForAllValues" else any(hits)


def _filled(pattern: str, asked: Mapping[str, list[str]]) -> str | None:
    """A pattern with its policy variables; None when the request lacks one, and then nothing matches.

    A `*` in a variable's value is a character, no wildcard ("IAM policy elements: Variables and tags").
    """
    names = _VARIABLE.findall(pattern)
    values = {name: asked.get(name.lower(), [None])[0] for name in names}
    if None in values.values():
        return None
    return _VARIABLE.sub(lambda found: _literal(str(values[found[1]])), pattern)


def _literal(value: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", value)


def _like(value: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(value, pattern)


def _same_arn(value: str, pattern: str) -> bool:
    parts, wanted = value.split(":", 5), pattern.split(":", 5)
    return len(parts) == len(wanted) and all(map(_like, parts, wanted))


def _equal(value: str, pattern: str) -> bool:
    return value == re.sub(r"\[([*?\[])\]", r"\1", pattern)


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": _equal,
    "StringEqualsIgnoreCase": lambda value, pattern: _equal(value.lower(), pattern.lower()),
    "StringLike": _like,
    "ArnEquals": _same_arn,
    "ArnLike": _same_arn,
    "Bool": lambda value, pattern: value.lower() == pattern.lower(),
    "NumericEquals": lambda value, pattern: float(value) == float(pattern),
    "NumericLessThanEquals": lambda value, pattern: float(value) <= float(pattern),
    "NumericGreaterThan": lambda value, pattern: float(value) > float(pattern),
    "IpAddress": lambda value, pattern: ip_address(value) in ip_network(pattern),
}
_NEGATED: Mapping[str, Callable[[str, str], bool]] = {
    "StringNotEquals": _equal,
    "StringNotLike": _like,
    "ArnNotEquals": _same_arn,
    "ArnNotLike": _same_arn,
}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _logical_id(reference: Any) -> str:
    match reference:
        case {"Ref": name}:
            return str(name)
        case {"Fn::GetStackOutput": {"OutputName": name}}:
            return str(name)
    return str(reference)
