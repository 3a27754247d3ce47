"""Accepted findings of cdk-nag, each by its id and with the reason why it is right here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from constructs import Construct, IConstruct, IValidation

PACK = "AwsSolutions"


def acknowledge(scope: IConstruct, findings: Mapping[str, str]) -> None:
    """Accept findings of the AwsSolutions pack on a construct and its children.

    Args:
        scope: The construct that has the findings, as narrow as possible.
        findings: Reason by rule, for example `{"S1": "..."}`.
    """
    Validations.of(scope).acknowledge(
        *(Acknowledgment(id=_id_of(rule), reason=reason) for rule, reason in findings.items())
    )


def _id_of(rule: str) -> str:
    """Return the id under which a finding is accepted.

    The CDK writes whitespace in an id as a hyphen, and cdk-nag then finds no reason for a resource with a space in its
    name. With the pack's name before it, the CDK itself drops the finding.
    """
    finding = f"{PACK}-{rule}"
    return f"{PACK}::{finding}" if re.search(r"\s", rule) else finding


def acknowledge_wildcards(scope: Construct, *, resources: Sequence[str], reason: str) -> None:
    """Accept the resource wildcards of one permission (rule IAM5).

    The id of such a finding holds the ARN as the template spells it. A reference to another stack has its spelling only
    after the CDK has wired the stacks. So this function finds the id while the app validates, just before the rules
    run. It does so once for all permissions of a role or policy, since every question to the CDK is a round trip to its
    process.

    Args:
        scope: The role or policy.
        resources: ARNs with a wildcard, which may hold tokens.
        reason: The reason why they are no narrower.
    """
    pending = _PENDING.get(scope)
    if pending is None:
        pending = _PENDING[scope] = _AcknowledgeWhenWired(scope)
        scope.node.add_validation(pending)
    pending.reasons.append((list(resources), reason))


@jsii.implements(IValidation)
class _AcknowledgeWhenWired:
    def __init__(self, scope: Construct) -> None:
        self._scope = scope
        self.reasons: list[tuple[list[str], str]] = []

    def validate(self) -> list[str]:
        resolved = Stack.of(self._scope).resolve([resources for resources, _ in self.reasons])
        acknowledge(
            self._scope,
            {
                f"IAM5[Resource::{flattened(resource)}]": reason
                for resources, (_, reason) in zip(resolved, self.reasons, strict=True)
                for resource in resources
            },
        )
        return []


# Holds no construct longer than the CDK's own library does: that is until the process ends.
_PENDING: dict[Construct, _AcknowledgeWhenWired] = {}


def flattened(reference: Any) -> str:
    """Return an ARN of a template in one line, as cdk-nag names it in a finding.

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
