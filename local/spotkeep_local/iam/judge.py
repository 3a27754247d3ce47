"""Judges each request before it takes effect, by its caller's identity, its authorizations and the policies.

Each policy document is read once. Its name and its text identify a policy.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam.authorization import Authorization, Call, UnknownCall
from spotkeep_local.iam.authorizations import authorizations_of
from spotkeep_local.iam.authorizations.asking import ask
from spotkeep_local.iam.calls import read_call, region_of
from spotkeep_local.iam.denial import Denial
from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal, Policies, Question
from spotkeep_local.iam.policy import PolicyDocument, PolicyKind, read_policy
from spotkeep_local.iam.report import REPORTS, report_of
from spotkeep_local.iam.uses import JUDGING_TIME, Uses
from spotkeep_local.ministack import identities
from spotkeep_local.ministack.identities import StoredIdentity, stored_identities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_local.iam.local_account import LocalAccount
    from spotkeep_local.iam.reference import Reference
    from spotkeep_local.ministack.identities import StoredPolicy
    from spotkeep_local.principals import AccessKey, ServiceCall
    from spotkeep_local.service_base.aws_service import HttpRequest, Operation


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
    return _read_policy(stored if isinstance(stored, str) else json.dumps(stored), name, kind)


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
def _read_policy(text: str, name: str, kind: PolicyKind) -> PolicyDocument:
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


_ACCOUNT_SECTION: Final = 4


_LOG = logging.getLogger(__name__)
_KEY_ACTIONS = {
    "sqs:SendMessage": ("kms:GenerateDataKey", "kms:Decrypt"),
    "sqs:ReceiveMessage": ("kms:Decrypt",),
    "sns:Publish": ("kms:GenerateDataKey", "kms:Decrypt"),
}


class Judge:
    """Decides by the roles and policies that are deployed at the moment of each request.

    Args:
        account: The resources of the account.
        reference: AWS's documentation of actions.
    """

    def __init__(self, *, account: LocalAccount, reference: Reference) -> None:
        self._account = account
        self._reference = reference
        self._uses = Uses()

    def denial(self, request: HttpRequest, key: AccessKey) -> Denial | None:
        """Return the reason for refusing a request. None for one that is granted.

        Args:
            request: The request as it arrived. The body of an object may be left out (`calls.needs_body`).
            key: The access key of the request.
        """
        with self._uses.timed():
            self._account.begin_request(region_of(request))
            call = read_call(request)
            if isinstance(call, UnknownCall):
                return _unknown(call, key, call.reason)
            asked = authorizations_of(call, account=self._account)
            if isinstance(asked, UnknownCall):
                return _unknown(asked, key, asked.reason)
            try:
                identity = identity_of(key)
                if identity is None:
                    return _unknown(call, key, f"IAM has no {key.principal.arn}")
                for authorization in asked:
                    decision = self._decision(call, authorization, identity)
                    if not decision.allowed:
                        return Denial(call=call, authorization=authorization, decision=decision, caller=identity.caller)
            except IamPolicyError as error:
                return _unknown(call, key, str(error))
            return None

    def decision_for_service(
        self, call: Call, authorization: Authorization, *, role_arn: str | None, session: str
    ) -> AuthorizationDecision:
        """Decide about a call that a service is about to make by itself.

        Args:
            call: The call.
            authorization: The permission that it needs.
            role_arn: The role in which the service acts. None where it acts as itself.
            session: The name of its session.
        """
        with self._uses.timed():
            try:
                identity = _service(session) if role_arn is None else identity_of_role(role_arn, session=session)
                if identity is None:
                    return AuthorizationDecision.of_unknown(f"IAM has no {role_arn}")
                return self._decision(call, authorization, identity)
            except IamPolicyError as error:
                return AuthorizationDecision.of_unknown(str(error))

    def control_operations(self) -> dict[str, Operation]:
        """Return the control plane's operations about permissions, by name."""
        return {"JudgingTime": self._judging_time, "Permissions": self._permissions}

    def _permissions(self, _request: dict[str, Any]) -> Mapping[str, Any]:
        read = stored_policies()
        reports = report_of(
            self._uses.counted(),
            policies={name: policies for name, (policies, _problems) in read.items()},
            problems={name: problems for name, (_policies, problems) in read.items()},
        )
        return {"identities": REPORTS.dump_python(list(reports), mode="json")}

    def _judging_time(self, _request: dict[str, Any]) -> Mapping[str, Any]:
        document: Mapping[str, Any] = JUDGING_TIME.dump_python(self._uses.judging_time(), mode="json")
        return document

    def _decision(self, call: Call, authorization: Authorization, identity: Identity) -> AuthorizationDecision:
        """Decide, and count it as a use."""
        if (problem := self._reference.problem_of(authorization)) is not None:
            decision = AuthorizationDecision.of_unknown(problem)
        else:
            decision = self.decided(self._question(authorization, identity), call=call, identity=identity.name)
        self._uses.add(identity.name, call=call, authorization=authorization, decision=decision)
        return decision

    def decided(
        self,
        question: Question,
        *,
        call: Call,  # noqa: ARG002 - for judges that extend this one, as is the next
        identity: str,  # noqa: ARG002
    ) -> AuthorizationDecision:
        """Decide about one permission that a call asks for.

        Args:
            question: The permission, its caller, and all policies about it.
            call: The call.
            identity: The name of the calling role, user or service.
        """
        return question.decided()

    def _question(self, authorization: Authorization, identity: Identity) -> Question:
        service = authorization.action.partition(":")[0]
        policies = Policies(
            identity=identity.policies,
            boundary=identity.boundary,
            session=identity.session,
            resource=resource_policy(service, authorization.resource),
            resource_account=_account_of(authorization.resource) or self._account.account_id,
        )
        complete = replace(authorization, context={**self._of_every_request(), **authorization.context})
        return Question(authorization=complete, caller=identity.caller, policies=policies)

    def _of_every_request(self) -> dict[str, tuple[str, ...]]:
        now = datetime.now(UTC)
        return {
            "aws:currenttime": (now.strftime("%Y-%m-%dT%H:%M:%SZ"),),
            "aws:epochtime": (str(int(now.timestamp())),),
            "aws:requestedregion": (self._account.region,),
            # Requests stay on loopback, in place of the TLS that clients of AWS use.
            "aws:securetransport": ("true",),
            "aws:sourceip": ("127.0.0.1",),
            "aws:viaawsservice": ("false",),
        }


