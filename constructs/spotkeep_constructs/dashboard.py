"""A CloudWatch dashboard of a deployment's runs, money and functions."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.notifications import Notifications

NAMESPACE = "Spotkeep"
PERIOD = Duration.minutes(5)
"""The interval at which the controller reconciles everything, and so at which new figures appear."""

_GREEN, _BLUE, _ORANGE, _RED, _GREY, _PURPLE = "#2ca02c", "#1f77b4", "#ff7f0e", "#d62728", "#7f7f7f", "#9467bd"
_IN_FLIGHT = {
    "RunsTraining": ("train", _GREEN),
    "RunsWaiting": ("wait for capacity", _ORANGE),
    "RunsInterrupted": ("interrupted, wait for new", _RED),
    "RunsLaunching": ("are being launched", _BLUE),
    "RunsStopping": ("stop", _GREY),
}
_HAPPENED = {
    "RunsCompleted": ("completed", _GREEN),
    "RunsFailed": ("failed", _RED),
    "RunsStopped": ("stopped", _GREY),
    "Interruptions": ("interruptions: capacity was taken", _ORANGE),
}
_TRAINING_JOBS = "/aws/sagemaker/TrainingJobs,TrainingJobName"
"""Namespace and dimension of the metrics that SageMaker extracts by metric definitions.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/define-train-metrics.html
"""
_SAVED = "saved against on demand, USD"
_FROM_ZERO = cloudwatch.YAxisProps(min=0, show_units=False)


class Dashboard(Construct):
    """Runs by state and ending, interruptions and their cost, waiting, money, pools, notifications and faults.

    Most of the metrics come from the functions and have the deployment's name as their one dimension. Metrics about
    faults of the functions have a function's name as dimension.

    Attributes:
        dashboard: The dashboard.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        launcher: JobFunction,
        controller: JobFunction,
        functions: Sequence[JobFunction],
        notifications: Notifications,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        """Place the dashboard.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Its name, and the dimension of its metrics.
            launcher: The function that launches.
            controller: The function that reconciles runs and sends notifications.
            functions: The functions with errors and dead letters to show.
            notifications: The topics, with the queues of undelivered notifications to show.
            alarms: The deployment's alarms.
        """
        super().__init__(scope, id)
        self._deployment = deployment
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            # Dashboards are one account's, whatever the region.
            dashboard_name=f"{deployment}-{Stack.of(self).region}",
            default_interval=Duration.days(1),
            widgets=[
                [_heading(deployment)],
                [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24, height=3)],
                self._runs(),
                self._money(),
                [self._warm_pools(), _launches(launcher), _notifications_sent(controller)],
                [_training_metrics()],
                [_orphans(controller)],
                [_troubles(controller, functions), _dead_letters(functions, notifications)],
            ],
        )

    def _runs(self) -> list[cloudwatch.IWidget]:
        return [
            cloudwatch.GraphWidget(
                title="Runs in flight",
                left=[
                    self._of_deployment(name, label, color, statistic="Maximum")
                    for name, (label, color) in _IN_FLIGHT.items()
                ],
                left_y_axis=_FROM_ZERO,
                stacked=True,
                width=14,
            ),
            _totals(
                "Runs that ended, and interruptions, in the time shown",
                [self._of_deployment(name, label, color) for name, (label, color) in _HAPPENED.items()],
                width=10,
            ),
        ]

    def _money(self) -> list[cloudwatch.IWidget]:
        return [
            cloudwatch.SingleValueWidget(
                title="Saved, in the time shown",
                metrics=[self._saved_percent(), self._of_deployment("SavedUsd", _SAVED, _GREEN)],
                set_period_to_time_range=True,
                width=5,
                height=6,
            ),
            _totals(
                "Money, USD, of jobs that are over",
                [
                    self._of_deployment("BilledUsd", "billed", _BLUE),
                    self._of_deployment("SavedUsd", _SAVED, _GREEN),
                    self._of_deployment("IdlePoolUsd", "idle warm pools (billed, too)", _ORANGE),
                ],
                width=9,
            ),
            _totals(
                "Hours lost and waited, of jobs that are over",
                [
                    self._in_hours("LostTime", "lost to interruptions: repeated, restarted", _RED),
                    self._in_hours("WaitedTime", "waited for capacity (not billed)", _ORANGE),
                ],
                width=10,
            ),
        ]

    def _warm_pools(self) -> cloudwatch.IWidget:
        return cloudwatch.GraphWidget(
            title="Warm pools that wait for a job",
            left=[self._of_deployment("PoolsIdle", "pools", _PURPLE, statistic="Maximum")],
            right=[self._of_deployment("PoolsIdleUsdPerHour", "USD an hour", _ORANGE, statistic="Maximum")],
            left_y_axis=_FROM_ZERO,
            right_y_axis=_FROM_ZERO,
            width=8,
        )

    def _of_deployment(self, name: str, label: str, color: str, *, statistic: str = "Sum") -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self._deployment},
            statistic=statistic,
            period=PERIOD,
            label=label,
            color=color,
        )

    def _in_hours(self, name: str, label: str, color: str) -> cloudwatch.MathExpression:
        variable = f"seconds{name}"
        return cloudwatch.MathExpression(
            expression=f"{variable} / 3600",
            using_metrics={variable: self._of_deployment(name, label, color)},
            label=label,
            color=color,
            period=PERIOD,
        )

    def _saved_percent(self) -> cloudwatch.MathExpression:
        return cloudwatch.MathExpression(
            expression="100 * saved / (saved + billed)",
            using_metrics={
                "saved": self._of_deployment("SavedUsd", _SAVED, _GREEN),
                "billed": self._of_deployment("BilledUsd", "billed", _BLUE),
            },
            label="saved, %",
            color=_GREEN,
            period=PERIOD,
        )


