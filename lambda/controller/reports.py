"""What the controller says of itself, in its log and its metrics: what it found, did, and could not do.

Each metric that has a value in an hour is billed for that hour: what is seldom more than nothing is written then alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotkeep_jobs.functions.full_pass import PassReport
from spotkeep_jobs.record.orphan_report import OrphanOutcome, OrphanReport

if TYPE_CHECKING:
    from spotkeep_jobs.notifications.outbox import Delivery

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "controller")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)


def count(metric: str, value: int = 1) -> None:
    """Count that something happened, in CloudWatch."""
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)


def report_refusal(problem: str) -> None:
    """Say that an event hints at nothing."""
    logger.warning("ignored an event", problem=problem)
    count("EventRefused")


def report_delivery(delivery: Delivery) -> None:
    """Say which notifications went out and which did not.

    What was not sent is not raised: the record is right, and a later pass sends what stayed in the outbox.
    """
    for notification_id in delivery.sent:
        logger.info("notification sent", notification_id=notification_id)
    for failure in delivery.failures:
        logger.warning("notification not sent", problem=failure)
    count("NotificationSent", len(delivery.sent))
    count("NotificationNotSent", len(delivery.failures))
    count("NotificationDead", len(delivery.dead))


def report_prices(report: PassReport) -> None:
    """Say that AWS's prices could not be read, if so."""
    if problem := report.prices_unread or report.failures.get("prices"):
        logger.warning("prices not read", problem=problem)


def report_pass(report: PassReport) -> None:
    """Say what a pass over everything found and did."""
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
