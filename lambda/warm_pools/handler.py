"""The Lambda entry point: a schedule says which pool to look at; what is true is asked of SageMaker.

A pool that was taken by another job is followed to that job's run. What AWS could not answer for is raised: Lambda
tries twice more, then the event waits in the dead-letter queue, and the reconciler finds the pool anyway.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotkeep_jobs.functions.tracing import traced
from spotkeep_jobs.functions.tracking_functions import Tracking, TrackingSettings, wired
from spotkeep_jobs.notifications.delivery_report import report_delivery
from spotkeep_jobs.record.states import PoolState
from warm_pools.firings import NotAFiringError, PoolFiring, firing_of

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "warm_pools")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)

Answer = dict[str, Any]


@functools.cache
def made_once() -> Tracking:
    """The parts on real clients, made once for each execution environment."""
    return wired(TrackingSettings.from_environment())


def production_tracking() -> Tracking:
    """The parts on real clients, with prices that were read within the hour."""
    tracking = made_once()
    tracking.refresh_prices()
    return tracking


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> Answer:  # noqa: ARG001 - Lambda passes both
    """Look at the pool a schedule names.

    Args:
        event: The schedule's input.
        context: Lambda's.

    Returns:
        What was found and done; `"ok": false` for what names no pool.
    """
    try:
        firing = firing_of(event)
    except NotAFiringError as error:
        logger.warning("ignored an event", problem=str(error))
        metrics.add_metric(name="EventRefused", unit=MetricUnit.Count, value=1)
        return {"ok": False, "error": "not-a-firing", "problem": str(error)}
    metrics.add_metric(name="FiringReceived", unit=MetricUnit.Count, value=1)
    return look(firing, tracking=production_tracking())


def look(firing: PoolFiring, *, tracking: Tracking) -> Answer:
    """Look at a pool, follow it where it went, and send what there is to tell.

    Args:
        firing: Which pool.
        tracking: The parts.

    Raises:
        AwsCallError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    with logger.append_context_keys(run=firing.run, attempt=firing.attempt):
        found = tracking.pools.look(run=firing.run, attempt=firing.attempt)
        if found is None:
            logger.info("no such pool")
            return {"ok": True, "ignored": "no pool of this deployment"}
        pool = found.pool
        tracking.metric_log.write(found.happened)
        for problem in found.problems:
            logger.warning("not scheduled", problem=problem)
        if found.changes:
            logger.info("recorded", state=pool.state, end_reason=pool.end_reason, reused_by=pool.reused_by)
            metrics.add_metric(name="PoolChanged", unit=MetricUnit.Count, value=found.changes)
        followed = None
        if pool.state is PoolState.REUSED and pool.reused_by is not None:
            observed = tracking.runs.observe_job(pool.reused_by)
            followed = None if observed is None else observed.run.run
            if observed is not None:
                tracking.metric_log.write(observed.happened)
            if followed is not None and followed != firing.run:
                report_delivery(tracking.outbox.deliver_run(followed), logger=logger, metrics=metrics)
        delivery = tracking.outbox.deliver_run(firing.run)
        report_delivery(delivery, logger=logger, metrics=metrics)
    return {
        "ok": True,
        "run": pool.run,
        "state": pool.state.value,
        "kept_until": pool.model_dump(mode="json")["kept_until"],
        "reused_by": pool.reused_by,
        "followed": followed,
        "changes": found.changes,
        "notifications_sent": list(delivery.sent),
    }


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    made_once()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
