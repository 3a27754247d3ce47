"""A denial in AWS's form, with its message, its error code and its HTTP status.

The code is the error that the operation declares for denials in botocore's model. An operation without one answers with
the common code of the service's protocol.

| protocol | code | status |
|---|---|---|
| `ec2` | `UnauthorizedOperation` | 403 |
| `query`, `rest-xml` | `AccessDenied` | 403 |
| `rest-json` | `AccessDeniedException` | 403 |
| `json`, CBOR | `AccessDeniedException` | 400 |
| these two, of services that were spoken to as `query` before | the same, and `AccessDenied` for old clients | 403 |

Sources: "Troubleshoot access denied error messages" in the IAM user guide. "Troubleshoot access denied (403 Forbidden)
errors in Amazon S3". "Common errors" in the services' references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import UnknownServiceError
from botocore.model import OperationNotFoundError

from spotkeep_local.iam.evaluation import Reason, is_assuming
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.error_answers import ErrorForm, error_answer, error_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import OperationModel

    from spotkeep_local.iam.authorization import Authorization, Call
    from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal
    from spotkeep_local.service_base.error_answers import ErrorAnswer

_POLICIES: Final = {
    Reason.EXPLICIT_DENY_IDENTITY: "an identity-based policy",
    Reason.EXPLICIT_DENY_BOUNDARY: "a permissions boundary",
    Reason.EXPLICIT_DENY_SESSION: "a session policy",
    Reason.EXPLICIT_DENY_RESOURCE: "a resource-based policy",
    Reason.NO_IDENTITY_ALLOW: "identity-based policy",
    Reason.NO_BOUNDARY_ALLOW: "permissions boundary",
    Reason.NO_SESSION_ALLOW: "session policy",
    Reason.NO_RESOURCE_ALLOW: "resource-based policy",
}
_EXPLICIT: Final = frozenset(reason for reason in Reason if reason.name.startswith("EXPLICIT_DENY"))
_COMMON_CODES: Final = {
    ErrorForm.EC2: "UnauthorizedOperation",
    ErrorForm.QUERY: "AccessDenied",
    ErrorForm.S3: "AccessDenied",
}
_OF_THE_CALLER: Final = ("AccessDeniedException", "AccessDenied", "AuthorizationErrorException")
_OF_A_KEY: Final = ("KMSAccessDeniedException", "KmsAccessDeniedException", "KmsAccessDenied")


@dataclass(frozen=True, kw_only=True)
class Denial:
    """A refused request, and the reason.

    Attributes:
        call: The call, as far as it could be read.
        authorization: The permission that was not granted. For an unknown call, its own name as an action.
        decision: The decision with its reason.
        caller: The principal that called.
    """

    call: Call
    authorization: Authorization
    decision: AuthorizationDecision
    caller: CallingPrincipal

    @property
    def message(self) -> str:
        """The reason in AWS's words."""
        return denial_message(self.authorization, self.decision, self.caller)


def denial_message(authorization: Authorization, decision: AuthorizationDecision, caller: CallingPrincipal) -> str:
    """Word a denial as AWS does.

    Args:
        authorization: The permission that the call needed.
        decision: A denial.
        caller: The principal that called.
    """
    action = _spelled(authorization.action)
    # AWS names no resource where an action has none, nor where a trust policy is about its role.
    by_trust_policy = is_assuming(authorization.action) and decision.reason in (
        Reason.EXPLICIT_DENY_RESOURCE,
        Reason.NO_RESOURCE_ALLOW,
    )
    quote = '"' if action.startswith("s3:") else ""
    names_resource = authorization.resource != "*" and not by_trust_policy
    resource = f" on resource: {quote}{authorization.resource}{quote}" if names_resource else ""
    why = _why(decision, action, by_trust_policy=by_trust_policy)
    return f"User: {caller.arn} is not authorized to perform: {action}{resource} {why}"


def denial_answer(denial: Denial, *, headers: Mapping[str, str]) -> ErrorAnswer:
    """Write a denial for the client of a call.

    Args:
        denial: The denial.
        headers: The headers of the request, by their names in lower case.
    """
    operation = _operation(denial.call)
    metadata = {} if operation is None else operation.service_model.metadata
    protocol = metadata.get("protocol")
    form = error_form(headers, protocol=protocol)
    message = denial.message
    if form is ErrorForm.EC2:
        message = f"You are not authorized to perform this operation. {message}"
    is_rpc = form in (ErrorForm.JSON, ErrorForm.CBOR)
    is_compatible = is_rpc and "awsQueryCompatible" in metadata
    common = _COMMON_CODES.get(form, "AccessDeniedException")
    code, status = common, 400 if is_rpc and protocol not in (None, "rest-json") and not is_compatible else 403
    declared = {} if operation is None else {shape.name: shape.metadata for shape in operation.error_shapes}
    for name in (*(_OF_A_KEY if denial.authorization.action.startswith("kms:") else ()), *_OF_THE_CALLER):
        if name in declared:
            error = declared[name].get("error", {})
            code, status = error.get("code", name), error.get("httpStatusCode", status)
            break
    return error_answer(
        form,
        code=code,
        message=message,
        status=status,
        query_code=code.removesuffix("Exception") if is_compatible else None,
    )


def _operation(call: Call) -> OperationModel | None:
    """Return an operation's model. None where botocore knows no such service or operation."""
    try:
        return service_model(call.service).operation_model(call.operation)
    except (UnknownServiceError, OperationNotFoundError):
        return None


def _spelled(action: str) -> str:
    """Spell an action as the service's own messages do."""
    service, _, name = action.partition(":")
    match service:
        case "sqs":
            return action.lower()
        case "sns":
            return f"SNS:{name}"
    return action


def _why(decision: AuthorizationDecision, action: str, *, by_trust_policy: bool) -> str:
    if decision.reason is Reason.UNKNOWN:
        return f"because the local AWS does not know what AWS would decide: {decision.unknown}"
    policy = _POLICIES[decision.reason]
    if decision.reason in _EXPLICIT:
        return f"with an explicit deny in {'the role trust policy' if by_trust_policy else policy}"
    return f"because no {'role trust policy' if by_trust_policy else policy} allows the {action} action"
