"""One shape of an alarm: it rises from a threshold on, missing data are no trouble, and its end is reported, too."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct


def alarm_at(
    scope: Construct,
    id: str,  # noqa: A002
    *,
    metric: cloudwatch.IMetric,
    threshold: float,
    description: str,
    topic: sns.ITopic,
    periods: int = 1,
    of_last: int | None = None,
) -> cloudwatch.Alarm:
    """Place an alarm.

    Args:
        scope: Parent construct.
        id: Construct id.
        metric: What is watched, with its period.
        threshold: From this value on.
        description: What it means, and what to do.
        topic: Where its beginning and its end are reported.
        periods: In how many periods.
        of_last: Out of how many. Default: as many.
    """
    alarm = cloudwatch.Alarm(
        scope,
        id,
        alarm_description=description,
        metric=metric,
        threshold=threshold,
        evaluation_periods=of_last or periods,
        datapoints_to_alarm=periods if of_last is not None else None,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )
    action = actions.SnsAction(topic)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    return alarm
