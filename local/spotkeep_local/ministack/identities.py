"""ministack's IAM and STS, with users, roles, instance profiles, sessions, and each resource's policies and tags.

A new local AWS has an administrator, a developer, and the service-linked roles of fleets, spot instances and FIS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ministack.core import iam_evaluator as _iam_evaluator  # type: ignore[import-untyped]
from ministack.core import responses as _responses
from ministack.services import ec2 as _ec2  # type: ignore[import-untyped]
from ministack.services import iam as _iam
from ministack.services import sts as _sts
from ministack.services import tagging as _tagging

from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES
from spotkeep_local.principals import ADMINISTRATOR, PEOPLE, AccessKey, Principal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterator, Mapping, Sequence

StoredPolicy: TypeAlias = "str | Mapping[str, Any]"
"""A policy document, as text or read, because ministack keeps it as it came."""


NO_POLICY: StoredPolicy = {}
"""The stand-in for a managed policy that is gone. As a boundary or a session policy it allows nothing."""


class StsSessions:
    """The sessions that ministack knows, for the registry of access keys.

    The answers of sts:GetCallerIdentity and the events of function URLs have their principals. ministack also verifies
    the signatures of presigned S3 requests, and accepts those of these sessions. It goes through the sessions in the
    thread of the event loop, so they change there.

    Args:
        loop: The event loop.
        account_id: The account id of the principals.
    """

    def __init__(self, loop: AbstractEventLoop, *, account_id: str) -> None:
        self._loop = loop
        self._account_id = account_id

    def find(self, access_key_id: str) -> AccessKey | None:
        """Return the session with this key. None when there is none."""
        session = _sts._sessions.get(access_key_id)
        if session is None:
            return None
        return AccessKey(
            access_key_id=access_key_id,
            secret_access_key=session["SecretAccessKey"],
            session_token=session["SessionToken"],
            expires_at=session["Expiration"],
            principal=Principal(arn=session["Arn"], user_id=session["UserId"], account_id=self._account_id),
        )

    def add(self, key: AccessKey) -> None:
        """Make a key known, as if STS had handed it out."""
        session = {
            "Arn": key.principal.arn,
            "UserId": key.principal.user_id,
            "SecretAccessKey": key.secret_access_key,
            "SessionToken": key.session_token,
            "Expiration": None,
        }
        self._loop.call_soon_threadsafe(_sts._sessions.__setitem__, key.access_key_id, session)

    def remove(self, key: AccessKey) -> None:
        """Forget a key."""
        self._loop.call_soon_threadsafe(_sts._sessions.pop, key.access_key_id, None)


@dataclass(frozen=True, kw_only=True)
class StoredIdentity:
    """IAM's data about a role or a user.

    Attributes:
        arn: Its ARN, with its path.
        documents: Its inline and attached policies by name, as they were stored. A user's include those of its groups.
        boundary: Name and document of its permissions boundary. None without one.
        tags: Its own tags.
    """

    arn: str
    documents: Mapping[str, StoredPolicy]
    boundary: tuple[str, StoredPolicy] | None
    tags: Mapping[str, str]


def stored_role(name: str) -> StoredIdentity | None:
    """Return IAM's data about a role. None where there is no such role."""
    role = _iam._roles.get(name)
    return None if role is None else _stored(role, name=name, inline=role["InlinePolicies"], groups=())


def stored_user(name: str) -> StoredIdentity | None:
    """Return IAM's data about a user. None where there is no such user."""
    user = _iam._users.get(name)
    groups = [group for group in _iam._groups.items() if name in group[1].get("Users", ())]
    inline = _iam._user_inline_policies.get(name) or {}
    return None if user is None else _stored(user, name=name, inline=inline, groups=groups)


def stored_identities() -> Mapping[str, StoredIdentity]:
    """Return IAM's data about every role and user, by name."""
    roles = {name: stored_role(name) for name in list(_iam._roles)}
    users = {name: stored_user(name) for name in list(_iam._users)}
    return {name: found for name, found in (roles | users).items() if found is not None}


def _stored(
    identity: Mapping[str, Any],
    *,
    name: str,
    inline: Mapping[str, StoredPolicy],
    groups: Sequence[tuple[str, Mapping[str, Any]]],
) -> StoredIdentity:
    documents = {f"{name}/{policy}": document for policy, document in inline.items()}
    attached = list(identity.get("AttachedPolicies", ()))
    for group, record in groups:
        documents |= {
            f"{group}/{policy}": document for policy, document in (_iam._group_inline_policies.get(group) or {}).items()
        }
        attached += record.get("AttachedPolicies", ())
    documents |= {_policy_name(arn): document for arn in attached if (document := managed_policy(arn)) is not None}
    boundary = identity.get("PermissionsBoundary")
    return StoredIdentity(
        arn=identity["Arn"],
        documents=documents,
        boundary=(_policy_name(boundary), managed_policy(boundary) or NO_POLICY) if boundary else None,
        tags={tag["Key"]: tag["Value"] for tag in identity.get("Tags", ())},
    )


