"""The tools for writing the rules of services, such as the call as a rule reads it, and shared parts of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from spotkeep_local.iam.authorization import Authorization, EncryptionKey

if TYPE_CHECKING:
    from spotkeep_local.iam.local_account import LocalAccount

Asked: TypeAlias = "Iterator[Authorization]"
AuthorizationRule: TypeAlias = "Callable[[Asking], Iterable[Authorization]]"
"""A function from a call to all authorizations that it needs. Raises `UndecidableError`."""
Rules: TypeAlias = "Mapping[str, AuthorizationRule]"
"""The rules of a service, by botocore's names of its operations."""
Naming: TypeAlias = "Callable[[Asking], str]"
"""A function from a call to the ARN of the resource it acts on. Raises `UndecidableError`."""


class UndecidableError(Exception):
    """The authorizations of a call cannot be decided.

    The call names a resource that does not exist, or lacks a parameter. The message gives the reason.
    """


@dataclass(frozen=True)
class Asking:
    """A call, as a rule reads it.

    Attributes:
        parameters: The parameters as a boto3 client takes them.
        account: The resources of the account that is called.
    """

    parameters: Mapping[str, Any]
    account: LocalAccount

    def get(self, parameter: str, default: Any = None) -> Any:
        """Return a parameter, or the default where it is not there."""
        return self.parameters.get(parameter, default)

    def needed(self, parameter: str) -> Any:
        """Return a parameter.

        Raises:
            UndecidableError: It is not there.
        """
        return needed(self.parameters, parameter)

    @property
    def new_tags(self) -> dict[str, str]:
        """The tags that the call brings, in the parameter `Tags` or `tags`."""
        return tags_of(self.get("Tags") or self.get("tags"))

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource. None where there is no such resource."""
        return self.account.tags(arn)

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource in the account and region."""
        return f"arn:aws:{service}:{self.account.region}:{self.account.account_id}:{resource}"

    def arn_of(self, named: object, service: str, kind: str) -> str:
        """Return the ARN of a resource that a request gives by its ARN or by its name.

        Args:
            named: The ARN or the name.
            service: The service as ARNs spell it.
            kind: The text before the name, for example `table/`.
        """
        name = str(named)
        return name if name.startswith("arn:") else self.arn(service, f"{kind}{name}")

    def key_named(self, named: object) -> EncryptionKey:
        """Return the customer's key that a request names by its id, its ARN or an alias.

        Raises:
            UndecidableError: There is no such key.
        """
        if (found := self.account.key_arn(str(named))) is None:
            raise UndecidableError(f"There is no key {named}.")
        return EncryptionKey(arn=found)

    def pass_role(self, role_arn: str, service: str) -> Authorization:
        """Return the permission to hand a role to a service.

        Args:
            role_arn: The ARN of the role.
            service: The service's principal, for example `sagemaker.amazonaws.com`.

        Source: "Grant a user permissions to pass a role to an AWS service" in the IAM user guide.
        """
        return ask(
            "iam:PassRole",
            role_arn,
            keys={"iam:passedtoservice": service},
            resource_tags=self.tags(role_arn),
            tag_prefixes=("aws", "iam"),
        )

    def use_key(
        self,
        key: EncryptionKey | None,
        actions: Iterable[str],
        *,
        via: str,
        encryption_context: Mapping[str, str] | None = None,
        grant_for_service: bool = False,
    ) -> Asked:
        """Ask for the permissions on a KMS key that a service uses on the caller's behalf.

        Args:
            key: The customer's key, or None where AWS's own keys encrypt, because their policies let in all users of
                the service.
            actions: The actions' names without `kms:`.
            via: The service, for example `s3`.
            encryption_context: The encryption context that the service binds the data to.
            grant_for_service: True where grants are for the service itself, as those of volumes are.

        Source: "Condition keys for AWS KMS" in the KMS developer guide (`kms:ViaService`, `kms:GrantIsForAWSResource`).
        """
        if key is None:
            return
        context = encryption_context or {}
        for action in actions:
            keys: dict[str, object] = {
                "kms:viaservice": f"{via}.{self.account.region}.amazonaws.com",
                "kms:calleraccount": self.account.account_id,
            }
            bound: Mapping[str, str] = {}
            if action == "CreateGrant":
                keys["kms:grantisforawsresource"] = grant_for_service
            elif action != "DescribeKey":
                bound = context
            keys |= {f"kms:encryptioncontext:{name}": value for name, value in bound.items()}
            sets = {"kms:encryptioncontextkeys": bound}
            yield ask(f"kms:{action}", key.arn, keys=keys, sets=sets, resource_tags=self.tags(key.arn))


def ask(
    action: str,
    resource: str = "*",
    *,
    keys: Mapping[str, object] | None = None,
    sets: Mapping[str, Iterable[object]] | None = None,
    request_tags: Mapping[str, str] | None = None,
    resource_tags: Mapping[str, str] | None = None,
    tag_prefixes: tuple[str, ...] = ("aws",),
) -> Authorization:
    """Write one authorization.

    Args:
        action: The action in AWS's spelling.
        resource: The ARN of the resource.
        keys: Condition keys in lower case, with their values. A key with the value None is not in the request.
        sets: Condition keys that hold sets, of which an empty one is not in the request.
        request_tags: The tags that the call brings.
        resource_tags: The tags of the existing resource.
        tag_prefixes: The services whose `ResourceTag` AWS fills, beside or instead of `aws`.
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
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def always(action: str, resource: str = "*") -> AuthorizationRule:
    """Return the rule of an operation that asks for one action, whatever its parameters are."""
    return lambda _call: (ask(action, resource),)


def existing(action: str, named: Naming, *, tag_prefixes: tuple[str, ...] = ("aws",)) -> AuthorizationRule:
    """Return the rule of an operation that asks for one action on one thing that is there."""

    def rule(call: Asking) -> Asked:
        resource = named(call)
        yield ask(action, resource, resource_tags=call.tags(resource), tag_prefixes=tag_prefixes)

    return rule


def making(action: str, named: Naming, *, tagging: str) -> AuthorizationRule:
    """Return the rule of an operation that makes one thing, and tags it with the tags that the call brings."""
    return lambda call: made(action, named(call), call.new_tags, tagging=tagging)


def made(
    action: str,
    resource: str,
    tags: Mapping[str, str],
    *,
    tagging: str,
    keys: Mapping[str, object] | None = None,
) -> Asked:
    """Ask for making something, and for tagging it where it gets tags.

    Args:
        action: The action that makes it.
        resource: Its ARN, or `<type>/*` where the service chooses its name.
        tags: Those that it gets.
        tagging: The action that tags it.
        keys: Condition keys of the first action, as for `ask`.
    """
    yield ask(action, resource, keys=keys, request_tags=tags)
    if tags:
        yield ask(tagging, resource, request_tags=tags)


def arn_in(parameter: str) -> Naming:
    """Return a reader of the ARN in a parameter."""
    return lambda call: str(call.needed(parameter))


def needed(given: Mapping[str, Any], name: str) -> Any:
    """Return a member of a request's parameters.

    Raises:
        UndecidableError: The member is not there.
    """
    value = given.get(name)
    if value is None:
        raise UndecidableError(f"The request has no {name}.")
    return value


def tags_of(given: Mapping[str, str] | Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Return tags by their keys, from the list or the map in which operations take them."""
    if isinstance(given, Mapping):
        return dict(given)
    return {tag["Key"]: tag.get("Value", "") for tag in given or ()}
