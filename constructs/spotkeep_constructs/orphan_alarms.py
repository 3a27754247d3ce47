"""Alarms for what belongs to no live run: much of it for hours, what it costs, and what could not be removed."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from constructs import Construct

from spotkeep_constructs.alarms import alarm_at
from spotkeep_constructs.job_function import JobFunction

PERIOD = Duration.hours(1)
"""The controller searches once an hour: a little less often, so that an hour may be without a value."""

MOST_FOUND = 20
"""More findings than that mean that something does not clean up; warm pools that wait as they should are none."""
MOST_USD_PER_HOUR = 1.0
"""As far as prices are known: a forgotten instance, rather than a volume or two."""


class OrphanAlarms(Construct):
    """Two alarms on what three of the last four passes found, and one on what two of the last three could not remove.

    Attributes:
        alarms: All of them.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        topic: sns.ITopic,
        controller: JobFunction,
    ) -> None:
        """Place the alarms.

        Args:
            scope: Parent construct.
            id: Construct id.
            topic: Where they report.
            controller: The function that searches.
        """
        super().__init__(scope, id)

        def metric(name: str) -> cloudwatch.Metric:
            return cloudwatch.Metric(
                namespace="Spotkeep",
                metric_name=name,
                dimensions_map={"service": controller.function.function_name},
                statistic="Maximum",
                period=PERIOD,
            )

        command = "spotkeep doctor --account names each, and the command that mends it."
        self.alarms = [
            alarm_at(
                self,
                "Found",
                metric=metric("OrphansFound"),
                threshold=MOST_FOUND + 1,
                description=f"More than {MOST_FOUND} things belong to no live run, for hours: {command}",
                topic=topic,
                periods=3,
                of_last=4,
            ),
            alarm_at(
                self,
                "Cost",
                metric=metric("OrphansUsdPerHour"),
                threshold=MOST_USD_PER_HOUR,
                description=f"What belongs to no live run costs {MOST_USD_PER_HOUR:g} USD an hour or more: {command}",
                topic=topic,
                periods=3,
                of_last=4,
            ),
            alarm_at(
                self,
                "NotRemoved",
                metric=metric("OrphansNotRemoved"),
                threshold=1,
                description=f"What belongs to no live run could not be removed, or not be searched for: {command}",
                topic=topic,
                periods=2,
                of_last=3,
            ),
        ]
