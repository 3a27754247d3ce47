"""The metrics of a request, as SageMaker and the runner in the job take them. Pure.

SageMaker puts what its definitions find into CloudWatch, in `/aws/sagemaker/TrainingJobs`; the runner prints it as job
events, by which the record knows it, on every backend.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MetricDefinition.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from spotkeep_jobs.document.limits import MAX_VARIABLE, METRICS_VARIABLE
from spotkeep_jobs.document.request import MetricRequest
from spotkeep_jobs.record.record import Goal


def metric_definitions(metrics: Mapping[str, MetricRequest]) -> list[dict[str, str]]:
    """Return SageMaker's definitions. A metric that the script logs itself is found in the lines of its events.

    Args:
        metrics: By name.
    """
    return [{"Name": name, "Regex": metric.pattern or _in_events(name)} for name, metric in metrics.items()]


def metric_variables(metrics: Mapping[str, MetricRequest]) -> dict[str, str]:
    """Return the environment variables that tell the runner what to search for; none where there is no pattern.

    Args:
        metrics: By name.
    """
    searched = {
        name: {"pattern": metric.pattern, **({"step": metric.step} if metric.step else {})}
        for name, metric in metrics.items()
        if metric.pattern
    }
    if not searched:
        return {}
    text = json.dumps(searched, separators=(",", ":"))
    pieces = [text[begin : begin + MAX_VARIABLE] for begin in range(0, len(text), MAX_VARIABLE)]
    return {f"{METRICS_VARIABLE}_{number}": piece for number, piece in enumerate(pieces, start=1)}


def goals_of(metrics: Mapping[str, MetricRequest]) -> dict[str, Goal | None]:
    """Return the goal of each metric.

    Args:
        metrics: By name.
    """
    return {name: metric.goal for name, metric in metrics.items()}


def _in_events(name: str) -> str:
    return rf'"metrics":\{{[^}}]*{re.escape(json.dumps(name))}:(-?[0-9.eE+-]+)'
