"""Reads metrics out of log lines, as CloudWatch does with the embedded metric format. Pure.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spotkeep_local.dashboard.body import MetricKey
from spotkeep_local.dashboard.values import Sample


def samples_of(line: str) -> Iterator[Sample]:
    """The samples in a line of a log; none in a line that is something else, or broken.

    Args:
        line: Of a function's log.
    """
    try:
        document = json.loads(line)
        directives = document["_aws"]["CloudWatchMetrics"]
        at = document["_aws"]["Timestamp"] / 1000
        for directive in directives:
            yield from _of_directive(directive, document, at)
    except (ValueError, KeyError, TypeError):
        return


def _of_directive(directive: Any, document: Any, at: float) -> Iterator[Sample]:
    for names in directive["Dimensions"]:
        dimensions = tuple(sorted((name, str(document[name])) for name in names))
        for definition in directive["Metrics"]:
            name = definition["Name"]
            key = MetricKey(namespace=directive["Namespace"], name=name, dimensions=dimensions)
            found = document[name]
            for value in found if isinstance(found, list) else [found]:
                yield Sample(metric=key, at=at, value=float(value))
