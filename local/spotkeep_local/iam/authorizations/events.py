"""What the operations of EventBridge ask for.

Source: "Using IAM policy conditions in Amazon EventBridge" and "Permissions for PutTargets" in the EventBridge user
guide.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import always, arn, ask, needed, pass_role, tags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _put_events(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    asked = []
    for entry in needed(parameters, "Entries"):
        bus = str(entry.get("EventBusName", "default"))
        resource = bus if bus.startswith("arn:") else arn("events", f"event-bus/{bus}", account)
        keys = {"events:source": entry.get("Source"), "events:detail-type": entry.get("DetailType")}
        each = ask("events:PutEvents", resource, keys=keys, resource_tags=account.tags(resource))
        if each not in asked:
            asked.append(each)
    yield from asked


def _rule_arn(parameters: Parameters, account: AccountView, *, name: str) -> str:
    bus = str(parameters.get("EventBusName", "default"))
    of_the_bus = "" if bus == "default" else f"{bus.rpartition('/')[2]}/"
    return arn("events", f"rule/{of_the_bus}{needed(parameters, name)}", account)


def _on_rule(action: str, *, name: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        resource = _rule_arn(parameters, account, name=name)
        yield ask(f"events:{action}", resource, resource_tags=account.tags(resource))

    return rule


def _put_rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    resource, tags = _rule_arn(parameters, account, name="Name"), tags_of(parameters.get("Tags"))
    pattern = json.loads(parameters.get("EventPattern") or "{}")
    plain = {
        f"events:{field}": [value for value in pattern.get(field, ()) if isinstance(value, str)]
        for field in ("source", "detail-type")
    }
    yield ask("events:PutRule", resource, sets=plain, request_tags=tags, resource_tags=account.tags(resource))
    if tags:
        yield ask("events:TagResource", resource, request_tags=tags)
    if (role := parameters.get("RoleArn")) is not None:
        yield pass_role(role, "events.amazonaws.com", account)


def _put_targets(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    resource, targets = _rule_arn(parameters, account, name="Rule"), needed(parameters, "Targets")
    named = {"events:targetarn": [target["Arn"] for target in targets]}
    yield ask("events:PutTargets", resource, sets=named, resource_tags=account.tags(resource))
    for role in dict.fromkeys(target["RoleArn"] for target in targets if "RoleArn" in target):
        yield pass_role(role, "events.amazonaws.com", account)


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "DeleteRule": _on_rule("DeleteRule", name="Name"),
    "DescribeRule": _on_rule("DescribeRule", name="Name"),
    "ListRules": always("events:ListRules"),
    "ListTargetsByRule": _on_rule("ListTargetsByRule", name="Rule"),
    "PutEvents": _put_events,
    "PutRule": _put_rule,
    "PutTargets": _put_targets,
    "RemoveTargets": _on_rule("RemoveTargets", name="Rule"),
}
