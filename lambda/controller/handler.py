"""The Lambda entry point of the controller: an event names what to reconcile; what is true is asked of AWS.

Five things invoke it. The queue of events brings batches; events of one job in a batch are one reconciliation of it.
The clock asks every five minutes for everything in flight, because events can be lost. A pool's one-time schedules fire
when its reminder or its expiry is due, because no event says that a pool is over. CloudFormation invokes it when the
deployment is created, changed or deleted. A person may invoke it with a single event, and gets a full answer.

What AWS could not answer for is tried again: the queue keeps that job's messages and moves them to the dead-letter
queue at last; Lambda repeats the other invocations twice before they get there. The clock finds the run anyway.
"""

from __future__ import annotations

import functools
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotkeep_jobs.errors import AwsCallError
from spotkeep_jobs.functions.controller_events import (
    ClockTick,
    EventBatch,
    Hint,
    PoolCheck,
    Subject,
    UnknownEventError,
    controller_event_of,
)
from spotkeep_jobs.functions.controller_parts import ControllerParts
from spotkeep_jobs.functions.controller_wiring import full_pass_on, shutdown_on, wired
from spotkeep_jobs.functions.environment import ControllerEnvironment
from spotkeep_jobs.functions.full_pass import FullPass, PassFailedError, PassReport
from spotkeep_jobs.functions.tracing import traced
from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.record.orphan_report import OrphanOutcome, OrphanReport
from spotkeep_jobs.record.run_metrics import happened_between
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.stack_deletion.shutdown import Alive, Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.notifications.outbox import Delivery
    from spotkeep_jobs.runs.run_reconciler import ReconciledRun

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "controller")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)

_KEPT_FOR_SENDING_MILLISECONDS: Final = 30_000
_KEPT_FOR_ONE_NOTIFICATION_MILLISECONDS: Final = 5_000

Answer = dict[str, Any]


@functools.cache
def made_once() -> tuple[ControllerParts, FullPass, Shutdown]:
    """Make the parts on real clients, once for each execution environment."""
    settings = ControllerEnvironment.from_environment()
    parts = wired(settings)
    return parts, full_pass_on(parts, settings), shutdown_on(parts)


def production_parts() -> ControllerParts:
    """Return the parts on real clients, with prices that were read within the hour."""
    parts = made_once()[0]
    parts.refresh_prices()
    return parts


def production_full_pass() -> FullPass:
    """Return the pass over everything on real clients, with prices that were read within the hour."""
    production_parts()
    return made_once()[1]


def production_shutdown() -> Shutdown:
    """Return what ends the deployment's runs, on real clients."""
    return made_once()[2]


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> Answer:
    """Reconcile what the event names.

    Args:
        event: A batch from the queue, an event as EventBridge delivers it, a pool schedule's input, CloudFormation's
            request, or the clock's event.
        context: Lambda's; its remaining time bounds a pass over everything.

    Returns:
        For a batch, the messages that failed, and no others.
        Otherwise what was found and done; `"ok": false` for an event that is none of these.

    Raises:
        PassFailedError: Some items of a pass failed, after all others were done; the alarm on errors sees it.
    """
    try:
        wanted = controller_event_of(event, now=datetime.now(UTC))
    except UnknownEventError as error:
        _refuse(str(error))
        return {"ok": False, "error": "unknown-event", "problem": str(error)}
    match wanted:
        case EventBatch():
            return reconcile_batch(wanted, parts=production_parts)
        case Hint():
            return _reconcile_one(wanted)
        case PoolCheck():
            metrics.add_metric(name="PoolScheduleFired", unit=MetricUnit.Count, value=1)
            return reconcile_pool(wanted, parts=production_parts())
        case StackRequest():
            return _answer_cloudformation(wanted, context)
        case ClockTick():
            return _reconcile_everything(production_shutdown().pending(), context)


def _reconcile_one(hint: Hint) -> Answer:
    try:
        return reconcile_hint(hint, parts=production_parts())
    except Exception:
        metrics.add_metric(name="EventFailed", unit=MetricUnit.Count, value=1)
        raise


def _answer_cloudformation(request: StackRequest, context: LambdaContext) -> Answer:
    """Begin the deletion of the deployment; any other request is answered at once.

    When the deployment is created or changed, AWS's prices are read, so that the first run's bill has them.
    """
    if production_shutdown().begin(request):
        return _reconcile_everything(request, context)
    metrics.add_metric(name="StackRequestAnswered", unit=MetricUnit.Count, value=1)
    if request.kind != "Delete":
        report = PassReport()
        production_full_pass().read_prices(report)
        _report_prices(report)
    return {"ok": True, "answered": request.kind}


