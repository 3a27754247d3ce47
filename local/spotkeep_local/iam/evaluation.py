"""Decides about one authorization by the policies of the caller and of the resource, as AWS does. Pure.

An explicit deny in any policy decides. Then, for a caller of the resource's own account, one of these allows:

| allowed by | limited by the permissions boundary and the session policy |
|---|---|
| an identity policy | yes |
| the resource's policy, which names the role | yes |
| the resource's policy, which names the user, the role's session, or everyone | no |

A resource's policy that names the account leaves the decision to the identity policies. Keys and roles need such a
policy. At least one statement of a key policy or a trust policy must name the caller or its account.

For a caller of another account the identity policies and the resource's policy must both allow. A service is allowed by
the resource's policy alone.

Sources: "Policy evaluation logic", "Policy evaluation for requests within a single account", "Cross-account policy
evaluation logic", "AWS JSON policy elements: Principal", "Permissions boundaries for IAM entities" in the IAM user
guide. "Key policies in AWS KMS".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.conditions import RequestContext, UndefinedConditionError
from spotkeep_local.iam.policy import Effect, PolicyDocument, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spotkeep_local.iam.authorization import Authorization


class PrincipalKind(Enum):
    """The kind of a caller. The values are those of `aws:PrincipalType`."""

    USER = "User"
    ROLE_SESSION = "AssumedRole"
    SERVICE = "Service"


@dataclass(frozen=True, kw_only=True)
class CallingPrincipal:
    """The principal that calls. Made by `user`, `role_session` and `service`.

    Attributes:
        kind: The kind of principal.
        arn: The ARN of the user or the session, or the name of a service, such as `events.amazonaws.com`.
        account: The id of its account, or empty for a service.
        role_arn: The ARN of the role of a session.
        context: The condition keys that the caller brings to each of its requests, by their names in lower case. Each
            has one value.
    """

    kind: PrincipalKind
    arn: str
    account: str
    role_arn: str | None = None
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def user(cls, arn: str, *, user_id: str, tags: Mapping[str, str] | None = None) -> CallingPrincipal:
        """Make an IAM user.

        Args:
            arn: `arn:aws:iam::<account>:user/<path and name>`.
            user_id: The id in sts:GetCallerIdentity.
            tags: The user's.
        """
        context = _keys_of_caller(PrincipalKind.USER, arn, user_id=user_id, tags=tags)
        context["aws:username"] = (arn.rpartition("/")[2],)
        return cls(kind=PrincipalKind.USER, arn=arn, account=arn.split(":")[4], context=context)

    @classmethod
    def role_session(
        cls, arn: str, *, role_arn: str, user_id: str, tags: Mapping[str, str] | None = None
    ) -> CallingPrincipal:
        """Make a session of a role.

        Args:
            arn: `arn:aws:sts::<account>:assumed-role/<role>/<session>`.
            role_arn: The role's ARN, with its path.
            user_id: The id in sts:GetCallerIdentity.
            tags: The role's, with the session's over them.
        """
        context = _keys_of_caller(PrincipalKind.ROLE_SESSION, role_arn, user_id=user_id, tags=tags)
        account = arn.split(":")[4]
        return cls(kind=PrincipalKind.ROLE_SESSION, arn=arn, account=account, role_arn=role_arn, context=context)

    @classmethod
    def service(cls, name: str) -> CallingPrincipal:
        """Make a service that acts on its own behalf, for example `events.amazonaws.com`."""
        context = {"aws:principalisawsservice": ("true",), "aws:principalservicename": (name,)}
        return cls(kind=PrincipalKind.SERVICE, arn=name, account="", context=context)


def _keys_of_caller(
    kind: PrincipalKind, principal_arn: str, *, user_id: str, tags: Mapping[str, str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the condition keys that users and sessions bring to each request."""
    return {
        "aws:principalarn": (principal_arn,),
        "aws:principalaccount": (principal_arn.split(":")[4],),
        "aws:principaltype": (kind.value,),
        "aws:principalisawsservice": ("false",),
        "aws:userid": (user_id,),
        **{f"aws:principaltag/{key}".lower(): (value,) for key, value in (tags or {}).items()},
    }


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies that apply to one authorization.

    Attributes:
        identity: The caller's policies, which are those of the role, or of the user with its groups.
        boundary: The caller's permissions boundary, or None.
        session: The policies that the session was made with, or None.
        resource: The policy of a bucket, key, queue, topic or function, the trust policy of a role, or None.
        resource_account: The id of the resource's account.
    """

    identity: tuple[PolicyDocument, ...] = ()
    boundary: PolicyDocument | None = None
    session: tuple[PolicyDocument, ...] | None = None
    resource: PolicyDocument | None = None
    resource_account: str


class Reason(Enum):
    """The reason for a decision."""

    ALLOWED = "allowed"
    EXPLICIT_DENY_IDENTITY = "explicit deny in an identity policy"
    EXPLICIT_DENY_BOUNDARY = "explicit deny in the permissions boundary"
    EXPLICIT_DENY_SESSION = "explicit deny in a session policy"
    EXPLICIT_DENY_RESOURCE = "explicit deny in the resource's policy"
    NO_IDENTITY_ALLOW = "no identity policy allows it"
    NO_BOUNDARY_ALLOW = "the permissions boundary does not allow it"
    NO_SESSION_ALLOW = "no session policy allows it"
    NO_RESOURCE_ALLOW = "the resource's policy does not allow it"
    UNKNOWN = "the judge does not know what AWS would do"


@dataclass(frozen=True, kw_only=True)
class AuthorizationDecision:
    """The decision about one authorization.

    Attributes:
        reason: The reason for it.
        statements: Each statement that allows a granted permission, or that denies it explicitly.
        unknown: The part of the request that the judge does not know. None except for `Reason.UNKNOWN`.
    """

    reason: Reason
    statements: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def allowed(self) -> bool:
        """True where it is granted."""
        return self.reason is Reason.ALLOWED

    @classmethod
    def of_unknown(cls, what: str) -> AuthorizationDecision:
        """Make the denial of a request that the judge does not know."""
        return cls(reason=Reason.UNKNOWN, unknown=what)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One authorization with all that decides about it, so that it can be decided again.

    Attributes:
        authorization: The permission that is asked for.
        caller: The principal that asks.
        policies: The policies that apply.
    """

    authorization: Authorization
    caller: CallingPrincipal
    policies: Policies

    def decided(self) -> AuthorizationDecision:
        """Decide about it."""
        try:
            return _decided(self)
        except UndefinedConditionError as error:
            return AuthorizationDecision.of_unknown(str(error))

    @functools.cached_property
    def action(self) -> str:
        """The action, in lower case."""
        return self.authorization.action.lower()

    @functools.cached_property
    def context(self) -> RequestContext:
        """The condition keys of the request, with those of its caller."""
        values = {key.lower(): value for key, value in self.authorization.context.items()}
        values.setdefault("aws:resourceaccount", (self.policies.resource_account,))
        # The caller's keys are over those of the request: a request does not choose who makes it.
        values.update(self.caller.context)
        multivalued = frozenset(key.lower() for key in self.authorization.multivalued)
        return RequestContext(values=values, multivalued=multivalued)

    def satisfies(self, statement: Statement, *, about_resources: bool = True) -> bool:
        """Return whether the resource and the conditions of a statement about the action are those of the request.

        Raises:
            UndefinedConditionError: AWS's documentation does not define a condition's meaning for the request.
        """
        if about_resources and not statement.names_resource(self.authorization.resource, self.context.values):
            return False
        return all(condition.holds(self.context) for condition in statement.conditions)

    def without(self, statement: str, action: str) -> Question:
        """Return the question under policies without one action of one statement, of the caller or of the resource."""
        policies = self.policies
        return replace(
            self,
            policies=replace(
                policies,
                identity=tuple(policy.without(statement, action) for policy in policies.identity),
                resource=None if policies.resource is None else policies.resource.without(statement, action),
            ),
        )


