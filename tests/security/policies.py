"""Decides what the roles of a synthesized deployment may do: the attacks on permissions are judged by it.

It resolves the identity policies of the templates and has the judge of the local AWS decide by them alone: keys and
roles leave the decision to them here. What either does not know (an operator, an intrinsic function) fails the test
that asks, so nothing passes by accident.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam import evaluation
from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.evaluation import CallingPrincipal, PrincipalKind, Reason
from spotkeep_local.iam.policy import PolicyDocument, PolicyKind, read_policy
from tests.infrastructure.conftest import Templates

Context = Mapping[str, str | Sequence[str]]
"""The request's condition keys: `aws:PrincipalTag/run`, `dynamodb:LeadingKeys`. Some keys have several values."""

REGION, ACCOUNT = "us-west-1", "111122223333"
_PSEUDO = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/stack/1",
}
_NAMES = ("BucketName", "TableName", "FunctionName", "TopicName", "QueueName", "RoleName", "LogGroupName", "Name")
_NAMED_BY_ARN = ("AWS::SNS::Topic", "AWS::SecretsManager::Secret")
_ARNS = {
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::Events::Rule": f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{{name}}",
    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{{name}}",
    "AWS::DynamoDB::GlobalTable": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{{name}}",
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{name}}",
    "AWS::KMS::Key": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{{name}}",
    "AWS::Lambda::Function": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{{name}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{name}}:*",
    "AWS::SecretsManager::Secret": f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{{name}}",
    "AWS::SNS::Topic": f"arn:aws:sns:{REGION}:{ACCOUNT}:{{name}}",
    "AWS::SQS::Queue": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{name}}",
}
_PLACE = re.compile(r"\$\{([^}]+)\}")
# It brings no condition keys: those of the request are all that a test names.
_CALLER = CallingPrincipal(
    kind=PrincipalKind.ROLE_SESSION,
    arn=f"arn:aws:sts::{ACCOUNT}:assumed-role/caller/session",
    account=ACCOUNT,
    role_arn=f"arn:aws:iam::{ACCOUNT}:role/caller",
)
_DELEGATES = read_policy(
    {"Statement": {"Effect": "Allow", "Principal": {"AWS": ACCOUNT}, "Action": "*", "Resource": "*"}},
    name="resource",
    kind=PolicyKind.RESOURCE,
)


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
        given = {key: (value,) if isinstance(value, str) else tuple(value) for key, value in (context or {}).items()}
        decision = evaluation.Question(
            authorization=Authorization(action=action, resource=resource, context=given),
            caller=_CALLER,
            policies=evaluation.Policies(
                identity=tuple(self.of(principal)), resource=_DELEGATES, resource_account=ACCOUNT
            ),
        ).decided()
        assert decision.reason is not Reason.UNKNOWN, f"this evaluator does not know: {decision.unknown}"
        return decision.allowed

    def of(self, principal: str) -> Iterator[PolicyDocument]:
        """Give the identity policies of one role, or one managed policy."""
        for name, document in self.documents(principal):
            try:
                yield read_policy(document, name=name, kind=PolicyKind.IDENTITY)
            except IamPolicyError as error:
                raise AssertionError(f"this evaluator does not know: {error}") from error

    def documents(self, principal: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give the same as they are deployed, by their logical ids."""
        found = False
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            for name, policy in self.templates.resources(kind).items():
                attached = [_logical_id(role) for role in policy["Properties"].get("Roles", [])]
                if any(owner.startswith(principal) for owner in (name, *attached)):
                    found = True
                    yield name, self._resolved(policy["Properties"]["PolicyDocument"])
        assert found, f"no role and no managed policy of this deployment is called {principal}*"

    def patterns(self) -> Iterator[str]:
        """Give every text in which wildcards are read: of every policy of roles, users, buckets, keys and queues."""
        for stack in self.templates.by_stack.values():
            for resource in stack["Resources"].values():
                for document in _documents_in(resource.get("Properties", {})):
                    yield from map(self._text, _patterns_in(document))

    def trust(self, role: str) -> dict[str, Any]:
        """Give the trust policy of the role with a logical id, as it is deployed."""
        document: dict[str, Any] = self._resolved(
            self.templates.resources("AWS::IAM::Role")[role]["Properties"]["AssumeRolePolicyDocument"]
        )
        return document

    def _resolved(self, value: Any) -> Any:
        match value:
            case [*values]:
                return [self._resolved(each) for each in values]
            case {**members} if all(key != "Ref" and not key.startswith("Fn::") for key in members):
                return {key: self._resolved(member) for key, member in members.items()}
            case str() | bool() | int():
                return value
        return self._text(value)

    def _text(self, value: Any) -> str:
        match value:
            case str() | bool() | int():
                return str(value)
            case {"Fn::Join": [delimiter, parts]}:
                return str(delimiter).join(map(self._text, parts))
            case {"Fn::Sub": str(text)} if all(name in _PSEUDO for name in _PLACE.findall(text)):
                return _PLACE.sub(lambda place: _PSEUDO[place[1]], text)
            case {"Ref": name} if name in _PSEUDO:
                return _PSEUDO[name]
            case {"Ref": name} if (self._resource(name) or {}).get("Type") in _NAMED_BY_ARN:
                return self._arn(name)
            case {"Ref": name} | {"Fn::GetAtt": [name, "GroupId"]}:
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


def _documents_in(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if "Statement" in value:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from _documents_in(member)


def _patterns_in(document: Mapping[str, Any]) -> Iterator[Any]:
    for statement in _several(document["Statement"]):
        for member in ("Resource", "NotResource"):
            yield from _several(statement.get(member, []))
        for operator, keys in statement.get("Condition", {}).items():
            if "Like" in operator:
                for values in keys.values():
                    yield from _several(values)


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _logical_id(reference: Any) -> str:
    match reference:
        case {"Ref": name}:
            return str(name)
        case {"Fn::GetStackOutput": {"OutputName": name}}:
            return str(name)
    return str(reference)
