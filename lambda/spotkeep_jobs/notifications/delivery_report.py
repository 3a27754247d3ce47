"""What a delivery of notifications did, in the log and metrics of a function: the same words for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import MetricUnit

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger, Metrics

    from spotkeep_jobs.notifications.outbox import Delivery


def report_delivery(delivery: Delivery, *, logger: Logger, metrics: Metrics) -> None:
    """Say what went out and what did not.

    What was not sent is not raised: the record is right, and the controller sends what stayed in the outbox.

    Args:
        delivery: What the outbox did.
        logger: The function's.
        metrics: The function's.
    """
    for notification_id in delivery.sent:
        logger.info("notification sent", notification_id=notification_id)
    for failure in delivery.failures:
        logger.warning("notification not sent", problem=failure)
    counts = {
        "NotificationSent": len(delivery.sent),
        "NotificationNotSent": len(delivery.failures),
        "NotificationDead": len(delivery.dead),
    }
    for name, count in counts.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
