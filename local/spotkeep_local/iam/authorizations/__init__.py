"""Which actions on which resources an operation asks for, with the condition keys that AWS puts into the request.

A module a service, each with a table of its operations. What is in no table is denied by name: nothing is waved
through. An operation that AWS lets everybody call, sts:GetCallerIdentity, asks for nothing.

Source: the pages "Actions, resources, and condition keys" of the services in the Service Authorization Reference, and
the pages that the modules name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations import (
    batch,
    cloudformation,
    cloudwatch,
    dynamodb,
    ec2,
    ecr,
    events,
    fis,
    functions,
    iam,
    kms,
    logs,
    prices_and_quotas,
    s3,
    sagemaker,
    scheduler,
    secretsmanager,
    sns,
    sqs,
    ssm,
    sts,
)
from spotkeep_local.iam.authorizations.account import AccountView, EncryptionKey, FunctionUrl, LaunchTemplate
from spotkeep_local.iam.authorizations.asking import UndecidableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.authorization import Authorization, Call
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule

__all__ = [
    "OPERATIONS",
    "AccountView",
    "EncryptionKey",
    "FunctionUrl",
    "LaunchTemplate",
    "UnknownOperation",
    "authorizations_of",
]

OPERATIONS: Final[Mapping[str, Mapping[str, AuthorizationRule]]] = {
    "batch": batch.OPERATIONS,
    "cloudformation": cloudformation.OPERATIONS,
    "cloudwatch": cloudwatch.OPERATIONS,
    "dynamodb": dynamodb.OPERATIONS,
    "ec2": ec2.OPERATIONS,
    "ecr": ecr.OPERATIONS,
    "events": events.OPERATIONS,
    "fis": fis.OPERATIONS,
    "iam": iam.OPERATIONS,
    "kms": kms.OPERATIONS,
    "lambda": functions.OPERATIONS,
    "logs": logs.OPERATIONS,
    "pricing": prices_and_quotas.PRICING,
    "s3": s3.OPERATIONS,
    "sagemaker": sagemaker.OPERATIONS,
    "scheduler": scheduler.OPERATIONS,
    "secretsmanager": secretsmanager.OPERATIONS,
    "service-quotas": prices_and_quotas.SERVICE_QUOTAS,
    "sns": sns.OPERATIONS,
    "sqs": sqs.OPERATIONS,
    "ssm": ssm.OPERATIONS,
    "sts": sts.OPERATIONS,
}
"""The rules by botocore's names of services and operations."""


@dataclass(frozen=True, kw_only=True)
class UnknownOperation:
    """A call of which nothing here says what it asks for; it is denied.

    Attributes:
        service: botocore's name.
        operation: botocore's name.
        reason: What is missing, as a sentence.
    """

    service: str
    operation: str
    reason: str


def authorizations_of(call: Call, *, account: AccountView) -> tuple[Authorization, ...] | UnknownOperation:
    """Return all that a call asks for.

    Args:
        call: As it was read.
        account: What is in the account.

    Returns:
        In the order in which AWS's message names the first that is denied; empty for what everybody may call.
    """
    rule = OPERATIONS.get(call.service, {}).get(call.operation)
    if rule is None:
        reason = f"No rule says what {call.operation} of {call.service} asks for."
        return UnknownOperation(service=call.service, operation=call.operation, reason=reason)
    try:
        return tuple(rule(call.parameters, account))
    except (UndecidableError, LookupError, TypeError, AttributeError, ValueError) as error:
        # Parameters come from a client, and may have any form.
        reason = str(error) if isinstance(error, UndecidableError) else f"The parameters cannot be read: {error!r}."
        return UnknownOperation(service=call.service, operation=call.operation, reason=reason)