def managed_policy(arn: str) -> StoredPolicy | None:
    """Return the default version of a managed policy, AWS's or the account's own. None where there is no such one."""
    document: StoredPolicy | None = _iam_evaluator._resolve_managed_policy_document(arn, _responses.get_account_id())
    return document


def _policy_name(arn: str) -> str:
    return arn.rpartition("/")[2]


def session_of(access_key_id: str) -> tuple[Mapping[str, str], Sequence[StoredPolicy] | None]:
    """Return the tags that a session was made with, and its session policies. None where it has none of these."""
    session = _sts._sessions.get(access_key_id) or {}
    tags = {tag["Key"]: tag["Value"] for tag in session.get("SessionTags") or ()}
    passed = session.get("SessionPolicies")
    if passed is None:
        return tags, None
    documents = [passed["Policy"]] if passed.get("Policy") else []
    return tags, [*documents, *(managed_policy(arn) or NO_POLICY for arn in passed.get("PolicyArns", ()))]


def resource_policy(service: str, arn: str) -> StoredPolicy | None:
    """Return the policy of a bucket, key, queue, topic, function, table or secret. None where it has none.

    Args:
        service: The service as in actions, for example `s3`, or `sts` for the trust policy of a role.
        arn: The ARN of the resource, or of an object in a bucket.
    """
    if service == "sts":
        role = _iam._roles.get(arn.rpartition("/")[2])
        return None if role is None else _without_empty_principals(role["AssumeRolePolicyDocument"])
    # Of a role it is the trust policy, which says nothing of iam:PassRole.
    found = None if service == "iam" else _iam_evaluator._resource_policy(service, arn)
    return None if found is None else found[0] or None


def resource_tags(arn: str) -> Mapping[str, str]:
    """Return the tags of a resource that ministack keeps. None where there is no such resource."""
    service, resource = arn.split(":")[2], arn.rpartition("/")[2]
    if service == "ec2":
        return {tag["Key"]: tag["Value"] for tag in _ec2._tags.get(resource) or ()}
    if service == "iam":
        role = _iam._roles.get(resource) or _iam._instance_profiles.get(resource) or {}
        return {tag["Key"]: tag["Value"] for tag in role.get("Tags", ())}
    return dict(_tagging.resource_tags(arn) or {})


def instance_profile(name: str) -> Mapping[str, Any] | None:
    """Return an instance profile with its name, Arn, InstanceProfileId and the names of its Roles. None for none."""
    found: Mapping[str, Any] | None = _iam._instance_profiles.get(name)
    return found


def instance_profile_roles(name: str) -> Sequence[str]:
    """Return the names of the roles in an instance profile. None where there is no such profile."""
    return list((instance_profile(name) or {}).get("Roles", ()))


def _without_empty_principals(stored: StoredPolicy) -> StoredPolicy:
    """Leave out statements with an empty principal, which ministack keeps where `Fn::If` empties a list."""
    document = json.loads(stored) if isinstance(stored, str) else stored
    statements = document["Statement"]
    kept = (
        [each for each in statements if each.get("Principal") not in ({"AWS": ""}, {"AWS": [""]}, {"AWS": []})]
        if isinstance(statements, list)
        else statements
    )
    return {**document, "Statement": kept}


def role_id(name: str) -> str:
    """Return the unique id of a role. An invented one where there is no such role, as STS does here."""
    role = _iam._roles.get(name) or {}
    return str(role.get("RoleId") or f"AROA{name.upper()[:17]}")


_ADMINISTRATOR_ACCESS = "arn:aws:iam::aws:policy/AdministratorAccess"


def missing_from_account() -> Iterator[dict[str, str]]:
    """Yield the calls of IAM that make the missing principals, as operation and form parameters.

    The administrator may do everything. A developer waits for a policy.
    """
    for name in PEOPLE:
        if stored_user(name) is None:
            yield {"Action": "CreateUser", "UserName": name}
            if name == ADMINISTRATOR:
                yield {"Action": "AttachUserPolicy", "UserName": name, "PolicyArn": _ADMINISTRATOR_ACCESS}
    for service, name in {**FLEET_SERVICE_ROLES, **DRILL_SERVICE_ROLES}.items():
        if stored_role(name) is None:
            trusted = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
            yield {
                "Action": "CreateRole",
                "RoleName": name,
                "Path": f"/aws-service-role/{service}/",
                "AssumeRolePolicyDocument": json.dumps({"Version": "2012-10-17", "Statement": [trusted]}),
            }