def _reconcile_everything(deletion: StackRequest | None, context: LambdaContext) -> Answer:
    """Make a pass over everything, and say what came of it.

    Args:
        deletion: The deletion of the deployment that waits for an answer: what runs is stopped, pass by pass, and the
            pass that finds nothing running answers.
        context: Lambda's.
    """
    shutdown = production_shutdown()
    alive = Alive() if deletion is None else shutdown.stop_everything()

    def has_time() -> bool:
        return context.get_remaining_time_in_millis() > _KEPT_FOR_SENDING_MILLISECONDS

    report = production_full_pass().run(
        has_time=has_time,
        may_send=lambda: context.get_remaining_time_in_millis() > _KEPT_FOR_ONE_NOTIFICATION_MILLISECONDS,
    )
    report.failures |= alive.failures
    if deletion is not None:
        alive = shutdown.answer_if_over(deletion)
        logger.warning("the deployment is being deleted", runs=alive.runs, pools=alive.pools)
    _report(report)
    _report_prices(report)
    if report.orphans is not None:
        _report_orphans(report.orphans)
    if report.failures:
        raise PassFailedError(report.failures)
    return {
        "ok": True,
        "runs": report.runs,
        "changes": report.changes,
        "completed": report.completed,
        "pools": report.pools,
        "notifications_sent": report.notifications_sent,
        "left": report.left,
        "orphans": None if report.orphans is None else _counts(report.orphans),
    }


def reconcile_batch(batch: EventBatch, *, parts: Callable[[], ControllerParts]) -> Answer:
    """Reconcile each job of a batch once.

    One job that fails does not stop the others. What hints at nothing is not given back: it would come again for ever.

    Args:
        batch: The hints, with the messages they came in.
        parts: Gives the parts; not called when there is nothing to reconcile.

    Returns:
        As Lambda reads it: the messages to keep in the queue.
        Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """
    received = len(batch.problems) + sum(map(len, batch.messages.values()))
    metrics.add_metric(name="EventReceived", unit=MetricUnit.Count, value=received)
    for problem in batch.problems:
        _refuse(problem)
    messages, failed = _by_job(batch.messages, parts)
    for hint, message_ids in messages.items():
        with logger.append_context_keys(**{hint.subject.value.replace(" ", "_"): hint.name}):
            try:
                reconcile_hint(hint, parts=parts())
            except Exception:
                logger.exception("not reconciled; the queue brings its events again")
                metrics.add_metric(name="EventFailed", unit=MetricUnit.Count, value=len(message_ids))
                failed += message_ids
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _by_job(
    messages: Mapping[Hint, Sequence[str]], parts: Callable[[], ControllerParts]
) -> tuple[Mapping[Hint, Sequence[str]], list[str]]:
    """Name the jobs that the fleets of a batch belong to, in one call to EC2; events of other fleets are ignored.

    Returns:
        The messages by the jobs they hint at, and those that failed because EC2 did not answer.
    """
    fleets = [hint.name for hint in messages if hint.subject is Subject.FLEET]
    try:
        jobs = parts().fleet_owners.jobs_of_fleets(fleets) if fleets else {}
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


def reconcile_hint(hint: Hint, *, parts: ControllerParts) -> Answer:
    """Reconcile the job of a hint, and send its notifications.

    Args:
        hint: Which job.
        parts: The parts.

    Raises:
        AwsCallError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    match hint.subject:
        case Subject.TRAINING_JOB:
            found = parts.reconcile_job(hint.name, deployment=hint.deployment, run=hint.run)
            return _reconciled(hint, found, parts)
        case Subject.SERVICE_JOB:
            run = parts.queues.run_of(hint.name)
            return _reconciled(hint, parts.runs.reconcile(run) if run else None, parts)
        case Subject.FLEET:
            job_name = parts.fleet_owners.jobs_of_fleets([hint.name]).get(hint.name)
            # Nothing is done about a fleet before it is known to be of this deployment.
            return _reconciled(hint, parts.runs.reconcile_job(job_name) if job_name else None, parts)


def _reconciled(hint: Hint, reconciled: ReconciledRun | None, parts: ControllerParts) -> Answer:
    if reconciled is None:
        return _foreign(hint)
    run = reconciled.run
    parts.metric_log.write(reconciled.happened)
    with logger.append_context_keys(run=run.run, attempt=run.attempt):
        if reconciled.changes:
            logger.info("recorded", state=run.state, end_reason=run.end_reason, interruptions=run.interruptions)
            metrics.add_metric(name="RunChanged", unit=MetricUnit.Count, value=reconciled.changes)
        delivery = parts.outbox.deliver(reconciled.notifications)
        _report_delivery(delivery)
        if reconciled.changes and run.trial is not None and run.state.ended:
            _advance_sweep(run.trial.sweep, ended=run.run, parts=parts)
        if reconciled.changes and reconciled.job is not None and reconciled.job.ended:
            _use_free_quota(reconciled.job, parts)
    return {
        "ok": True,
        "run": run.run,
        "state": run.state.value,
        "changes": reconciled.changes,
        "notifications_sent": list(delivery.sent),
    }


def _advance_sweep(sweep: str, *, ended: str, parts: ControllerParts) -> None:
    """Have the sweep of a trial that has ended advanced; where Lambda does not take it, the next pass has."""
    try:
        parts.launcher_function.advance(sweep, ended_runs=[ended])
    except AwsCallError as error:
        logger.warning("the next pass advances the sweep", sweep=sweep, problem=str(error))


def _use_free_quota(ended: JobView, parts: ControllerParts) -> None:
    """Give the room in the account's quota that a job leaves to the run that waits longest for it."""
    for waiting in parts.quota_queue.quotas():
        if waiting[0].instance_type == ended.instance_type:
            for before, after in parts.quota_queue.advance(waiting, room_is_free=True):
                logger.info("waited for quota", waited=after.run, state=after.state, job_arn=after.job_arn)
                parts.metric_log.write(happened_between(before, after))


