"""Judges each request before it takes effect: who calls, what that asks for, whether the policies allow all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam.authorization import Authorization, Call
from spotkeep_local.iam.authorizations import UnknownOperation, authorizations_of
from spotkeep_local.iam.calls import UnreadableCall, read_call
from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal, Policies
from spotkeep_local.iam.identities import Identity, identity_of, identity_of_role, resource_policy
from spotkeep_local.iam.uses import Question

if TYPE_CHECKING:
    from spotkeep_local.access.issued_credentials import AccessKey
    from spotkeep_local.iam.authorizations import AccountView
    from spotkeep_local.iam.reference import Reference
    from spotkeep_local.iam.uses import Uses
    from spotkeep_local.iam.withheld import Withheld
    from spotkeep_local.service_base.aws_service import HttpRequest

_ACCOUNT_SECTION: Final = 4


@dataclass(frozen=True, kw_only=True)
class Denial:
    """A request that is refused, and why.

    Attributes:
        call: What was called, as far as it could be read.
        authorization: What was not granted; of a call that is not known, the call's own name as an action.
        decision: Why.
        caller: Who asked.
    """

    call: Call
    authorization: Authorization
    decision: AuthorizationDecision
    caller: CallingPrincipal


class Judge:
    """Decides by what is deployed at the moment of each request.

    Args:
        account: What is in the account.
        reference: What AWS documents.
        uses: Takes what was decided.
        withheld: What is deployed and does not count.
    """

    def __init__(self, *, account: AccountView, reference: Reference, uses: Uses, withheld: Withheld) -> None:
        self._account = account
        self._reference = reference
        self._uses = uses
        self._withheld = withheld

    def denial(self, request: HttpRequest, key: AccessKey) -> Denial | None:
        """Return why a request is refused; None for one that is granted.

        Args:
            request: As it arrived; the body of an object may be left out (`calls.needs_body`).
            key: Whose request it is.
        """
        with self._uses.timed():
            return self._denial(request, key)

    def _denial(self, request: HttpRequest, key: AccessKey) -> Denial | None:
        call = read_call(request)
        if isinstance(call, UnreadableCall):
            return _unknown(call.service, call.operation, key, call.reason)
        asked = authorizations_of(call, account=self._account)
        if isinstance(asked, UnknownOperation):
            return _unknown(call.service, call.operation, key, asked.reason)
        try:
            identity = identity_of(key)
            if identity is None:
                return _unknown(call.service, call.operation, key, f"IAM has no {key.principal.arn}")
            for authorization in asked:
                decision = self._decision(call, authorization, identity)
                if not decision.allowed:
                    return Denial(call=call, authorization=authorization, decision=decision, caller=identity.caller)
        except IamPolicyError as error:
            return _unknown(call.service, call.operation, key, str(error))
        return None

    def decision_for_service(
        self, call: Call, authorization: Authorization, *, role_arn: str | None, session: str
    ) -> AuthorizationDecision:
        """Decide about what a service is about to do by itself.

        Args:
            call: What it calls.
            authorization: What that asks for.
            role_arn: The role in which it acts; None where it acts as itself.
            session: The name of its session.
        """
        with self._uses.timed():
            return self._decision_for_service(call, authorization, role_arn=role_arn, session=session)

    def _decision_for_service(
        self, call: Call, authorization: Authorization, *, role_arn: str | None, session: str
    ) -> AuthorizationDecision:
        try:
            if role_arn is None:
                identity: Identity | None = Identity(
                    caller=CallingPrincipal.service(session), name=session, policies=()
                )
            else:
                identity = identity_of_role(role_arn, session=session)
            if identity is None:
                return AuthorizationDecision.of_unknown(f"IAM has no {role_arn}")
            return self._decision(call, authorization, identity)
        except IamPolicyError as error:
            return AuthorizationDecision.of_unknown(str(error))

    def _decision(self, call: Call, authorization: Authorization, identity: Identity) -> AuthorizationDecision:
        """Decide, and count it as a use."""
        problem = self._reference.problem_of(authorization)
        question = None if problem is not None else self._question(authorization, identity)
        decision = AuthorizationDecision.of_unknown(problem or "") if question is None else question.decided()
        if question is not None and decision.allowed:
            withheld = self._withheld.denial(identity.name, call=call, question=question, granted=decision)
            decision = withheld or decision
        self._uses.add(identity.name, call=call, authorization=authorization, decision=decision, question=question)
        return decision

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


def _unknown(service: str, operation: str, key: AccessKey, reason: str) -> Denial:
    principal = key.principal
    return Denial(
        call=Call(service=service, operation=operation, parameters={}),
        authorization=Authorization(action=f"{service or 'unknown'}:{operation or 'Unknown'}", resource="*"),
        decision=AuthorizationDecision.of_unknown(reason),
        caller=CallingPrincipal.user(principal.arn, user_id=principal.user_id),
    )


def _account_of(arn: str) -> str:
    """Return the account in an ARN; empty where it names none, as those of buckets."""
    sections = arn.split(":")
    return sections[_ACCOUNT_SECTION] if len(sections) > _ACCOUNT_SECTION else ""
