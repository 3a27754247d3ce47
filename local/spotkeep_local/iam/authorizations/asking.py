"""What the rules of services are written with: the account that they ask, and the parts that many of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from spotkeep_local.iam.authorization import Authorization


@dataclass(frozen=True, kw_only=True)
class EncryptionKey:
    """A customer's KMS key that encrypts something. Keys that AWS manages let in all principals of the account.

    Attributes:
        arn: Its ARN, of the key and not of an alias.
        for_the_bucket: Whether the bucket has an S3 Bucket Key, so that the encryption context names the bucket.
    """

    arn: str
    for_the_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class LaunchTemplate:
    """A version of a launch template.

    Attributes:
        template_id: For example `lt-0abc`.
        data: As boto3 answers `LaunchTemplateData`.
    """

    template_id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class FunctionUrl:
    """The URL of a function.

    Attributes:
        function_arn: The ARN of the function, with the alias that the URL belongs to.
        auth_type: `AWS_IAM` or `NONE`.
    """

    function_arn: str
    auth_type: str


class AccountView(Protocol):
    """Finds what is in an account. Its answers are those of now; what is not there has none."""

    @property
    def region(self) -> str:
        """Return the region that the call was sent to."""
        ...

    @property
    def account_id(self) -> str:
        """Return twelve digits."""
        ...

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource; none where there is no such resource."""
        ...

    def has_object(self, arn: str) -> bool:
        """Return whether S3 has an object."""
        ...

    def key_of(self, arn: str) -> EncryptionKey | None:
        """Return the customer's key that encrypts a resource.

        Args:
            arn: The ARN of a bucket (its default), an object (what it was stored with), a table, queue, topic, volume,
                snapshot, parameter or secret.
        """
        ...

    def key_arn(self, key_id: str) -> str | None:
        """Return the ARN of the key with an id, an ARN or an alias; None where there is none."""
        ...

    def partition_key(self, arn: str) -> str | None:
        """Return the name of the partition key of a table or an index of DynamoDB."""
        ...

    def launch_template(self, *, template_id: str | None, name: str | None, version: str) -> LaunchTemplate | None:
        """Return a version, a number or `$Latest` or `$Default`, of the template with an id or a name."""
        ...

    def role_arn(self, name: str) -> str | None:
        """Return the ARN, with its path, of the role with a name; None where there is none."""
        ...

    def role_of_profile(self, profile: str) -> str | None:
        """Return the ARN of the role in an instance profile, which is given by its ARN or its name."""
        ...

    def function_url(self, url_id: str) -> FunctionUrl | None:
        """Return the URL with an id."""
        ...

    def properties(self, arn: str) -> Mapping[str, str]:
        """Return the values of condition keys that stand for a resource's own properties.

        Args:
            arn: The ARN of a subnet (`ec2:vpc`, `ec2:availabilityzone`), an instance (`ec2:instancetype`,
                `ec2:availabilityzone`), a volume or a snapshot (`ec2:encrypted`, `ec2:volumesize`, `ec2:volumetype`,
                `ec2:availabilityzone`, `ec2:parentvolume`).

        Returns:
            By the keys' names in lower case.
        """
        ...


Parameters: TypeAlias = "Mapping[str, Any]"
Asked: TypeAlias = "Iterator[Authorization]"
AuthorizationRule: TypeAlias = "Callable[[Parameters, AccountView], Iterable[Authorization]]"
"""From an operation's parameters to all that it asks for; raises `UndecidableError`."""
Rules: TypeAlias = "Mapping[str, AuthorizationRule]"
"""The rules of a service, by botocore's names of its operations."""
Naming: TypeAlias = "Callable[[Parameters, AccountView], str]"
"""From an operation's parameters to the ARN of what it acts on; raises `UndecidableError`."""


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
    return lambda _parameters, _account: (ask(action, resource),)


def existing(action: str, named: Naming, *, tag_prefixes: tuple[str, ...] = ("aws",)) -> AuthorizationRule:
    """Return the rule of an operation that asks for one action on one thing that is there."""

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        resource = named(parameters, account)
        yield ask(action, resource, resource_tags=account.tags(resource), tag_prefixes=tag_prefixes)

    return rule


def making(action: str, named: Naming, *, tagging: str) -> AuthorizationRule:
    """Return the rule of an operation that makes one thing, with the tags in the parameter `Tags` or `tags`."""

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        tags = tags_of(parameters.get("Tags") or parameters.get("tags"))
        yield from made(action, named(parameters, account), tags, tagging=tagging)

    return rule


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
        keys: As for `ask`, of the first action.
    """
    yield ask(action, resource, keys=keys, request_tags=tags)
    if tags:
        yield ask(tagging, resource, request_tags=tags)


def arn(service: str, resource: str, account: AccountView) -> str:
    """Return the ARN of a resource in the account and region."""
    return f"arn:aws:{service}:{account.region}:{account.account_id}:{resource}"


def arn_of(named: object, service: str, kind: str, account: AccountView) -> str:
    """Return the ARN of what a request names by its ARN or by its name.

    Args:
        named: The ARN or the name.
        service: As in ARNs.
        kind: What stands before the name in the ARN: `table/`.
        account: The account of what is named.
    """
    name = str(named)
    return name if name.startswith("arn:") else arn(service, f"{kind}{name}", account)


def arn_in(parameter: str) -> Naming:
    """Return what reads the ARN in a parameter."""
    return lambda parameters, _account: str(needed(parameters, parameter))


def needed(parameters: Parameters, name: str) -> Any:
    """Return a parameter.

    Raises:
        UndecidableError: It is not there.
    """
    value = parameters.get(name)
    if value is None:
        raise UndecidableError(f"The request has no {name}.")
    return value


def tags_of(given: Mapping[str, str] | Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Return tags by their keys, from the list or the map in which operations take them."""
    if isinstance(given, Mapping):
        return dict(given)
    return {tag["Key"]: tag.get("Value", "") for tag in given or ()}


def key_named(named: object, account: AccountView) -> EncryptionKey:
    """Return the customer's key that a request names by its id, its ARN or an alias.

    Raises:
        UndecidableError: There is no such key.
    """
    if (found := account.key_arn(str(named))) is None:
        raise UndecidableError(f"There is no key {named}.")
    return EncryptionKey(arn=found)


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
