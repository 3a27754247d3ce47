"""One spelling of an IAM permission. It has actions on resources under conditions, and the reason for every wildcard.

A denial has a spelling of its own, which needs no reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from aws_cdk import ArnFormat, Aws, Stack, Token
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge_wildcards
from spotkeep_constructs.errors import PropertyError

LONGEST_STATEMENT_LIST = 2_000
"""Most characters of the resources, or of a condition's values, in one statement.

The CDK divides a role's policy that grows too long into managed policies of at most 6,144 characters. It divides no
statement.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""
_LONGEST_NAME = 100
"""The longest text that a reference may become, the ARN of a role."""


def divided(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield them in order, in lists that a statement has room for. One empty list for none.

    Args:
        texts: Resources, or values of a condition, which may hold tokens.
    """
    part: list[str] = []
    size = 0
    for text in texts:
        longest = max(len(text), _LONGEST_NAME) if Token.is_unresolved(text) else len(text)
        if part and size + longest > LONGEST_STATEMENT_LIST:
            yield part
            part, size = [], 0
        part.append(text)
        size += longest
    yield part


def allow(
    grantee: iam.IGrantable,
    *,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Mapping[str, object]] | None = None,
    wildcard: str | None = None,
) -> iam.Grant:
    """Add a permission to a principal's own policy, in several statements where one would be too long for a policy.

    Args:
        grantee: A role or managed policy.
        actions: IAM actions, `service:Action`, without wildcards.
        resources: ARNs, which may hold tokens.
        conditions: IAM conditions, by operator and key.
        wildcard: The reason for a wildcard in a resource, required when one has it.

    Raises:
        PropertyError: An action holds a wildcard, or a resource does and no reason is given.
    """
    if any("*" in action for action in actions):
        raise PropertyError(
            name="allow.actions",
            problem="hold a wildcard",
            found=list(actions),
            fix="Name each action.",
        )
    open_resources = [resource for resource in resources if "*" in resource]
    if open_resources and not wildcard:
        raise PropertyError(
            name="allow.resources",
            problem="hold a wildcard without a reason",
            found=open_resources,
            fix="Narrow them, or say why in `wildcard`.",
        )
    grant = together(
        *(
            iam.Grant.add_to_principal(
                grantee=grantee,
                actions=list(actions),
                resource_arns=part,
                conditions={operator: dict(keys) for operator, keys in (conditions or {}).items()} or None,
            )
            for part in divided(resources)
        )
    )
    if open_resources and wildcard:
        acknowledge_wildcards(cast("Construct", grantee), resources=open_resources, reason=wildcard)
    return grant


def arn_for(
    grantee: iam.IGrantable,
    service: str,
    resource: str,
    name: str = "*",
    *,
    region: str | None = None,
    account: str | None = None,
    colon: bool = False,
) -> str:
    """Return the ARN of a resource in the account and the region of the principal's own stack.

    Args:
        grantee: A role or managed policy.
        service: `sagemaker`.
        resource: `training-job`.
        name: The resource's name.
        region: The region when it is another, or empty when the service's ARNs have none.
        account: The account when it is another, `*` for any, or empty when the service's ARNs have none.
        colon: True for a colon before the name, as for log groups and functions, else a slash.
    """
    return Stack.of(cast("Construct", grantee)).format_arn(
        service=service,
        region=region,
        account=account,
        resource=resource,
        resource_name=name,
        arn_format=ArnFormat.COLON_RESOURCE_NAME if colon else ArnFormat.SLASH_RESOURCE_NAME,
    )


def together(first: iam.Grant, *others: iam.Grant) -> iam.Grant:
    """Return several grants as one.

    Args:
        first: A grant.
        others: Further ones, of the same principal.
    """
    return functools.reduce(lambda combined, other: combined.combine(other), others, first)


def allow_regional(grantee: iam.IGrantable, *actions: str) -> iam.Grant:
    """Let a principal call, in its own region, actions that AWS limits to no resource, mostly List and Describe.

    Args:
        grantee: A role or managed policy.
        actions: IAM actions that take no resource.
    """
    return allow(
        grantee,
        actions=actions,
        resources=["*"],
        conditions={"StringEquals": {"aws:RequestedRegion": Aws.REGION}},
        wildcard="AWS knows no resources for these actions; the region is the narrowest bound they take.",
    )


def deny(
    grantee: iam.IGrantable,
    *,
    actions: Sequence[str],
    resources: Sequence[str] | None = None,
    all_but: Sequence[str] | None = None,
) -> None:
    """Keep a principal from something, whatever else is ever attached to it.

    Args:
        grantee: A role or managed policy.
        actions: IAM actions, which may have wildcards, since a wildcard in a denial narrows.
        resources: ARNs that are denied.
        all_but: ARNs that are not denied, with all others denied. Takes the place of `resources`.
    """
    grantee.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=list(actions),
            resources=None if resources is None else list(resources),
            not_resources=None if all_but is None else list(all_but),
        )
    )
