"""What every action of the launcher has at hand: its parts, who asks, its time; and where it says what it did.

No environment variable and no hyperparameter of a job is ever logged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from launcher.payload import SweepAdvance
from spotkeep_jobs.functions.launcher_parts import LauncherParts
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "launcher")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)


@dataclass(frozen=True, kw_only=True)
class ActionContext:
    """What an action stands on.

    Attributes:
        parts: The launcher's.
        request_id: The token of a document without one.
        caller: Who asks, where that is known.
        origin: What a launch follows from: the schedule that fires, or would fire.
        seconds_left: How long the function still has for the runs of a sweep.
        go_on: Invokes the function once more, for what is left to do about a sweep. Default: that waits for the
            controller's next pass.
    """

    parts: LauncherParts
    request_id: str
    caller: Caller | None = None
    origin: Origin = ASKED_BY_A_USER
    seconds_left: Callable[[], float] = lambda: math.inf
    go_on: Callable[[SweepAdvance], None] = lambda _asked: None


def count(metric: str) -> None:
    """Count that something happened, in CloudWatch."""
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)
