"""The role in which CloudFormation acts for a stack: the one that the last operation on the stack named, as on AWS.

ministack makes resources inside itself, in no role. What it calls is the functions of custom resources; that is judged.

Source: "AWS CloudFormation service role" in the CloudFormation user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.iam.authorization import ServiceCall
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.service_base.query_parameters import form_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.ministack_seams import RequestHandler


class StackRoles:
    """Stands before CloudFormation, and remembers the roles that its requests hand over.

    Args:
        cloudformation: Answers the requests.
        is_allowed: Decides what CloudFormation may call.
    """

    def __init__(self, cloudformation: RequestHandler, *, is_allowed: Callable[[ServiceCall], bool]) -> None:
        self._cloudformation = cloudformation
        self._is_allowed = is_allowed
        self._roles: dict[str, str] = {}

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer one request, which the judge has let through: who sends it may pass the role."""
        form = form_parameters(HttpRequest(method=method, path=path, headers=headers, body=body, query=query_params))
        if "RoleARN" in form and "StackName" in form:
            self._roles[_name_of(form["StackName"])] = form["RoleARN"]
        return await self._cloudformation(method, path, headers, body, query_params)

    def may_invoke(self, function_arn: str, *, stack_id: str) -> bool:
        """Return whether CloudFormation may invoke a custom resource's function for a stack.

        Args:
            function_arn: The resource's `ServiceToken`.
            stack_id: The stack's id. One without a role acts with what its caller may do, which is not judged here.
        """
        role = self._roles.get(_name_of(stack_id))
        return role is None or self._is_allowed(
            ServiceCall(
                service="cloudformation.amazonaws.com",
                actions=("lambda:InvokeFunction",),
                resource=function_arn,
                source_arn=stack_id,
                role_arn=role,
            )
        )


def _name_of(stack: str) -> str:
    # An ARN ends in stack/<name>/<id>.
    return stack.split("/")[1] if stack.startswith("arn:") else stack
