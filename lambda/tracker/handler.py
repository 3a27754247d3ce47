"""The Lambda entry point: events say what to look at; what is true is asked of SageMaker and of EC2.

Events come in batches from a queue, and a batch's events for one job are one look at it. A message that is no hint, or
is about somebody else's job, is done with and changes nothing. When AWS could not answer for a job, its messages alone
are given back: the queue brings them again, and moves them to the dead-letter queue at last. The reconciler finds the
run anyway. A bare event, from whoever invokes the function by hand, is answered in full.
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
from tracker.hints import Batch, Hint, NotAHintError, Subject, batch_of, hint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from spotkeep_jobs.runs.reconcile import Observation

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "tracker")

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
    """Follow a batch of events, or one.

    Args:
        event: A batch as Lambda takes it from the queue, or an event as EventBridge delivers it.
        context: Lambda's.

    Returns:
        For a batch, the messages that failed, and no others.
        For an event, what was found and done; `"ok": false` for what is no hint.
    """
    batch = batch_of(event)
    return _answer(event) if batch is None else follow_batch(batch, tracking=production_tracking)


def _answer(event: object) -> Answer:
    try:
        hint = hint_of(event)
    except NotAHintError as error:
        _refuse(str(error))
        return {"ok": False, "error": "not-a-hint", "problem": str(error)}
    try:
        return follow(hint, tracking=production_tracking())
    except Exception:
        metrics.add_metric(name="EventFailed", unit=MetricUnit.Count, value=1)
        raise


def follow_batch(batch: Batch, *, tracking: Callable[[], Tracking]) -> Answer:
    """Look at each job of a batch once.

    One job that fails does not stop the others. What hints at nothing is not given back: it would come again for ever.

    Args:
        batch: The hints, with the messages they came in.
        tracking: Gives the parts; not asked when there is nothing to follow.

    Returns:
        As Lambda reads it: the messages to keep in the queue.
        Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """
    received = len(batch.problems) + sum(map(len, batch.messages.values()))
    metrics.add_metric(name="EventReceived", unit=MetricUnit.Count, value=received)
    for problem in batch.problems:
        _refuse(problem)
    messages, failed = _by_job(batch.messages, tracking)
    for hint, message_ids in messages.items():
        with logger.append_context_keys(**{hint.subject.value.replace(" ", "_"): hint.name}):
            try:
                follow(hint, tracking=tracking())
            except Exception:
                logger.exception("not followed; the queue brings its events again")
                metrics.add_metric(name="EventFailed", unit=MetricUnit.Count, value=len(message_ids))
                failed += message_ids
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _by_job(
    messages: Mapping[Hint, Sequence[str]], tracking: Callable[[], Tracking]
) -> tuple[Mapping[Hint, Sequence[str]], list[str]]:
    """Name the jobs that the fleets of a batch belong to, in one call to EC2; other fleets are done with.

    Returns:
        The messages by the jobs they hint at, and those that failed because EC2 did not answer.
    """
    fleets = [hint.name for hint in messages if hint.subject is Subject.FLEET]
    try:
        jobs = tracking().fleet_owners.jobs_of_fleets(fleets) if fleets else {}
    except Exception:
        logger.exception("EC2 did not say whose the fleets are; the queue brings their events again")
        failed = [each for hint, ids in messages.items() if hint.subject is Subject.FLEET for each in ids]
        metrics.add_metric(name="EventFailed", unit=MetricUnit.Count, value=len(failed))
        return {hint: ids for hint, ids in messages.items() if hint.subject is not Subject.FLEET}, failed
    by_job: dict[Hint, list[str]] = {}
    for hint, message_ids in messages.items():
        job = hint
        if hint.subject is Subject.FLEET:
            if hint.name not in jobs:
                _foreign(hint)
                continue
            job = Hint(subject=Subject.TRAINING_JOB, name=jobs[hint.name])
        by_job.setdefault(job, []).extend(message_ids)
    return by_job, []


def follow(hint: Hint, *, tracking: Tracking) -> Answer:
    """Look at the job of a hint, and send what there is to tell.

    Args:
        hint: Which job.
        tracking: The parts.

    Raises:
        AwsCallError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    match hint.subject:
        case Subject.TUNING_JOB:
            return _follow_tuning(hint, tracking)
        case Subject.TRAINING_JOB:
            return _follow_run(hint, tracking.runs.observe_job(hint.name), tracking)
        case Subject.FLEET:
            job_name = tracking.fleet_owners.jobs_of_fleets([hint.name]).get(hint.name)
            # Nothing is done about a fleet before it is known to be of this deployment.
            return _follow_run(hint, tracking.runs.observe_job(job_name) if job_name else None, tracking)


def _follow_run(hint: Hint, observed: Observation | None, tracking: Tracking) -> Answer:
    if observed is None:
        return _foreign(hint)
    run = observed.run
    tracking.metric_log.write(observed.happened)
    with logger.append_context_keys(run=run.run, attempt=run.attempt):
        if observed.changes:
            logger.info("recorded", state=run.state, end_reason=run.end_reason, interruptions=run.interruptions)
            metrics.add_metric(name="RunChanged", unit=MetricUnit.Count, value=observed.changes)
        delivery = tracking.outbox.deliver(observed.notifications)
        report_delivery(delivery, logger=logger, metrics=metrics)
    return {
        "ok": True,
        "run": run.run,
        "state": run.state.value,
        "changes": observed.changes,
        "notifications_sent": list(delivery.sent),
    }


def _follow_tuning(hint: Hint, tracking: Tracking) -> Answer:
    if not tracking.tuning.observe(hint.name):
        return _foreign(hint)
    delivery = tracking.outbox.deliver_tuning_job(hint.name)
    report_delivery(delivery, logger=logger, metrics=metrics)
    return {"ok": True, "tuning_job": hint.name, "notifications_sent": list(delivery.sent)}


def _refuse(problem: str) -> None:
    logger.warning("ignored an event", problem=problem)
    metrics.add_metric(name="EventRefused", unit=MetricUnit.Count, value=1)


def _foreign(hint: Hint) -> Answer:
    logger.debug("somebody else's", subject=hint.subject, name=hint.name)
    metrics.add_metric(name="EventForeign", unit=MetricUnit.Count, value=1)
    what = "job" if hint.subject in (Subject.TRAINING_JOB, Subject.TUNING_JOB) else hint.subject.value
    return {"ok": True, "ignored": f"the {what} belongs to no run of this deployment"}


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    made_once()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
