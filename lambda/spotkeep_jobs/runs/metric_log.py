"""Writes a deployment's metrics into the function's log, from which CloudWatch takes them (embedded metric format).

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import os
from typing import Final

from aws_lambda_powertools.metrics import EphemeralMetrics

from spotkeep_jobs.record.run_metrics import UNITS, RunMetrics

NAMESPACE: Final = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep")


class MetricLog:
    """The log of one deployment's metrics.

    Their one dimension is Powertools' `service`, with the deployment for a value: the same for every function.
    """

    def __init__(self, *, deployment: str, enabled: bool = True) -> None:
        """Bind the log.

        Args:
            deployment: The deployment's name.
            enabled: False writes nothing: each metric that arrives in an hour is billed for it.
        """
        self._deployment = deployment
        self._enabled = enabled

    def write(self, metrics: RunMetrics) -> None:
        """Write one line with these values, if there are any."""
        if not self._enabled or not metrics:
            return
        line = EphemeralMetrics(namespace=NAMESPACE, service=self._deployment)
        for metric, value in metrics.items():
            line.add_metric(name=metric.value, unit=UNITS.get(metric, "Count"), value=value)
        line.flush_metrics()