def stored_policies() -> dict[str, tuple[list[PolicyDocument], list[str]]]:
    """Return the identity policies of each role and user by its name, and why others of them cannot be read."""
    return {name: _read(identity) for name, identity in stored_identities().items()}


def _read(identity: StoredIdentity) -> tuple[list[PolicyDocument], list[str]]:
    policies, problems = [], []
    for name, document in identity.documents.items():
        try:
            policies.append(read_stored(document, name=name, kind=PolicyKind.IDENTITY))
        except IamPolicyError as error:
            problems.append(str(error))
    return policies, problems


def _service(name: str) -> Identity:
    """Return a service that acts as itself."""
    return Identity(caller=CallingPrincipal.service(name), name=name, policies=())


def _unknown(call: Call | UnknownCall, key: AccessKey, reason: str) -> Denial:
    principal = key.principal
    return Denial(
        call=Call(service=call.service, operation=call.operation, parameters={}),
        authorization=Authorization(action=f"{call.service or 'unknown'}:{call.operation or 'Unknown'}", resource="*"),
        decision=AuthorizationDecision.of_unknown(reason),
        caller=CallingPrincipal.user(principal.arn, user_id=principal.user_id),
    )


def _account_of(arn: str) -> str:
    """Return the account in an ARN. Empty where it names none, as those of buckets."""
    sections = arn.split(":")
    return sections[_ACCOUNT_SECTION] if len(sections) > _ACCOUNT_SECTION else ""


def is_allowed(call: ServiceCall, *, judge: Judge, account: LocalAccount) -> bool:
    """Return whether a service may make the call that it is about to make.

    Args:
        call: The call.
        judge: Decides, and counts it as a use.
        account: The resources of the account.
    """
    for role_arn, authorization in _asked(call, account):
        service, _, action = authorization.action.partition(":")
        operation = "Invoke" if action == "InvokeFunction" else action
        decision = judge.decision_for_service(
            Call(service=service, operation=operation, parameters={}),
            authorization,
            role_arn=role_arn,
            session=call.service,
        )
        if not decision.allowed:
            _LOG.warning(
                "denied: %s may not %s on %s: %s",
                role_arn or call.service,
                authorization.action,
                authorization.resource,
                decision.unknown or decision.reason.value,
            )
            return False
    return True


def agent_may_connect(role: str, instance_arn: str | None, *, judge: Judge, account: LocalAccount) -> bool:
    """Return whether Systems Manager's agent may open its channels, and so take sessions.

    Args:
        role: The name of the training job's role, or of the instance's.
        instance_arn: The ARN of the instance. None in a training job.
        judge: Decides, and counts it as a use.
        account: The resources of the account.
    """
    role_arn = account.role_arn(role)
    return role_arn is not None and all(
        judge.decision_for_service(
            Call(service="ssmmessages", operation=operation, parameters={}),
            ask(f"ssmmessages:{operation}", keys={"ec2:sourceinstancearn": instance_arn}),
            role_arn=role_arn,
            session="amazon-ssm-agent",
        ).allowed
        for operation in ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
    )


def _asked(call: ServiceCall, account: LocalAccount) -> Iterator[tuple[str | None, Authorization]]:
    """Yield all that a call asks for, each with the role that is asked for it. None where it is the service itself."""
    if call.role_arn is not None:
        source = _source_of_trust(call)
        keys = {"aws:sourcearn": source, "aws:sourceaccount": source and account.account_id}
        yield None, ask("sts:AssumeRole", call.role_arn, keys=keys)
        itself = {}
    else:
        itself = {"aws:sourcearn": call.source_arn, "aws:sourceaccount": account.account_id}
    for action in call.actions:
        of_ec2 = action.startswith("ec2:")
        yield (
            call.role_arn,
            ask(
                action,
                call.resource,
                keys=itself | ({"ec2:region": account.region} if of_ec2 else {}),
                resource_tags=account.tags(call.resource) if of_ec2 and call.resource != "*" else None,
                tag_prefixes=("aws", "ec2"),
            ),
        )
        if action in _KEY_ACTIONS and (key := account.key_of(call.resource)) is not None:
            via = {"kms:viaservice": f"{action.partition(':')[0]}.{account.region}.amazonaws.com"}
            for key_action in _KEY_ACTIONS[action]:
                yield call.role_arn, ask(key_action, key.arn, keys=itself or via)


def _source_of_trust(call: ServiceCall) -> str | None:
    """Return the `aws:SourceArn` with which a service takes a role. None where AWS documents none."""
    if call.service == "fis.amazonaws.com":
        return call.source_arn
    if call.service == "scheduler.amazonaws.com":
        # Of the schedule's group, not of the schedule.
        return call.source_arn.rpartition("/")[0].replace(":schedule/", ":schedule-group/")
    return None
