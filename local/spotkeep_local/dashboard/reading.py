"""Asks a local AWS for a dashboard, its alarms, and what was recorded of its metrics.

The local AWS takes no metrics out of logs, so the functions' are read there; those of Lambda itself it keeps; how many
messages a queue holds is asked of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from spotkeep_local.dashboard.body import MetricKey, Widget, widgets_of
from spotkeep_local.dashboard.embedded_metrics import samples_of
from spotkeep_local.dashboard.values import Recorded, Sample, is_in_alarm
from spotkeep_local.errors import LocalAwsError

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

_FUNCTION_LOGS: Final = "/aws/lambda/"
_QUEUES: Final = "AWS/SQS"


class NoDashboardError(LocalAwsError):
    """The local AWS has no dashboard of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the local AWS has no dashboard {name!r}. Deploy with the setting dashboard=true: spotkeep local up"
        )


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm, as it stands.

    Attributes:
        name: As CloudWatch has it.
        says: What it means.
        ringing: Whether it is in the state ALARM, on what was recorded.
    """

    name: str
    says: str
    ringing: bool


@dataclass(frozen=True, kw_only=True)
class DashboardView:
    """All there is to show.

    Attributes:
        name: Of the dashboard.
        widgets: In the order of the body.
        recorded: What was recorded in the time shown.
        alarms: Those that the dashboard names.
    """

    name: str
    widgets: tuple[Widget, ...]
    recorded: Recorded
    alarms: tuple[Alarm, ...]


def read_dashboard(local: LocalAws, name: str, *, since: datetime) -> DashboardView:
    """Read a dashboard and its values from then until now.

    Args:
        local: Where.
        name: Of the dashboard: the deployment's.
        since: From when on, aware.

    Raises:
        NoDashboardError: There is none of that name.
        DashboardBodyError: It cannot be shown.
    """
    session = local.session()
    cloudwatch = session.client("cloudwatch")
    try:
        body = cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"]
    except ClientError as error:
        raise NoDashboardError(name) from error
    widgets = widgets_of(body)
    until = datetime.now(UTC)
    keys = {each.metric for widget in widgets for each in widget.shown if each.metric is not None}
    samples = [
        *_from_logs(session.client("logs"), since),
        *_from_queues(session.client("sqs"), keys, until),
        *_kept(cloudwatch, keys, since, until),
    ]
    recorded = Recorded.of(samples, start=since.timestamp(), end=until.timestamp())
    named = {arn for widget in widgets for arn in widget.alarm_arns}
    return DashboardView(
        name=name, widgets=widgets, recorded=recorded, alarms=tuple(_alarms(cloudwatch, named, recorded))
    )


def _from_logs(logs: Any, since: datetime) -> Iterator[Sample]:
    for page in logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=_FUNCTION_LOGS):
        for group in page["logGroups"]:
            query = {"logGroupName": group["logGroupName"], "startTime": int(since.timestamp() * 1000)}
            for events in logs.get_paginator("filter_log_events").paginate(**query):
                for event in events["events"]:
                    yield from samples_of(event["message"])


def _from_queues(sqs: Any, keys: Iterable[MetricKey], now: datetime) -> Iterator[Sample]:
    for key in keys:
        if key.namespace != _QUEUES or key.name != "ApproximateNumberOfMessagesVisible":
            continue
        url = sqs.get_queue_url(QueueName=dict(key.dimensions)["QueueName"])["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        yield Sample(metric=key, at=now.timestamp(), value=float(found["Attributes"]["ApproximateNumberOfMessages"]))


def _kept(cloudwatch: Any, keys: Iterable[MetricKey], since: datetime, until: datetime) -> Iterator[Sample]:
    for key in keys:
        if key.namespace != "AWS/Lambda":
            continue
        found = cloudwatch.get_metric_statistics(
            Namespace=key.namespace,
            MetricName=key.name,
            Dimensions=[{"Name": name, "Value": value} for name, value in key.dimensions],
            StartTime=since,
            EndTime=until,
            Period=60,
            Statistics=["Sum"],
        )
        for point in found["Datapoints"]:
            yield Sample(metric=key, at=point["Timestamp"].timestamp(), value=float(point["Sum"]))


def _alarms(cloudwatch: Any, arns: set[str], recorded: Recorded) -> Iterator[Alarm]:
    """Judged here, as CloudWatch would on these values: the local AWS sees no metrics that are in logs."""
    for page in cloudwatch.get_paginator("describe_alarms").paginate():
        for alarm in page["MetricAlarms"]:
            if alarm["AlarmArn"] not in arns:
                continue
            dimensions = tuple(sorted((each["Name"], each["Value"]) for each in alarm["Dimensions"]))
            key = MetricKey(namespace=alarm["Namespace"], name=alarm["MetricName"], dimensions=dimensions)
            ringing = is_in_alarm(
                metric=key,
                statistic=alarm["Statistic"],
                period_s=alarm["Period"],
                comparison=alarm["ComparisonOperator"],
                threshold=alarm["Threshold"],
                recorded=recorded,
            )
            yield Alarm(name=alarm["AlarmName"], says=alarm.get("AlarmDescription", ""), ringing=ringing)
