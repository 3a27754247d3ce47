"""Which actions on which resources an operation asks for, with the condition keys that AWS puts into the request.

Each module has the rules of a service, or of several, by operation. What is in no table is denied by name: nothing is
waved through. An operation that AWS lets everybody call, sts:GetCallerIdentity, asks for nothing.

Source: the pages "Actions, resources, and condition keys" of the services in the Service Authorization Reference, and
the pages that the modules name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorization import UnknownCall
from spotkeep_local.iam.authorizations import (
    batch,
    cloudformation,
    dynamodb,
    ec2,
    functions,
    iam,
    messages,
    others,
    s3,
    sagemaker,
    ssm,
)
from spotkeep_local.iam.authorizations.asking import Asking, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.authorization import Authorization, Call
    from spotkeep_local.iam.authorizations.asking import Rules
    from spotkeep_local.iam.local_account import LocalAccount

_MODULES: Final = (batch, cloudformation, dynamodb, ec2, functions, iam, messages, others, s3, sagemaker, ssm)
OPERATIONS: Final[Mapping[str, Rules]] = {
    service: rules for module in _MODULES for service, rules in module.OPERATIONS.items()
}
"""The rules by botocore's names of services and operations."""


def authorizations_of(call: Call, *, account: LocalAccount) -> tuple[Authorization, ...] | UnknownCall:
    """Return all that a call asks for.

    Args:
        call: As it was read.
        account: What is in the account.

    Returns:
        In the order in which AWS's message names the first that is denied. Empty for what everybody may call.
    """
    rule = OPERATIONS.get(call.service, {}).get(call.operation)
    if rule is None:
        reason = f"No rule says what {call.operation} of {call.service} asks for."
        return UnknownCall(service=call.service, operation=call.operation, reason=reason)
    try:
        return tuple(rule(Asking(call.parameters, account)))
    except (UndecidableError, LookupError, TypeError, AttributeError, ValueError) as error:
        # Parameters come from a client, and may have any form.
        reason = str(error) if isinstance(error, UndecidableError) else f"The parameters cannot be read: {error!r}."
        return UnknownCall(service=call.service, operation=call.operation, reason=reason)
