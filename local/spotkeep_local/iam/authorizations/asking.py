"""How the modules of services write what their operations ask for: rules, and the parts that many of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.authorizations.account import AccountView, EncryptionKey

Parameters: TypeAlias = "Mapping[str, Any]"
AuthorizationRule: TypeAlias = "Callable[[Parameters, AccountView], Iterable[Authorization]]"
"""From an operation's parameters to all that it asks for; raises `UndecidableError`."""


class UndecidableError(Exception):
    """Says why it cannot be decided what a call asks for: it names what is not there, or lacks a parameter."""


def ask(
    action: str,
    resource: str = "*",
    *,
    keys: Mapping[str, object] | None = None,
    sets: Mapping[str, Iterable[object]] | None = None,
    request_tags: Mapping[str, str] | None = None,
    resource_tags: Mapping[str, str] | None = None,
    tag_prefixes: tuple[str, ...] = ("aws",),
    service_principal: str | None = None,
) -> Authorization:
    """Write one authorization.

    Args:
        action: In AWS's spelling.
        resource: The ARN.
        keys: Condition keys in lower case, with their values; None for one that is not in the request.
        sets: Those that hold sets; what is empty is not in the request.
        request_tags: The tags that the call brings.
        resource_tags: The tags of the resource, which is there already.
        tag_prefixes: The services whose `ResourceTag` AWS fills, beside or instead of `aws`.
        service_principal: The principal of a service that acts on its own behalf.
    """
    context = {name: (_text(value),) for name, value in (keys or {}).items() if value is not None}
    several = {name: tuple(map(_text, values)) for name, values in (sets or {}).items()}
    if request_tags:
        context |= {f"aws:requesttag/{name}": (value,) for name, value in request_tags.items()}
        several["aws:tagkeys"] = tuple(request_tags)
    for prefix in tag_prefixes if resource_tags else ():
        context |= {f"{prefix}:resourcetag/{name}": (value,) for name, value in (resource_tags or {}).items()}
    several = {name: values for name, values in several.items() if values}
    return Authorization(
        action=action,
        resource=resource,
        context={**context, **several},
        multivalued=frozenset(several),
        service_principal=service_principal,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def always(action: str, resource: str = "*") -> AuthorizationRule:
    """Return the rule of an operation that asks for one action, whatever its parameters are."""
    return lambda _parameters, _account: (ask(action, resource),)


def arn(service: str, resource: str, account: AccountView) -> str:
    """Return the ARN of a resource in the account and region."""
    return f"arn:aws:{service}:{account.region}:{account.account_id}:{resource}"


def needed(parameters: Parameters, name: str) -> Any:
    """Return a parameter.

    Raises:
        UndecidableError: It is not there.
    """
    value = parameters.get(name)
    if value is None:
        raise UndecidableError(f"The request has no {name}.")
    return value


def tags_of(given: Iterable[Mapping[str, str]] | None, *, key: str = "Key", value: str = "Value") -> dict[str, str]:
    """Return tags by their keys, from the list in which most operations take them."""
    return {tag[key]: tag.get(value, "") for tag in given or ()}


def pass_role(role_arn: str, service: str, account: AccountView) -> Authorization:
    """Return the permission to hand a role to a service.

    Args:
        role_arn: The ARN of the role.
        service: The service's principal, for example `sagemaker.amazonaws.com`.
        account: Has the role.

    Source: "Grant a user permissions to pass a role to an AWS service" in the IAM user guide.
    """
    return ask(
        "iam:PassRole",
        role_arn,
        keys={"iam:passedtoservice": service},
        resource_tags=account.tags(role_arn),
        tag_prefixes=("aws", "iam"),
    )


def use_key(
    key: EncryptionKey | None,
    actions: Iterable[str],
    *,
    via: str,
    account: AccountView,
    encryption_context: Mapping[str, str] | None = None,
    grant_for_service: bool = False,
) -> tuple[Authorization, ...]:
    """Return what a caller needs of the key behind something, when a service uses it on the caller's behalf.

    Args:
        key: None where AWS's own keys encrypt: their policies let in all who may use the service.
        actions: Names without `kms:`.
        via: The service, for example `s3`.
        account: The account of the caller.
        encryption_context: What the service binds the data to.
        grant_for_service: Whether grants are for the service itself, as those of volumes are.

    Source: "Condition keys for AWS KMS" in the KMS developer guide (`kms:ViaService`, `kms:GrantIsForAWSResource`).
    """
    if key is None:
        return ()
    bound = {f"kms:encryptioncontext:{name}": value for name, value in (encryption_context or {}).items()}
    asked = []
    for action in actions:
        keys: dict[str, object] = {
            "kms:viaservice": f"{via}.{account.region}.amazonaws.com",
            "kms:calleraccount": account.account_id,
        }
        if action == "CreateGrant":
            keys["kms:grantisforawsresource"] = grant_for_service
        sets: dict[str, Iterable[object]] = {}
        if action not in ("CreateGrant", "DescribeKey"):
            keys |= bound
            sets = {"kms:encryptioncontextkeys": (encryption_context or {}).keys()}
        asked.append(ask(f"kms:{action}", key.arn, keys=keys, sets=sets, resource_tags=account.tags(key.arn)))
    return tuple(asked)