def _heading(deployment: str) -> cloudwatch.IWidget:
    return cloudwatch.TextWidget(
        markdown=(
            f"# Spotkeep: {deployment}\nWhich runs these are: `spotkeep ps`. What one run went through: "
            "`spotkeep describe RUN`. What a red alarm asks for: the runbook (`spotkeep help runbook`)."
        ),
        width=24,
        height=2,
    )


def _launches(launcher: JobFunction) -> cloudwatch.IWidget:
    return _totals(
        "Launches",
        [
            _of_function(launcher, "LaunchAccepted", "accepted", _GREEN),
            _of_function(launcher, "LaunchRefused", "refused: the user can correct it", _ORANGE),
            _of_function(launcher, "LaunchUnfinished", "unfinished: AWS did not answer", _RED),
        ],
        width=8,
    )


def _notifications_sent(controller: JobFunction) -> cloudwatch.IWidget:
    return _totals(
        "Notifications",
        [
            _of_function(controller, "NotificationSent", "sent", _GREEN),
            _of_function(controller, "NotificationDead", "put aside", _RED),
        ],
        width=8,
    )


def _training_metrics() -> cloudwatch.IWidget:
    return cloudwatch.GraphWidget(
        title="What training jobs measure",
        left=[
            cloudwatch.MathExpression(
                expression=f"SEARCH('{{{_TRAINING_JOBS}}}', 'Average', {PERIOD.to_seconds():.0f})",
                using_metrics={},
                label="",
                period=PERIOD,
            )
        ],
        width=24,
    )


def _orphans(controller: JobFunction) -> cloudwatch.IWidget:
    return cloudwatch.GraphWidget(
        title="Orphans",
        left=[
            _of_function(controller, "OrphansFound", "found", _ORANGE, statistic="Maximum"),
            _of_function(controller, "OrphansRemoved", "removed", _GREEN, statistic="Maximum"),
            _of_function(controller, "OrphansNotRemoved", "could not be removed or read", _RED, statistic="Maximum"),
        ],
        right=[_of_function(controller, "OrphansUsdPerHour", "USD an hour", _BLUE, statistic="Maximum")],
        left_y_axis=_FROM_ZERO,
        right_y_axis=_FROM_ZERO,
        width=24,
    )


def _troubles(controller: JobFunction, functions: Sequence[JobFunction]) -> cloudwatch.IWidget:
    return _totals(
        "Troubles of the functions",
        [
            _of_function(controller, "EventFailed", "events to be handled again", _ORANGE),
            _of_function(controller, "PassFailures", "items of a pass that failed", _RED),
            _of_function(controller, "PassLeft", "runs a pass had no time for", _GREY),
            *(
                each.function.metric_errors(period=PERIOD, label=f"{each.package}: errors", color=_RED)
                for each in functions
            ),
        ],
        width=14,
    )


def _dead_letters(functions: Sequence[JobFunction], notifications: Notifications) -> cloudwatch.IWidget:
    return cloudwatch.SingleValueWidget(
        title="Dead letters: what failed after all retries",
        metrics=[
            *(_waiting_in(each.failures, each.package) for each in functions),
            _waiting_in(notifications.dead, "notifications put aside"),
            _waiting_in(notifications.undelivered, "notifications not delivered"),
        ],
        width=10,
        height=6,
    )


def _of_function(
    function: JobFunction, name: str, label: str, color: str, *, statistic: str = "Sum"
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"service": function.function.function_name},
        statistic=statistic,
        period=PERIOD,
        label=label,
        color=color,
    )


def _totals(title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int) -> cloudwatch.GraphWidget:
    """Return a bar for each sum over the whole time shown, since CloudWatch has no bars over time."""
    return cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=_FROM_ZERO,
        view=cloudwatch.GraphWidgetView.BAR,
        set_period_to_time_range=True,
        width=width,
    )


def _waiting_in(queue: sqs.IQueue, label: str) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum", label=label)
