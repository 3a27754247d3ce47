"""The permissions that the operations of CloudFormation need.

The resources of a stack are judged as calls of the principal that makes them. A stack that is given by its name is
asked for as `stack/<name>/*`. The caller's own permissions read a template that is given by its address. A role is
passed to CloudFormation.

Source: "Control CloudFormation access with AWS Identity and Access Management" in the CloudFormation user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Rules,
    UndecidableError,
    always,
    ask,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def _stack(call: Asking) -> str:
    named = str(call.needed("StackName"))
    return named if named.startswith("arn:") else call.arn("cloudformation", f"stack/{named}/*")


def _object_at(address: str) -> str:
    """Return the ARN of the object at an address of S3, in path style or with the bucket as host."""
    parts = urlsplit(address)
    host, path = parts.hostname or "", unquote(parts.path).removeprefix("/")
    bucket, dot, _ = host.partition(".s3")
    if dot and host.endswith("amazonaws.com"):
        path = f"{bucket}/{path}"
    if "/" not in path:
        raise UndecidableError(f"{address} is no address of an object.")
    return f"arn:aws:s3:::{path}"


def _on_stack(action: str) -> AuthorizationRule:
    """Return the rule of an operation on a stack or one of its change sets."""

    def rule(call: Asking) -> Asked:
        tags = call.new_tags
        change_set = call.get("ChangeSetName")
        if "StackName" not in call.parameters and change_set is not None:
            raise UndecidableError(f"The request names the change set {change_set} without its stack.")
        stack = _stack(call)
        keys = {
            "cloudformation:changesetname": None if change_set is None else _name_of(str(change_set)),
            "cloudformation:rolearn": call.get("RoleARN"),
            "cloudformation:templateurl": call.get("TemplateURL"),
        }
        known = {name: value for name, value in keys.items() if name in _KEYS.get(action, ())}
        yield ask(f"cloudformation:{action}", stack, keys=known, request_tags=tags, resource_tags=call.tags(stack))
        if "TemplateURL" in call.parameters:
            yield ask("s3:GetObject", _object_at(str(call.parameters["TemplateURL"])))
        if (role := call.get("RoleARN")) is not None:
            yield call.pass_role(role, "cloudformation.amazonaws.com")

    return rule


def _name_of(change_set: str) -> str:
    # An ARN ends in changeSet/<name>/<id>.
    return change_set.split("/")[1] if change_set.startswith("arn:") else change_set


_WRITING: Final = ("cloudformation:rolearn", "cloudformation:templateurl")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "CreateChangeSet": ("cloudformation:changesetname", *_WRITING),
    "CreateStack": _WRITING,
    "DeleteChangeSet": ("cloudformation:changesetname",),
    "DeleteStack": ("cloudformation:rolearn",),
    "DescribeChangeSet": ("cloudformation:changesetname",),
    "ExecuteChangeSet": ("cloudformation:changesetname",),
    "UpdateStack": _WRITING,
}
"""The keys of the service that each action knows."""


def _describe_stacks(call: Asking) -> Asked:
    if "StackName" in call.parameters:
        yield from _on_stack("DescribeStacks")(call)
    else:
        yield ask("cloudformation:DescribeStacks")


_RULES: Final[Rules] = {
    "DescribeStacks": _describe_stacks,
    "ListStacks": always("cloudformation:ListStacks"),
    **{
        action: _on_stack(action)
        for action in (
            "CreateChangeSet",
            "CreateStack",
            "DeleteChangeSet",
            "DeleteStack",
            "DescribeChangeSet",
            "DescribeEvents",
            "DescribeStackEvents",
            "DescribeStackResources",
            "ExecuteChangeSet",
            "GetTemplate",
            "GetTemplateSummary",
            "ListStackResources",
            "UpdateStack",
            "UpdateTerminationProtection",
        )
    },
}
OPERATIONS: Final = {"cloudformation": _RULES}