class _Naming(IntEnum):
    """The ways in which a resource's policy names a caller, from the widest to the narrowest."""

    NOT = 0
    ACCOUNT = 1
    ROLE = 2
    CALLER = 3


@dataclass(frozen=True, kw_only=True)
class _PolicyFindings:
    """The statements of the policies of one kind that apply to a request."""

    denies: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _FoundOfResource(_PolicyFindings):
    """The statements of the resource's policy that apply to a request.

    Attributes:
        delegates: The statements that allow the caller's account, while `allows` are those that allow the caller
            itself.
        naming: The narrowest way in which both name the caller.
    """

    delegates: tuple[str, ...] = ()
    naming: _Naming = _Naming.NOT


def _decided(question: Question) -> AuthorizationDecision:
    policies = question.policies
    by_resource = _named_by(question, policies.resource)
    if question.caller.kind is PrincipalKind.SERVICE:
        return _of_service(by_resource)
    identity = _found(question, policies.identity)
    boundary = _found(question, () if policies.boundary is None else (policies.boundary,))
    session = _found(question, policies.session or ())
    for reason, found in (
        (Reason.EXPLICIT_DENY_IDENTITY, identity),
        (Reason.EXPLICIT_DENY_BOUNDARY, boundary),
        (Reason.EXPLICIT_DENY_SESSION, session),
        (Reason.EXPLICIT_DENY_RESOURCE, by_resource),
    ):
        if found.denies:
            return AuthorizationDecision(reason=reason, statements=found.denies)

    limit = None
    if policies.boundary is not None and not boundary.allows:
        limit = Reason.NO_BOUNDARY_ALLOW
    elif policies.session is not None and not session.allows:
        limit = Reason.NO_SESSION_ALLOW
    same_account = question.caller.account == policies.resource_account
    delegates = () if same_account and not _must_be_named(question) else by_resource.delegates
    allows = (*identity.allows, *boundary.allows, *session.allows, *by_resource.allows, *delegates)
    granted = AuthorizationDecision(reason=Reason.ALLOWED, statements=allows)
    within_limits = granted if limit is None else AuthorizationDecision(reason=limit)
    named = by_resource.naming is not _Naming.NOT
    if not same_account:
        if not identity.allows:
            return AuthorizationDecision(reason=Reason.NO_IDENTITY_ALLOW)
        if limit is not None or named:
            return within_limits
        return AuthorizationDecision(reason=Reason.NO_RESOURCE_ALLOW)
    if by_resource.naming is _Naming.CALLER:
        return granted
    if not named and _must_be_named(question):
        return AuthorizationDecision(reason=Reason.NO_RESOURCE_ALLOW)
    if not identity.allows and by_resource.naming is not _Naming.ROLE:
        return AuthorizationDecision(reason=Reason.NO_IDENTITY_ALLOW)
    return within_limits


