"""The Lambda entry point: an event says which job to look at; what is true is asked of SageMaker.

An event that is no hint, or is about somebody else's job, is answered and changes nothing. What AWS could not do is
raised, so that Lambda retries the event and puts it into the dead-letter queue at last; the reconciler finds the run
anyway.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotkeep_jobs.tracing import traced
from spotkeep_jobs.tracking_functions import Tracking, TrackingSettings, wired
from tracker.hints import Hint, NotAHintError, hint_of

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from spotkeep_jobs.outbox import Delivery

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "tracker")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)

Answer = dict[str, Any]


@functools.cache
def production_tracking() -> Tracking:
    """The parts on real clients, made once for each execution environment."""
    return wired(TrackingSettings.from_environment())


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> Answer:  # noqa: ARG001 - Lambda passes both
    """Follow one event.

    Args:
        event: As EventBridge delivers it.
        context: Lambda's.

    Returns:
        What was found and done; `"ok": false` for what is no hint.
    """
    try:
        hint = hint_of(event)
    except NotAHintError as error:
        logger.warning("ignored an event", problem=str(error))
        metrics.add_metric(name="EventRefused", unit=MetricUnit.Count, value=1)
        return {"ok": False, "error": "not-a-hint", "problem": str(error)}
    try:
        return follow(hint, tracking=production_tracking())
    except Exception:
        metrics.add_metric(name="EventFailed", unit=MetricUnit.Count, value=1)
        raise


def follow(hint: Hint, *, tracking: Tracking) -> Answer:
    """Look at the job of a hint, and send what there is to tell.

    Args:
        hint: Which job.
        tracking: The parts.

    Raises:
        SageMakerError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    return _follow_tuning(hint, tracking) if hint.tuning else _follow_run(hint, tracking)


def _follow_run(hint: Hint, tracking: Tracking) -> Answer:
    observed = tracking.runs.observe_job(hint.job_name)
    if observed is None:
        return _foreign(hint)
    run = observed.run
    logger.append_keys(run=run.run, attempt=run.attempt)
    if observed.changes:
        logger.info("recorded", state=run.state, end_reason=run.end_reason, interruptions=run.interruptions)
        metrics.add_metric(name="RunChanged", unit=MetricUnit.Count, value=observed.changes)
    delivery = tracking.outbox.deliver_run(run.run)
    _report(delivery)
    return {
        "ok": True,
        "run": run.run,
        "state": run.state.value,
        "changes": observed.changes,
        "notices_sent": list(delivery.sent),
    }


def _follow_tuning(hint: Hint, tracking: Tracking) -> Answer:
    if not tracking.tuning.observe(hint.job_name):
        return _foreign(hint)
    delivery = tracking.outbox.deliver_tuning_job(hint.job_name)
    _report(delivery)
    return {"ok": True, "tuning_job": hint.job_name, "notices_sent": list(delivery.sent)}


def _foreign(hint: Hint) -> Answer:
    logger.debug("somebody else's job", job_name=hint.job_name)
    metrics.add_metric(name="EventForeign", unit=MetricUnit.Count, value=1)
    return {"ok": True, "ignored": "the job belongs to no run of this deployment"}


def _report(delivery: Delivery) -> None:
    for notice_id in delivery.sent:
        logger.info("notice sent", notice_id=notice_id)
    for failure in delivery.failures:
        # Not raised: the record is right, and the reconciler sends what stayed in the outbox.
        logger.warning("notice not sent", problem=failure)
    metrics.add_metric(name="NoticeSent", unit=MetricUnit.Count, value=len(delivery.sent))
    metrics.add_metric(name="NoticeNotSent", unit=MetricUnit.Count, value=len(delivery.failures))


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    production_tracking()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
