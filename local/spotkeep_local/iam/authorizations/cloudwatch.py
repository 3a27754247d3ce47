"""What the operations of CloudWatch ask for.

Source: "Using condition keys to limit access to CloudWatch namespaces" in the CloudWatch user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import arn, ask, needed, tags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _put_metrics(parameters: Parameters, _account: AccountView) -> Iterator[Authorization]:
    yield ask("cloudwatch:PutMetricData", keys={"cloudwatch:namespace": needed(parameters, "Namespace")})


def _on_alarm(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        alarm = arn("cloudwatch", f"alarm:{needed(parameters, 'AlarmName')}", account)
        tags = tags_of(parameters.get("Tags"))
        actions = {"cloudwatch:alarmactions": parameters.get("AlarmActions") or ()}
        yield ask(f"cloudwatch:{action}", alarm, sets=actions, request_tags=tags, resource_tags=account.tags(alarm))

    return rule


def _describe_alarms(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    # Alarms that are described by a prefix or a state are all asked for.
    for name in parameters.get("AlarmNames") or ["*"]:
        alarm = arn("cloudwatch", f"alarm:{name}", account)
        yield ask("cloudwatch:DescribeAlarms", alarm, resource_tags=account.tags(alarm))


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "DescribeAlarms": _describe_alarms,
    "PutMetricAlarm": _on_alarm("PutMetricAlarm"),
    "PutMetricData": _put_metrics,
    "SetAlarmState": _on_alarm("SetAlarmState"),
}
