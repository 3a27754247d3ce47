"""Decides about one authorization by the policies of the caller and of the resource, as AWS does. Pure.

An explicit deny in any policy decides. Then, for a caller of the resource's own account, one of these allows:

| allowed by | limited by the permissions boundary and the session policy |
|---|---|
| an identity policy | yes |
| the resource's policy, which names the role | yes |
| the resource's policy, which names the user, the role's session, or everyone | no |

A resource's policy that names the account leaves the decision to the identity policies. Keys and roles must have it
leave them: of a key policy and a trust policy one statement at least must name the caller or its account.

For a caller of another account the identity policies and the resource's policy must both allow. A service is allowed
by the resource's policy alone. The root user of the account needs no identity policy.

Sources: "Policy evaluation logic", "Policy evaluation for requests within a single account", "Cross-account policy
evaluation logic", "AWS JSON policy elements: Principal", "Permissions boundaries for IAM entities" in the IAM user
guide; "Key policies in AWS KMS".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.conditions import RequestContext, UndefinedConditionError
from spotkeep_local.iam.policy import Effect, PolicyDocument, Statement, StatementId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.policy import Principals


class PrincipalKind(Enum):
    """What a caller is; the values are those of `aws:PrincipalType`."""

    USER = "User"
    ROLE_SESSION = "AssumedRole"
    ROOT = "Account"
    SERVICE = "Service"


@dataclass(frozen=True, kw_only=True)
class CallingPrincipal:
    """The principal that asks. Made by `user`, `role_session`, `root` and `service`.

    Attributes:
        kind: What it is.
        arn: The ARN of the user, the session or the root user; the name of a service, as `events.amazonaws.com`.
        account: Its account's id; empty for a service.
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
            user_id: As sts:GetCallerIdentity answers.
            tags: The user's.
        """
        own = {"aws:username": (arn.rpartition("/")[2],)}
        return cls._of_account(PrincipalKind.USER, arn, principal_arn=arn, user_id=user_id, tags=tags, own=own)

    @classmethod
    def role_session(
        cls, arn: str, *, role_arn: str, user_id: str, tags: Mapping[str, str] | None = None
    ) -> CallingPrincipal:
        """Make a session of a role.

        Args:
            arn: `arn:aws:sts::<account>:assumed-role/<role>/<session>`.
            role_arn: With the role's path, which the session's ARN lacks.
            user_id: As sts:GetCallerIdentity answers.
            tags: The role's, with the session's over them.
        """
        return cls._of_account(
            PrincipalKind.ROLE_SESSION, arn, principal_arn=role_arn, user_id=user_id, tags=tags, role_arn=role_arn
        )

    @classmethod
    def root(cls, account: str) -> CallingPrincipal:
        """Make the root user of an account."""
        arn = f"arn:aws:iam::{account}:root"
        return cls._of_account(PrincipalKind.ROOT, arn, principal_arn=arn, user_id=account, tags=None)

    @classmethod
    def service(cls, name: str) -> CallingPrincipal:
        """Make a service that acts on its own behalf, for example `events.amazonaws.com`."""
        context = {"aws:principalisawsservice": ("true",), "aws:principalservicename": (name,)}
        return cls(kind=PrincipalKind.SERVICE, arn=name, account="", context=context)

    @classmethod
    def _of_account(
        cls,
        kind: PrincipalKind,
        arn: str,
        *,
        principal_arn: str,
        user_id: str,
        tags: Mapping[str, str] | None,
        role_arn: str | None = None,
        own: Mapping[str, tuple[str, ...]] | None = None,
    ) -> CallingPrincipal:
        account = arn.split(":")[4]
        context = {
            "aws:principalarn": (principal_arn,),
            "aws:principalaccount": (account,),
            "aws:principaltype": (kind.value,),
            "aws:principalisawsservice": ("false",),
            "aws:userid": (user_id,),
            **(own or {}),
            **{f"aws:principaltag/{key}".lower(): (value,) for key, value in (tags or {}).items()},
        }
        return cls(kind=kind, arn=arn, account=account, role_arn=role_arn, context=context)


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies that apply to one authorization.

    Attributes:
        identity: The caller's: of the user with its groups, of the role.
        boundary: The caller's permissions boundary; None without one.
        session: The policies that the session was made with; None without any.
        resource: The policy of a bucket, key, queue, topic or function; the trust policy of a role. None without one.
        resource_account: The id of the resource's account.
    """

    identity: tuple[PolicyDocument, ...] = ()
    boundary: PolicyDocument | None = None
    session: tuple[PolicyDocument, ...] | None = None
    resource: PolicyDocument | None = None
    resource_account: str