def _refuse(problem: str) -> None:
    logger.warning("ignored an event", problem=problem)
    metrics.add_metric(name="EventRefused", unit=MetricUnit.Count, value=1)


def _foreign(hint: Hint) -> Answer:
    logger.debug("of another deployment", subject=hint.subject, name=hint.name)
    metrics.add_metric(name="EventForeign", unit=MetricUnit.Count, value=1)
    what = "job" if hint.subject is Subject.TRAINING_JOB else hint.subject.value
    return {"ok": True, "ignored": f"the {what} belongs to no run of this deployment"}


def reconcile_pool(pool_check: PoolCheck, *, parts: ControllerParts) -> Answer:
    """Reconcile a pool and the run that took it over, and send their notifications.

    Args:
        pool_check: Which pool.
        parts: The parts.

    Raises:
        AwsCallError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    with logger.append_context_keys(run=pool_check.run, attempt=pool_check.attempt):
        found = parts.pools.reconcile(run=pool_check.run, attempt=pool_check.attempt)
        if found is None:
            logger.info("no such pool")
            return {"ok": True, "ignored": "no pool of this deployment"}
        pool = found.pool
        parts.metric_log.write(found.happened)
        for problem in found.problems:
            logger.warning("not scheduled", problem=problem)
        if found.changes:
            logger.info("recorded", state=pool.state, end_reason=pool.end_reason, reused_by=pool.reused_by)
            metrics.add_metric(name="PoolChanged", unit=MetricUnit.Count, value=found.changes)
        followed = None
        if pool.state is PoolState.REUSED and pool.reused_by is not None:
            # Its tags are not known here: the job may be another client's, and belong to the deployment all the same.
            taken_over = parts.reconcile_job(pool.reused_by, deployment=parts.deployment.name)
            followed = None if taken_over is None else taken_over.run.run
            if taken_over is not None:
                parts.metric_log.write(taken_over.happened)
            if followed is not None and followed != pool_check.run:
                _report_delivery(parts.outbox.deliver_run(followed))
        delivery = parts.outbox.deliver_run(pool_check.run)
        _report_delivery(delivery)
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


def _report_prices(report: PassReport) -> None:
    if problem := report.prices_unread or report.failures.get("prices"):
        logger.warning("prices not read", problem=problem)


def _report(report: PassReport) -> None:
    logger.info(
        "reconciled everything", runs=report.runs, changes=report.changes, completed=report.completed, left=report.left
    )
    for what, why in report.failures.items():
        logger.error("not reconciled", what=what, problem=why)
    counts = {
        "PoolsKept": report.pools,
        "RunsInFlight": report.runs + report.left,
        "RunUnchanged": report.unchanged,
        "RunChanged": report.changes,
        "HalfDoneCompleted": report.completed,
        "NotificationSent": report.notifications_sent,
        "NotificationDead": report.notifications_dead,
        "PassFailures": len(report.failures),
        "PassLeft": report.left,
        "FleetOrphansDeleted": report.orphans_removed,
    }
    for name, count in counts.items():
        if not count and name != "RunsInFlight":
            continue  # Each metric that has a value in an hour is billed for it.
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)


def _counts(report: OrphanReport) -> dict[str, int]:
    return {
        "found": len(report.handled) + report.left_out,
        "wrong": sum(each.finding.wrong for each in report.handled),
        **{outcome.value: report.count(outcome) for outcome in OrphanOutcome if report.count(outcome)},
    }


def _report_delivery(delivery: Delivery) -> None:
    """Say what went out and what did not, in the log and the metrics.

    What was not sent is not raised: the record is right, and a later pass sends what stayed in the outbox.
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
    counts = {
        "OrphansFound": sum(each.finding.wrong for each in report.handled),
        "OrphansRemoved": report.count(OrphanOutcome.REMOVED),
        "OrphansUnreadable": len(report.unreadable),
    }
    for name, count in counts.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
    # These are seldom more than nothing, and each metric that has a value in an hour is billed for it.
    if not_removed := report.count(OrphanOutcome.FAILED) + len(report.unreadable):
        metrics.add_metric(name="OrphansNotRemoved", unit=MetricUnit.Count, value=not_removed)
    if usd_per_hour := report.wrong_usd_per_hour:
        metrics.add_metric(name="OrphansUsdPerHour", unit=MetricUnit.NoUnit, value=usd_per_hour)


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    made_once()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
