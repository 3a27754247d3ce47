"""Accepting what cdk-nag finds: each finding by its id, with the reason it is right here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from constructs import Construct, IConstruct, IValidation

PACK = "AwsSolutions"


def acknowledge(scope: IConstruct, findings: Mapping[str, str]) -> None:
    """Accepts findings of the AwsSolutions pack on a construct and what is below it.

    Args:
        scope: The construct the findings are about, and no wider.
        findings: Reason by rule, for example `{"S1": "..."}`.
    """
    Validations.of(scope).acknowledge(
        *(Acknowledgment(id=f"{PACK}-{rule}", reason=reason) for rule, reason in findings.items())
    )


def acknowledge_wildcards(scope: Construct, *, resources: Sequence[str], reason: str) -> None:
    """Accepts the resource wildcards of one permission (rule IAM5).

    The id of such a finding holds the ARN as the template spells it, and a reference to another stack has its spelling
    only after the CDK has wired the stacks. So the id is found while the app validates, just before the rules run.

    Args:
        scope: The role or policy.
        resources: ARNs with a wildcard; may hold tokens.
        reason: Why they are no narrower.
    """
    scope.node.add_validation(_AcknowledgeWhenWired(scope, resources, reason))


@jsii.implements(IValidation)
class _AcknowledgeWhenWired:
    def __init__(self, scope: Construct, resources: Sequence[str], reason: str) -> None:
        self._scope = scope
        self._resources = resources
        self._reason = reason

    def validate(self) -> list[str]:
        resolved = Stack.of(self._scope).resolve(list(self._resources))
        acknowledge(
            self._scope,
            {f"IAM5[Resource::{flattened(resource)}]": self._reason for resource in resolved},
        )
        return []


def flattened(reference: Any) -> str:
    """An ARN of a template in one line, as cdk-nag names it in a finding.

    Args:
        reference: A string or a CloudFormation intrinsic.
    """
    match reference:
        case str():
            return reference.replace("${", "<").replace("}", ">")
        case {"Fn::Join": [delimiter, items]}:
            return str(delimiter).join(map(flattened, items))
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::ImportValue": name} | {"Fn::Sub": name}:
            return flattened(name)
    return json.dumps(reference, separators=(",", ":"))
