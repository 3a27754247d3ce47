"""The Lambda entry point of the sweep: its schedule's event says nothing, so nothing in it is read.

CloudFormation invokes it, too, when the deployment is created, changed or deleted. On the first two it reads AWS's
prices, so that the first run's bill has them; on the last, what runs is stopped, sweep by sweep, until nothing does.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from reconciler.housekeeping import Housekeeping, Housekept
from reconciler.settings import ReconcilerSettings
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.cost.price_list import AwsPriceList, endpoint_region
from spotkeep_jobs.functions.orphan_wiring import sources_of
from spotkeep_jobs.functions.tracing import traced
from spotkeep_jobs.functions.tracking_functions import Tracking, wired
from spotkeep_jobs.orphans.sources import Surroundings
from spotkeep_jobs.orphans.watch import OrphanWatch
from spotkeep_jobs.record.orphan_findings import LookReport, Outcome
from spotkeep_jobs.runs.launch_completion import complete_launch
from spotkeep_jobs.runs.reconciliation import (
    SEARCH_FROM,
    LaunchCompleter,
    Reconciler,
    Sweep,
    SweepFailedError,
)
from spotkeep_jobs.stack_deletion.shutdown import Alive, Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import CloudFormationStacks, stack_request

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "reconciler")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)

_KEPT_FOR_SENDING_MILLISECONDS: Final = 30_000
_KEPT_FOR_ONE_NOTIFICATION_MILLISECONDS: Final = 5_000


@functools.cache
def made_once() -> tuple[Tracking, Reconciler, Housekeeping, Shutdown]:
    """The parts on real clients, made once for each execution environment."""
    settings = ReconcilerSettings.from_environment()
    parts = wired(settings)
    # The fleets' sweep does not only look: a deployment that removes nothing goes without, and is told once an hour.
    sweeping = replace(parts, fleet_sweep=None) if settings.orphans == "report" else parts
    return parts, reconciler_on(sweeping), housekeeping_on(parts, settings), shutdown_on(parts)


def production_reconciler() -> Reconciler:
    """The reconciler on real clients, with prices that were read within the hour."""
    parts, reconciler, _, _ = made_once()
    parts.refresh_prices()
    return reconciler


def production_housekeeping() -> Housekeeping:
    """The rest of a sweep, on real clients."""
    return made_once()[2]


def production_shutdown() -> Shutdown:
    """What ends the deployment's runs, on real clients."""
    return made_once()[3]


def shutdown_on(parts: Tracking) -> Shutdown:
    """What ends the deployment's runs when it is deleted.

    Args:
        parts: The parts that the tracker is made of.
    """
    return Shutdown(
        table=parts.table,
        pools=parts.pools,
        complete_launch=completer_on(parts),
        stacks=CloudFormationStacks(lambda: boto3.client("cloudformation", config=client_config())),
        clock=parts.clock,
    )


def completer_on(parts: Tracking) -> LaunchCompleter:
    """What finishes launches and stops that somebody began.

    Args:
        parts: The parts that the tracker is made of.
    """
    return functools.partial(
        complete_launch,
        table=parts.table,
        jobs=parts.jobs,
        fleets=parts.fleets,
        deployment=parts.deployment,
        keep_bundle=parts.keep_bundle,
        now=parts.clock,
    )


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
        complete_launch=completer_on(parts),
        clock=parts.clock,
        sweep_fleets=None if parts.fleet_sweep is None else parts.fleet_sweep.sweep,
        metric_log=parts.metric_log,
        search_from=search_from,
    )


