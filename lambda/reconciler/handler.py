"""The Lambda entry point of the sweep: its schedule's event says nothing, so nothing in it is read."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotkeep_jobs.launch import complete_launch
from spotkeep_jobs.reconciliation import SEARCH_FROM, Reconciler, Sweep, SweepFailedError
from spotkeep_jobs.tracing import traced
from spotkeep_jobs.tracking_functions import Tracking, TrackingSettings, wired

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "reconciler")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)

_KEPT_FOR_SENDING_MILLISECONDS: Final = 30_000
_KEPT_FOR_ONE_NOTICE_MILLISECONDS: Final = 5_000


@functools.cache
def production_reconciler() -> Reconciler:
    """The reconciler on real clients, made once for each execution environment."""
    return reconciler_on(wired(TrackingSettings.from_environment()))


def reconciler_on(parts: Tracking, *, search_from: int = SEARCH_FROM) -> Reconciler:
    """The reconciler, made of the parts that the tracker is made of, and able to complete a launch.

    Args:
        parts: The parts.
        search_from: With so many runs in flight, jobs are searched before any is described.
    """
    return Reconciler(
        deployment=parts.deployment.name,
        table=parts.table,
        observer=parts.runs,
        pools=parts.pools,
        jobs=parts.jobs,
        tuning=parts.tuning,
        outbox=parts.outbox,
        complete_launch=functools.partial(
            complete_launch,
            table=parts.table,
            jobs=parts.jobs,
            fleets=parts.fleets,
            deployment=parts.deployment,
            now=parts.clock,
        ),
        clock=parts.clock,
        sweep_fleets=None if parts.fleet_sweep is None else parts.fleet_sweep.sweep,
        metric_log=parts.metric_log,
        search_from=search_from,
    )


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - the schedule says nothing
    """Sweep once.

    Args:
        event: The schedule's; not read.
        context: Lambda's; its remaining time bounds the sweep.

    Returns:
        What the sweep did.

    Raises:
        SweepFailedError: Some items failed, after all others were done; the alarm on the function's errors sees it.
    """
    reconciler = production_reconciler()
    sweep = reconciler.sweep(
        has_time=lambda: context.get_remaining_time_in_millis() > _KEPT_FOR_SENDING_MILLISECONDS,
        may_send=lambda: context.get_remaining_time_in_millis() > _KEPT_FOR_ONE_NOTICE_MILLISECONDS,
    )
    _report(sweep)
    if sweep.failures:
        raise SweepFailedError(sweep.failures)
    return {
        "ok": True,
        "runs": sweep.runs,
        "changes": sweep.changes,
        "completed": sweep.completed,
        "pools": sweep.pools,
        "tuning_jobs": sweep.tuning_jobs,
        "notices_sent": sweep.notices_sent,
        "left": sweep.left,
    }


def _report(sweep: Sweep) -> None:
    logger.info("swept", runs=sweep.runs, changes=sweep.changes, completed=sweep.completed, left=sweep.left)
    for what, why in sweep.failures.items():
        logger.error("not reconciled", what=what, problem=why)
    counts = {
        "PoolsKept": sweep.pools,
        "RunsInFlight": sweep.runs + sweep.left,
        "RunUnchanged": sweep.unchanged,
        "RunChanged": sweep.changes,
        "HalfDoneCompleted": sweep.completed,
        "NoticeSent": sweep.notices_sent,
        "NoticeDead": sweep.notices_dead,
        "SweepFailures": len(sweep.failures),
        "SweepLeft": sweep.left,
        "FleetLeftoversDeleted": sweep.swept_away,
    }
    for name, count in counts.items():
        if not count and name != "RunsInFlight":
            continue  # Each metric that has a value in an hour is billed for it.
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    production_reconciler()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
