"""The controller's reports in its log and its metrics about its findings, its actions and its failures.

Each metric that has a value in an hour is billed for that hour. So a metric that is usually zero is written only when
it is not zero.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from spotkeep_jobs.record.orphan_report import OrphanOutcome, OrphanReport
from spotkeep_jobs.record.run_metrics import UNITS, RunMetrics, in_flight_now, total

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.notifications.outbox import Delivery
    from spotkeep_jobs.record.record import Pool
    from spotkeep_jobs.record.states import RunState
    from spotkeep_jobs.settings import ControllerSettings

_NAMESPACE: Final = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep")
_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "controller")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=_NAMESPACE, service=_SERVICE)


@dataclass(kw_only=True)
class PassReport:
    """The results of one pass.

    The next pass begins with the items that this one had no time for. Without prices, bills say that a price is not
    known.

    Attributes:
        runs: Number of runs that were reconciled.
        adopted: Number of other clients' jobs that became runs.
        unchanged: Number of the reconciled runs that the search of jobs showed unchanged.
        changes: Number of changes that were written.
        completed: Number of half-done launches that were finished.
        pools: Number of warm pools that were reconciled.
        notifications_sent: Number of notifications that went out.
        notifications_dead: Number of notifications that were refused for the last time.
        left: Number of runs that the pass had no time for.
        others_left: Number of quotas, sweeps and warm pools that the pass had no time for.
        orphans_removed: Number of fleets, volumes and snapshots that were deleted because they are not needed.
        failures: The name and the reason of each failure.
        happened: The counts that the pass's changes add to the deployment's metrics.
        states: The states of the runs that were reconciled.
        kept: The warm pools that exist.
        prices_unread: The reason why AWS could not give its prices.
        orphans: The findings of the pass over orphans, or None when it was not due.
    """

    runs: int = 0
    adopted: int = 0
    unchanged: int = 0
    changes: int = 0
    completed: int = 0
    pools: int = 0
    notifications_sent: int = 0
    notifications_dead: int = 0
    left: int = 0
    others_left: int = 0
    orphans_removed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    happened: list[RunMetrics] = field(default_factory=list)
    states: list[RunState] = field(default_factory=list)
    kept: list[Pool] = field(default_factory=list)
    prices_unread: str | None = None
    orphans: OrphanReport | None = None

    @property
    def metrics(self) -> RunMetrics:
        """The values that the pass adds to the deployment's metrics, and the values that it saw."""
        return {**total(self.happened), **in_flight_now(self.states, self.kept)}


def count(metric: str, value: int = 1) -> None:
    """Count that something happened, in CloudWatch."""
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)


def write_metrics(values: RunMetrics, *, deployment: Deployment[ControllerSettings]) -> None:
    """Write the metrics of the deployment's dashboard into the log, from which CloudWatch takes them.

    Their one dimension is Powertools' `service`, with the deployment's name as its value. A deployment may have the
    metrics switched off, as each metric that arrives in an hour is billed for it.

    Source:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

    Args:
        values: The values. None writes nothing.
        deployment: The deployment.
    """
    if not deployment.settings.deployment_metrics or not values:
        return
    line = EphemeralMetrics(namespace=_NAMESPACE, service=deployment.name)
    for metric, value in values.items():
        line.add_metric(name=metric.value, unit=UNITS.get(metric, "Count"), value=value)
    line.flush_metrics()


def report_refusal(problem: str) -> None:
    """Log that an event hints at nothing."""
    logger.warning("ignored an event", problem=problem)
    count("EventRefused")


def report_delivery(delivery: Delivery) -> None:
    """Log which notifications went out and which did not.

    An unsent notification raises no error. The record is correct, and a later pass sends every notification that stayed
    in the outbox.
    """
    for notification_id in delivery.sent:
        logger.info("notification sent", notification_id=notification_id)
    for failure in delivery.failures:
        logger.warning("notification not sent", problem=failure)
    count("NotificationSent", len(delivery.sent))
    count("NotificationNotSent", len(delivery.failures))
    count("NotificationDead", len(delivery.dead))


def report_prices(report: PassReport) -> None:
    """Log that AWS's prices could not be read, if that is the case."""
    if problem := report.prices_unread or report.failures.get("prices"):
        logger.warning("prices not read", problem=problem)


def report_pass(report: PassReport) -> None:
    """Log the findings and actions of a pass over everything."""
    logger.info(
        "reconciled everything",
        runs=report.runs,
        changes=report.changes,
        completed=report.completed,
        left=report.left,
        others_left=report.others_left,
    )
    for what, why in report.failures.items():
        logger.error("not reconciled", what=what, problem=why)
    count("RunsInFlight", report.runs + report.left)
    _count_what_is_not_0(
        {
            "PoolsKept": report.pools,
            "RunUnchanged": report.unchanged,
            "RunChanged": report.changes,
            "HalfDoneCompleted": report.completed,
            "NotificationSent": report.notifications_sent,
            "NotificationDead": report.notifications_dead,
            "PassFailures": len(report.failures),
            "PassLeft": report.left + report.others_left,
            "FleetOrphansDeleted": report.orphans_removed,
        }
    )
    report_prices(report)
    if report.orphans is not None:
        _report_orphans(report.orphans)


def _report_orphans(report: OrphanReport) -> None:
    for each in report.handled:
        finding = each.finding
        say = logger.warning if finding.wrong else logger.info
        say(
            finding.says,
            kind=finding.kind,
            rule=finding.rule,
            outcome=each.outcome,
            problem=each.problem,
            usd_per_hour=finding.usd_per_hour,
        )
    for what, why in report.unreadable.items():
        logger.error("not read", what=what, problem=why)
    count("OrphansFound", sum(each.finding.wrong for each in report.handled))
    count("OrphansRemoved", report.count(OrphanOutcome.REMOVED))
    count("OrphansUnreadable", len(report.unreadable))
    _count_what_is_not_0({"OrphansNotRemoved": report.count(OrphanOutcome.FAILED) + len(report.unreadable)})
    if usd_per_hour := report.wrong_usd_per_hour:
        metrics.add_metric(name="OrphansUsdPerHour", unit=MetricUnit.NoUnit, value=usd_per_hour)


def _count_what_is_not_0(counts: Mapping[str, int]) -> None:
    for name, value in counts.items():
        if value:
            count(name, value)
