"""The Lambda entry point of the controller. An event names the thing to reconcile, and AWS is asked for its state.

Several sources invoke it.

- The queue of events brings batches. All events of one job in a batch cause one reconciliation.
- The clock asks every five minutes for everything in flight, because events can be lost.
- A pool's one-time schedules fire when its reminder or its expiry is due, because AWS sends no event about the end of a
  pool.
- CloudFormation invokes it when the deployment is created, changed or deleted.
- A person may invoke it with a single event, and gets a full answer. A person may also clear the record of a deletion
  that failed.

If AWS does not answer, the work is tried again. The queue keeps the job's messages, and moves them to the dead-letter
queue after the last try. Lambda repeats the other invocations twice before they get there. The clock finds the run in
any case.
"""

from __future__ import annotations

import functools
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from controller.events import (
    ClockTick,
    DeletionClearing,
    EventBatch,
    Hint,
    PoolCheck,
    UnknownEventError,
    controller_event_of,
)
from controller.full_pass import FullPass, PassFailedError
from controller.reconciliation import (
    Answer,
    PassReport,
    count,
    logger,
    metrics,
    reconcile_batch,
    reconcile_hint,
    reconcile_pool,
    report_pass,
    report_prices,
    report_refusal,
)
from spotkeep_jobs.cost.prices import PriceList
from spotkeep_jobs.deployment import Clients, Deployment
from spotkeep_jobs.errors import isolated
from spotkeep_jobs.orphans.collector import orphan_collector
from spotkeep_jobs.record.deployment_records import OrphanOutcome, OrphanReport, StackRequest
from spotkeep_jobs.settings import ControllerSettings
from spotkeep_jobs.stack_deletion.shutdown import Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import Stacks
from spotkeep_jobs.tracing import traced

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_KEPT_FOR_SENDING_MILLISECONDS: Final = 30_000
_KEPT_FOR_ONE_NOTIFICATION_MILLISECONDS: Final = 5_000


@functools.cache
def cached_deployment() -> Deployment[ControllerSettings]:
    """Return the deployment, which is made once for each execution environment."""
    return Deployment(settings=ControllerSettings.from_environment(), clients=Clients())


def current_deployment() -> Deployment[ControllerSettings]:
    """Return the deployment, with prices that were read within the hour."""
    deployment = cached_deployment()
    deployment.refresh_prices()
    return deployment


def current_full_pass() -> FullPass:
    """Return the pass over everything, with prices that were read within the hour."""
    deployment = current_deployment()
    return FullPass(deployment, price_list=PriceList(deployment.clients.pricing), orphans=orphan_collector(deployment))


def current_shutdown() -> Shutdown:
    """Return the end of the deployment's runs."""
    deployment = cached_deployment()
    return Shutdown(deployment, Stacks(lambda: deployment.clients.cloudformation))


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> Answer:
    """Reconcile the thing that the event names.

    Args:
        event: A batch from the queue, an event as EventBridge delivers it, a pool schedule's input, CloudFormation's
            request, or the clock's event.
        context: Lambda's context, with a remaining time that bounds a pass over everything.

    Returns:
        For a batch, the messages that failed, and no others. Otherwise a report of the findings and actions, in which
        `ok` is false for an event that is none of these.

    Raises:
        PassFailedError: Some items of a pass failed, after all others were done. The alarm on errors sees it.
    """
    try:
        wanted = controller_event_of(event, now=datetime.now(UTC))
    except UnknownEventError as error:
        report_refusal(str(error))
        return {"ok": False, "error": "unknown-event", "problem": str(error)}
    match wanted:
        case EventBatch():
            return reconcile_batch(wanted, deployment=current_deployment)
        case Hint():
            return _reconcile_one(wanted)
        case PoolCheck():
            count("PoolScheduleFired")
            return reconcile_pool(wanted, deployment=current_deployment())
        case StackRequest():
            return _answer_cloudformation(wanted, context)
        case DeletionClearing():
            said = current_shutdown().clear()
            count("DeletionClearingAsked")
            logger.warning("asked to clear a deletion", said=said)
            return {"ok": True, "deletion": said}
        case ClockTick():
            return _reconcile_everything(None, context)


def _reconcile_one(hint: Hint) -> Answer:
    try:
        return reconcile_hint(hint, deployment=current_deployment())
    except Exception:
        count("EventFailed")
        raise


def _answer_cloudformation(request: StackRequest, context: LambdaContext) -> Answer:
    """Begin the deletion of the deployment. Any other request is answered at once.

    When the deployment is created or changed, AWS's prices are read, so that the first run's bill has them.
    """
    if current_shutdown().begin(request):
        return _reconcile_everything(request, context)
    count("StackRequestAnswered")
    if request.kind != "Delete":
        report = PassReport()
        current_full_pass().read_prices(report)
        report_prices(report)
    return {"ok": True, "answered": request.kind}


def _reconcile_everything(deletion: StackRequest | None, context: LambdaContext) -> Answer:
    """Make a pass over everything, and report its results.

    If the deployment is being deleted, each pass stops all running work. The pass that finds nothing running answers
    CloudFormation.

    Args:
        deletion: The deletion of the deployment that was just asked for, or None to continue a recorded deletion, if
            any.
        context: Lambda's context.
    """
    shutdown = current_shutdown()
    failures: dict[str, str] = {}
    if deletion is None:
        # One that cannot be read keeps nothing from being reconciled.
        deletion = isolated(failures, "deletion of the deployment", shutdown.pending)
    if deletion is not None:
        failures |= shutdown.stop_everything().failures

    def seconds_left() -> float:
        return (context.get_remaining_time_in_millis() - _KEPT_FOR_SENDING_MILLISECONDS) / 1000

    report = current_full_pass().run(
        seconds_left=seconds_left,
        may_send=lambda: context.get_remaining_time_in_millis() > _KEPT_FOR_ONE_NOTIFICATION_MILLISECONDS,
    )
    report.failures |= failures
    if deletion is not None:
        alive = shutdown.answer_if_over(deletion)
        report.failures |= alive.failures
        logger.warning(
            "the deployment is being deleted",
            runs=alive.runs,
            sweeps=alive.sweeps,
            pools=alive.pools,
            unreadable=alive.unreadable,
        )
    report_pass(report)
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


def _counts(report: OrphanReport) -> dict[str, int]:
    return {
        "found": len(report.handled) + report.left_out,
        "wrong": sum(each.finding.wrong for each in report.handled),
        **{outcome.value: report.count(outcome) for outcome in OrphanOutcome if report.count(outcome)},
    }


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    # In a real Lambda the clients are made while it initialises, which has a full CPU.
    _ = cached_deployment().table, cached_deployment().training_jobs, cached_deployment().logs