def _of_service(by_resource: _FoundOfResource) -> AuthorizationDecision:
    if by_resource.denies:
        return AuthorizationDecision(reason=Reason.EXPLICIT_DENY_RESOURCE, statements=by_resource.denies)
    if by_resource.allows:
        return AuthorizationDecision(reason=Reason.ALLOWED, statements=by_resource.allows)
    return AuthorizationDecision(reason=Reason.NO_RESOURCE_ALLOW)


def _found(question: Question, policies: Iterable[PolicyDocument]) -> _PolicyFindings:
    applying = [
        statement for policy in policies for statement in policy.about(question.action) if question.satisfies(statement)
    ]
    return _PolicyFindings(
        denies=tuple(statement.id for statement in applying if statement.effect is Effect.DENY),
        allows=tuple(statement.id for statement in applying if statement.effect is Effect.ALLOW),
    )


def _named_by(question: Question, policy: PolicyDocument | None) -> _FoundOfResource:
    if policy is None:
        return _FoundOfResource()
    denies: list[str] = []
    allows: list[str] = []
    delegates: list[str] = []
    naming = _Naming.NOT
    # The statements of a trust policy name no resource: they are about their role.
    about_resources = not is_assuming(question.action)
    for statement in policy.about(question.action):
        named = _naming(statement, question.caller)
        if named is _Naming.NOT or not question.satisfies(statement, about_resources=about_resources):
            continue
        if statement.effect is Effect.DENY:
            denies.append(statement.id)
            continue
        (delegates if named is _Naming.ACCOUNT else allows).append(statement.id)
        naming = max(naming, named)
    return _FoundOfResource(denies=tuple(denies), allows=tuple(allows), delegates=tuple(delegates), naming=naming)


def _naming(statement: Statement, caller: CallingPrincipal) -> _Naming:
    if statement.principals is not None:
        return _naming_of(statement.principals, caller)
    excepted = statement.not_principals
    assert excepted is not None  # noqa: S101 - each statement of such a policy has one of the two, or it is not read
    # All that must be listed to leave a caller out of a deny: its account too, and the role of a session.
    left_out = [bool({name, "*"} & excepted) for name in (caller.arn, caller.role_arn, caller.account) if name]
    named = not (all(left_out) if statement.effect is Effect.DENY else any(left_out))
    return _Naming.CALLER if named else _Naming.NOT


def _naming_of(principals: frozenset[str], caller: CallingPrincipal) -> _Naming:
    if {"*", caller.arn} & principals:
        return _Naming.CALLER
    if caller.role_arn in principals:
        return _Naming.ROLE
    return _Naming.ACCOUNT if caller.account in principals else _Naming.NOT


_ASSUMING: Final = frozenset(
    f"sts:{name}"
    for name in ("assumerole", "assumerolewithsaml", "assumerolewithwebidentity", "tagsession", "setsourceidentity")
)


def is_assuming(action: str) -> bool:
    """Return whether an action makes a session of a role, so that the resource's policy is the role's trust policy."""
    return action.lower() in _ASSUMING


def _must_be_named(question: Question) -> bool:
    """Return whether the resource's own policy must allow too, as for a key and a role that is assumed."""
    return is_assuming(question.action) or (
        question.action.startswith("kms:") and ":key/" in question.authorization.resource
    )
