"""Every answer that a test's client gets from the local AWS is held to botocore's model of it.

A hook on each boto3 client of the process reads the raw body. All sessions share the models: each would read them for
itself. What ministack's answers have that AWS's have not stands
in `KNOWN_DIFFERENCES`: one that is not there fails the test that meets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import botocore.session

from spotkeep_local.service_base.clients import with_shared_models
from spotkeep_local.service_base.model_check import problems_of_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import OperationModel

KNOWN_DIFFERENCES: Final[Mapping[str, tuple[str, ...]]] = {
    "cloudformation DescribeChangeSet": ("ChangeSetType is not in the model",),
    "cloudformation DescribeStackEvents": ("StackEvents[].ResourceStatus is 'REVIEW_IN_PROGRESS'",),
    "ec2 CreateSecurityGroup": ("return is not",),
    "ec2 DescribeImages": ("imagesSet[].platform is 'windows'",),
    "ec2 DescribeVpcEndpoints": ("vpcEndpointSet[].state is 'available'",),
    "ec2 DescribeVpcs": (
        "vpcSet[].mainRouteTableId is not",
        "vpcSet[].defaultSecurityGroupId is not",
        "vpcSet[].defaultNetworkAclId is not",
    ),
    "efs CreateMountTarget": ("MountTargetArn is not",),
    "efs DescribeMountTargets": ("MountTargets[].MountTargetArn is not",),
    "events ListRules": ("Rules[].CreatedBy is not",),
    "lambda CreateFunction": ("LastUpdateStatusReasonCode is ''",),
    "lambda GetFunction": ("Configuration.LastUpdateStatusReasonCode is ''", "Configuration.StateReasonCode is ''"),
    "lambda ListFunctions": ("Functions[].LastUpdateStatusReasonCode is ''", "Functions[].StateReasonCode is ''"),
}
"""What ministack's answers have that the model has not, by service and operation: how the problems' texts begin.

docs/local-aws.md lists them, and says which of them AWS documents as ministack writes them.
"""

checked: set[tuple[str, str]] = set()
"""The services and operations whose answers were held to the model in this process."""


class AnswerError(AssertionError):
    """An answer is one that AWS does not give."""


def check_every_answer() -> None:
    """From now on hold each answer that a boto3 client of this process gets to the model."""
    make = botocore.session.Session.__init__

    def make_checking(session: botocore.session.Session, *arguments: Any, **named: Any) -> None:
        make(session, *arguments, **named)
        with_shared_models(session)
        session.register("before-parse", _check)

    botocore.session.Session.__init__ = make_checking  # type: ignore[method-assign]


def _check(*, operation_model: OperationModel, response_dict: Mapping[str, Any], **_more: Any) -> None:
    if response_dict["status_code"] >= 300:
        return
    service, operation = operation_model.service_model.service_name, operation_model.name
    checked.add((service, operation))
    known = KNOWN_DIFFERENCES.get(f"{service} {operation}", ())
    problems = [
        problem
        for problem in problems_of_answer(operation_model, response_dict["body"])
        if not problem.startswith(known)
    ]
    if problems:
        raise AnswerError(f"{service} {operation}: {'; '.join(problems)}")
