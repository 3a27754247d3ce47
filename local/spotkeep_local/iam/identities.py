"""The identities of IAM and the sessions of STS behind access keys, with their policies.

Each document is read once. Its name and its text identify a policy.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam.evaluation import CallingPrincipal
from spotkeep_local.iam.policy import PolicyDocument, PolicyKind, read_policy
from spotkeep_local.ministack import identities

if TYPE_CHECKING:
    from spotkeep_local.ministack.identities import StoredIdentity, StoredPolicy
    from spotkeep_local.principals import AccessKey


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A caller with the policies that it brings to each of its requests.

    Attributes:
        caller: The calling principal.
        name: The name of the role or the user, as in reports.
        policies: The policies of the user with its groups, or of the role.
        boundary: The permissions boundary, or None.
        session: The session policies. None where the session was made without any.
    """

    caller: CallingPrincipal
    name: str
    policies: tuple[PolicyDocument, ...]
    boundary: PolicyDocument | None = None
    session: tuple[PolicyDocument, ...] | None = None


def identity_of(key: AccessKey) -> Identity | None:
    """Return the caller that a key belongs to.

    Returns:
        The identity. None where IAM has no such user or role any more.

    Raises:
        IamPolicyError: One of its policies cannot be read.
    """
    arn = key.principal.arn
    kind, _, named = arn.split(":", 5)[5].partition("/")
    if kind == "user":
        user = identities.stored_user(named.rpartition("/")[2])
        if user is None:
            return None
        return _identity(
            user,
            name=named,
            caller=CallingPrincipal.user(user.arn, user_id=key.principal.user_id, tags=user.tags),
            session=None,
        )
    name = named.partition("/")[0]
    role = identities.stored_role(name)
    if role is None:
        return None
    tags, session = identities.session_of(key.access_key_id)
    caller = CallingPrincipal.role_session(
        arn, role_arn=role.arn, user_id=key.principal.user_id, tags={**role.tags, **tags}
    )
    return _identity(role, name=name, caller=caller, session=session)


def identity_of_role(role_arn: str, *, session: str) -> Identity | None:
    """Return a service that acts in a role. None where IAM has no such role.

    Args:
        role_arn: The role's.
        session: The session's name.

    Raises:
        IamPolicyError: One of its policies cannot be read.
    """
    name = role_arn.rpartition("/")[2]
    role = identities.stored_role(name)
    if role is None:
        return None
    arn = f"arn:aws:sts::{role_arn.split(':')[4]}:assumed-role/{name}/{session}"
    caller = CallingPrincipal.role_session(
        arn, role_arn=role.arn, user_id=f"{identities.role_id(name)}:{session}", tags=role.tags
    )
    return _identity(role, name=name, caller=caller, session=None)


def resource_policy(service: str, arn: str) -> PolicyDocument | None:
    """Return the policy of a resource. None where it has none.

    Args:
        service: The service as in actions, for example `s3`, or `sts` for the trust policy of a role.
        arn: The ARN of the resource, or of an object in a bucket.

    Raises:
        IamPolicyError: It cannot be read.
    """
    stored = identities.resource_policy(service, arn)
    kind = PolicyKind.TRUST if service == "sts" else PolicyKind.RESOURCE
    return None if stored is None else read_stored(stored, name=arn, kind=kind)


def read_stored(stored: StoredPolicy, *, name: str, kind: PolicyKind) -> PolicyDocument:
    """Read a document as it is stored.

    Raises:
        IamPolicyError: It holds an element that AWS does not know, or lacks one that AWS requires.
    """
    return _read(stored if isinstance(stored, str) else json.dumps(stored), name, kind)


def _identity(stored: StoredIdentity, *, name: str, caller: CallingPrincipal, session: Any) -> Identity:
    boundary = stored.boundary
    return Identity(
        caller=caller,
        name=name,
        policies=tuple(
            read_stored(document, name=policy, kind=PolicyKind.IDENTITY)
            for policy, document in stored.documents.items()
        ),
        boundary=None if boundary is None else read_stored(boundary[1], name=boundary[0], kind=PolicyKind.IDENTITY),
        session=None
        if session is None
        else tuple(read_stored(each, name=f"{name}/session", kind=PolicyKind.IDENTITY) for each in session),
    )


@functools.lru_cache(maxsize=1024)
def _read(text: str, name: str, kind: PolicyKind) -> PolicyDocument:
    # IAM answers documents percent-encoded, and takes them so.
    try:
        document = json.loads(unquote(text) if text.startswith("%7B") else text)
    except ValueError as error:
        raise IamPolicyError(name, problems=[f"is no JSON: {error}"]) from error
    if not isinstance(document, Mapping):
        raise IamPolicyError(name, problems=[f"is no JSON object but {document!r}"])
    if not document.get("Statement"):
        # A function's policy before its first permission, or a managed policy that is gone.
        return PolicyDocument(name=name, statements=())
    return read_policy(document, name=name, kind=kind)
