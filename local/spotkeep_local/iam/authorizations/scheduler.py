"""What the operations of EventBridge Scheduler ask for. A schedule has its group's tags.

Source: "Using identity-based policies in EventBridge Scheduler" in its user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import always, arn, ask, needed, pass_role, tags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _on_schedule(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        group = str(parameters.get("GroupName", "default"))
        schedule = arn("scheduler", f"schedule/{group}/{needed(parameters, 'Name')}", account)
        tags = account.tags(arn("scheduler", f"schedule-group/{group}", account))
        yield ask(f"scheduler:{action}", schedule, resource_tags=tags)
        if (target := parameters.get("Target")) is not None:
            yield pass_role(needed(target, "RoleArn"), "scheduler.amazonaws.com", account)

    return rule


def _on_group(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        group = arn("scheduler", f"schedule-group/{needed(parameters, 'Name')}", account)
        yield ask(f"scheduler:{action}", group, resource_tags=account.tags(group))

    return rule


def _create_group(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    group = arn("scheduler", f"schedule-group/{needed(parameters, 'Name')}", account)
    tags = tags_of(parameters.get("Tags"))
    yield ask("scheduler:CreateScheduleGroup", group, request_tags=tags)
    if tags:
        yield ask("scheduler:TagResource", group, request_tags=tags)


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "CreateSchedule": _on_schedule("CreateSchedule"),
    "CreateScheduleGroup": _create_group,
    "DeleteSchedule": _on_schedule("DeleteSchedule"),
    "DeleteScheduleGroup": _on_group("DeleteScheduleGroup"),
    "GetSchedule": _on_schedule("GetSchedule"),
    "GetScheduleGroup": _on_group("GetScheduleGroup"),
    "ListSchedules": always("scheduler:ListSchedules"),
    "UpdateSchedule": _on_schedule("UpdateSchedule"),
}
