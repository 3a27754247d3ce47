"""The actions and resources that an operation needs, with the condition keys that AWS puts into the request.

Each module has the rules of one or several services, by operation. An operation in no table is denied, and the denial
names it. No call passes unjudged. sts:GetCallerIdentity needs no permission, because AWS lets every caller use it.

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
    """Return all authorizations that a call needs.

    Args:
        call: The call, as it was read.
        account: The resources of the account.

    Returns:
        The authorizations, in the order in which AWS's message names the first denied one. Empty for a call that every
        caller may make.
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
