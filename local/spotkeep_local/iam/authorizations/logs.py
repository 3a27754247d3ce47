"""What the operations of CloudWatch Logs ask for.

What acts on a group as a whole asks for the ARN that ends in `:log-stream:`, so that a policy has to name the group
with `:*` behind it. Tagging alone takes the bare ARN.

Source: "Overview of managing access permissions to your CloudWatch Logs resources" in the CloudWatch Logs user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import UndecidableError, always, arn, ask, needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _group(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of a group, without what AWS puts behind it."""
    identifier = parameters.get("logGroupIdentifier")
    if identifier is not None and str(identifier).startswith("arn:"):
        return str(identifier).removesuffix(":*")
    name = identifier if identifier is not None else parameters.get("logGroupName")
    if name is None:
        raise UndecidableError("The request names no log group.")
    return arn("logs", f"log-group:{name}", account)


def _on_group(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterable[Authorization]:
        group = _group(parameters, account)
        tags = {} if action == "CreateLogGroup" else account.tags(group)
        asked = ask(f"logs:{action}", f"{group}:log-stream:", request_tags=parameters.get("tags"), resource_tags=tags)
        return (asked,)

    return rule


def _on_stream(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterable[Authorization]:
        group = _group(parameters, account)
        stream = f"{group}:log-stream:{needed(parameters, 'logStreamName')}"
        return (ask(f"logs:{action}", stream),)

    return rule


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "CreateLogGroup": _on_group("CreateLogGroup"),
    "CreateLogStream": _on_stream("CreateLogStream"),
    "DeleteLogGroup": _on_group("DeleteLogGroup"),
    "DeleteLogStream": _on_stream("DeleteLogStream"),
    "DescribeLogGroups": always("logs:DescribeLogGroups"),
    "DescribeLogStreams": _on_group("DescribeLogStreams"),
    "FilterLogEvents": _on_group("FilterLogEvents"),
    "GetLogEvents": _on_stream("GetLogEvents"),
    "PutLogEvents": _on_stream("PutLogEvents"),
    "PutRetentionPolicy": _on_group("PutRetentionPolicy"),
}