class Reason(Enum):
    """Why a decision is what it is."""

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
    """What is decided about one authorization.

    Attributes:
        allowed: Whether it is granted.
        reason: Why.
        statements: Each statement that allows what is granted, or that denies it explicitly.
        unknown: What the judge does not know; None but for `Reason.UNKNOWN`.
    """

    allowed: bool
    reason: Reason
    statements: tuple[StatementId, ...] = ()
    unknown: str | None = None

    @classmethod
    def of_unknown(cls, what: str) -> AuthorizationDecision:
        """Make the denial of what the judge does not know."""
        return cls(allowed=False, reason=Reason.UNKNOWN, unknown=what)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One authorization with all that decides about it, so that it can be decided about again.

    Attributes:
        authorization: What is asked for.
        caller: Who asks.
        policies: Those that apply.
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
        """What is asked for, in lower case."""
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
            UndefinedConditionError: AWS does not say what a condition means for the request.
        """
        if about_resources and not statement.names_resource(self.authorization.resource, self.context.values):
            return False
        return all(condition.holds(self.context) for condition in statement.conditions)

    def without(self, statement: StatementId, action: str) -> Question:
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

    def named_by(self, statements: Collection[StatementId]) -> tuple[str, ...]:
        """Return the texts of these statements of the caller's that name the resource, of those that have several."""
        return tuple(
            pattern.text
            for policy in self.policies.identity
            for statement in policy.statements
            if len(statement.resources) > 1 and statement.id in statements
            for pattern in statement.resources
            if pattern.matches(self.authorization.resource, self.context.values)
        )