def housekeeping_on(parts: Tracking, settings: ReconcilerSettings) -> Housekeeping:
    """What a sweep does beside its runs, on real clients.

    Args:
        parts: The parts that the tracker is made of.
        settings: The reconciler's.
    """
    around = Surroundings(
        table=parts.table,
        deployment=settings.deployment,
        prices=parts.prices,
        s3_usd_per_gigabyte_month=lambda: parts.prices.storage.s3_standard,
        orphaned_checkpoints_after=settings.orphaned_checkpoints_after,
        schedule_group=settings.pool_schedule_group,
        clock=parts.clock,
    )
    config = client_config()
    pricing = boto3.client("pricing", region_name=endpoint_region(parts.prices.region), config=config)
    return Housekeeping(
        table=parts.table,
        prices=parts.prices,
        price_list=AwsPriceList(pricing),
        orphans=OrphanWatch(
            table=parts.table,
            sources=sources_of(
                around=around,
                jobs=SageMakerTrainingJobs(boto3.client("sagemaker", config=config)),
                scheduler=boto3.client("scheduler", config=config),
                s3=boto3.client("s3", config=config),
                checkpoint_bucket=settings.checkpoint_bucket,
                isolated_teams=settings.isolated_teams,
                fleets=parts.fleet_sweep,
            ),
            removes=settings.orphans == "remove",
            clock=parts.clock,
        ),
        clock=parts.clock,
    )


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Sweep once.

    Args:
        event: CloudFormation's request, or the schedule's event, which is not read.
        context: Lambda's; its remaining time bounds the sweep.

    Returns:
        What the sweep did.

    Raises:
        SweepFailedError: Some items failed, after all others were done; the alarm on the function's errors sees it.
    """
    shutdown = production_shutdown()
    request = stack_request(event, now=datetime.now(UTC))
    if request is not None and not shutdown.begin(request):
        metrics.add_metric(name="StackRequestAnswered", unit=MetricUnit.Count, value=1)
        if request.kind != "Delete":
            _report_prices(production_housekeeping().read_prices())
        return {"ok": True, "answered": request.kind}
    deletion = request or shutdown.pending()
    alive = Alive() if deletion is None else shutdown.stop_everything()
    reconciler = production_reconciler()

    def has_time() -> bool:
        return context.get_remaining_time_in_millis() > _KEPT_FOR_SENDING_MILLISECONDS

    sweep = reconciler.sweep(
        has_time=has_time,
        may_send=lambda: context.get_remaining_time_in_millis() > _KEPT_FOR_ONE_NOTIFICATION_MILLISECONDS,
    )
    kept = production_housekeeping().keep_house(has_time=has_time)
    sweep.failures |= kept.failures | alive.failures
    if deletion is not None:
        alive = shutdown.answer_if_over(deletion)
        logger.warning("the deployment is being deleted", runs=alive.runs, pools=alive.pools)
    _report(sweep)
    _report_prices(kept)
    if kept.look is not None:
        _report_orphans(kept.look)
    if sweep.failures:
        raise SweepFailedError(sweep.failures)
    return {
        "ok": True,
        "runs": sweep.runs,
        "changes": sweep.changes,
        "completed": sweep.completed,
        "pools": sweep.pools,
        "tuning_jobs": sweep.tuning_jobs,
        "notifications_sent": sweep.notifications_sent,
        "left": sweep.left,
        "orphans": None if kept.look is None else _counts(kept.look),
    }


def _report_prices(kept: Housekept) -> None:
    if problem := kept.prices_unread or kept.failures.get("prices"):
        logger.warning("prices not read", problem=problem)


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
        "NotificationSent": sweep.notifications_sent,
        "NotificationDead": sweep.notifications_dead,
        "SweepFailures": len(sweep.failures),
        "SweepLeft": sweep.left,
        "FleetOrphansDeleted": sweep.swept_away,
    }
    for name, count in counts.items():
        if not count and name != "RunsInFlight":
            continue  # Each metric that has a value in an hour is billed for it.
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)


def _counts(look: LookReport) -> dict[str, int]:
    return {
        "found": len(look.handled) + look.left_out,
        "wrong": sum(each.finding.wrong for each in look.handled),
        **{outcome.value: look.count(outcome) for outcome in Outcome if look.count(outcome)},
    }


def _report_orphans(look: LookReport) -> None:
    for each in look.handled:
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
    for what, why in look.unreadable.items():
        logger.error("not looked at", what=what, problem=why)
    counts = {
        "OrphansFound": sum(each.finding.wrong for each in look.handled),
        "OrphansRemoved": look.count(Outcome.REMOVED),
        "OrphansUnreadable": len(look.unreadable),
    }
    for name, count in counts.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
    # These are seldom more than nothing, and each metric that has a value in an hour is billed for it.
    if not_removed := look.count(Outcome.FAILED) + len(look.unreadable):
        metrics.add_metric(name="OrphansNotRemoved", unit=MetricUnit.Count, value=not_removed)
    if usd_per_hour := look.wrong_usd_per_hour:
        metrics.add_metric(name="OrphansUsdPerHour", unit=MetricUnit.NoUnit, value=usd_per_hour)


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    made_once()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