class _Naming(IntEnum):
    """How the policy of a resource names a caller, from the widest to the narrowest."""

    NOT = 0
    ACCOUNT = 1
    ROLE = 2
    CALLER = 3


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What the policies of one kind say about a request."""

    denies: tuple[StatementId, ...] = ()
    allows: tuple[StatementId, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _FoundOfResource(_Found):
    """What the policy of the resource says.

    Attributes:
        delegates: The statements that allow the caller's account; `allows` are those that allow the caller itself.
        naming: How both name the caller, at their narrowest.
    """

    delegates: tuple[StatementId, ...] = ()
    naming: _Naming = _Naming.NOT


def _decided(question: Question) -> AuthorizationDecision:
    policies = question.policies
    by_resource = _named_by(question, policies.resource)
    if question.caller.kind is PrincipalKind.SERVICE:
        return _of_service(by_resource)
    identity = _found(question, policies.identity)
    boundary = None if policies.boundary is None else _found(question, (policies.boundary,))
    session = None if policies.session is None else _found(question, policies.session)
    denials = (
        (Reason.EXPLICIT_DENY_IDENTITY, identity.denies),
        (Reason.EXPLICIT_DENY_BOUNDARY, boundary.denies if boundary else ()),
        (Reason.EXPLICIT_DENY_SESSION, session.denies if session else ()),
        (Reason.EXPLICIT_DENY_RESOURCE, by_resource.denies),
    )
    for reason, denies in denials:
        if denies:
            return AuthorizationDecision(allowed=False, reason=reason, statements=denies)

    implicit = _limit(boundary, session)
    limits = (*(boundary.allows if boundary else ()), *(session.allows if session else ()))
    identity_allows = bool(identity.allows) or question.caller.kind is PrincipalKind.ROOT
    same_account = question.caller.account == policies.resource_account
    delegates = () if same_account and not _must_be_named(question) else by_resource.delegates
    allows = (*identity.allows, *limits, *by_resource.allows, *delegates)
    granted = AuthorizationDecision(allowed=True, reason=Reason.ALLOWED, statements=allows)
    if not same_account:
        if not identity_allows:
            return _denied(Reason.NO_IDENTITY_ALLOW)
        if implicit is not None:
            return _denied(implicit)
        return granted if by_resource.naming is not _Naming.NOT else _denied(Reason.NO_RESOURCE_ALLOW)
    if by_resource.naming is _Naming.CALLER:
        return granted
    if by_resource.naming is _Naming.NOT and _must_be_named(question):
        return _denied(Reason.NO_RESOURCE_ALLOW)
    if not identity_allows and by_resource.naming is not _Naming.ROLE:
        return _denied(Reason.NO_IDENTITY_ALLOW)
    return granted if implicit is None else _denied(implicit)


def _of_service(by_resource: _FoundOfResource) -> AuthorizationDecision:
    if by_resource.denies:
        return AuthorizationDecision(allowed=False, reason=Reason.EXPLICIT_DENY_RESOURCE, statements=by_resource.denies)
    if by_resource.allows:
        return AuthorizationDecision(allowed=True, reason=Reason.ALLOWED, statements=by_resource.allows)
    return _denied(Reason.NO_RESOURCE_ALLOW)


def _denied(reason: Reason) -> AuthorizationDecision:
    return AuthorizationDecision(allowed=False, reason=reason)


def _limit(boundary: _Found | None, session: _Found | None) -> Reason | None:
    """Return why what an identity policy allows is not granted all the same; None when it is."""
    if boundary is not None and not boundary.allows:
        return Reason.NO_BOUNDARY_ALLOW
    if session is not None and not session.allows:
        return Reason.NO_SESSION_ALLOW
    return None


def _found(question: Question, policies: Iterable[PolicyDocument]) -> _Found:
    applying = [
        statement for policy in policies for statement in policy.about(question.action) if question.satisfies(statement)
    ]
    return _Found(
        denies=tuple(statement.id for statement in applying if statement.effect is Effect.DENY),
        allows=tuple(statement.id for statement in applying if statement.effect is Effect.ALLOW),
    )


def _named_by(question: Question, policy: PolicyDocument | None) -> _FoundOfResource:
    if policy is None:
        return _FoundOfResource()
    denies: list[StatementId] = []
    allows: list[StatementId] = []
    delegates: list[StatementId] = []
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
    named = _names_of(caller)
    if statement.effect is Effect.DENY:
        return _Naming.NOT if all(_excepts(excepted, name) for name in named) else _Naming.CALLER
    return _Naming.NOT if any(_excepts(excepted, name) for name in named) else _Naming.CALLER


def _naming_of(principals: Principals, caller: CallingPrincipal) -> _Naming:
    if principals.everyone or caller.arn in principals.arns or caller.arn in principals.services:
        return _Naming.CALLER
    if caller.role_arn is not None and caller.role_arn in principals.arns:
        return _Naming.ROLE
    if caller.account in principals.accounts:
        return _Naming.CALLER if caller.kind is PrincipalKind.ROOT else _Naming.ACCOUNT
    return _Naming.NOT


def _names_of(caller: CallingPrincipal) -> tuple[str, ...]:
    """Return all that `NotPrincipal` must list to leave a caller out: its account too, and the role of a session."""
    match caller.kind:
        case PrincipalKind.SERVICE:
            return (caller.arn,)
        case PrincipalKind.ROOT:
            return (caller.account,)
    return (caller.arn, *([caller.role_arn] if caller.role_arn else []), caller.account)


def _excepts(principals: Principals, name: str) -> bool:
    return principals.everyone or name in principals.arns | principals.accounts | principals.services


_ASSUMING: Final = frozenset(
    f"sts:{name}"
    for name in ("assumerole", "assumerolewithsaml", "assumerolewithwebidentity", "tagsession", "setsourceidentity")
)


def is_assuming(action: str) -> bool:
    """Return whether an action makes a session of a role: then the resource's policy is the role's trust policy."""
    return action.lower() in _ASSUMING


def _must_be_named(question: Question) -> bool:
    """Return whether the resource is one whose own policy must give a part: a role that is assumed, a key."""
    return is_assuming(question.action) or (
        question.action.startswith("kms:") and ":key/" in question.authorization.resource
    )
