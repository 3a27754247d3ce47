"""Reconciles the subjects of events, such as the jobs of a batch, one job or one warm pool. Sends the notifications.

The controller reports its findings, its actions and its failures in its log and its metrics. Each metric that has a
value in an hour is billed for that hour. So a metric that is usually zero is written only when it is not zero.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from controller.events import EventBatch, Hint, PoolCheck, Subject
from spotkeep_jobs.errors import AwsCallError
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.record.deployment_records import OrphanOutcome, OrphanReport
from spotkeep_jobs.record.run_metrics import UNITS, RunMetrics, happened_between, in_flight_now, total
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.runs.adoption import Adoption
from spotkeep_jobs.runs.launch_completion import advance_quota, runs_by_quota
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.sweeps.launcher_function import launcher_of

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobView
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.notifications.outbox import Delivery
    from spotkeep_jobs.record.record import Pool
    from spotkeep_jobs.record.states import RunState
    from spotkeep_jobs.runs.run_reconciler import ReconciledRun
    from spotkeep_jobs.settings import ControllerSettings

_NAMESPACE: Final = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep")
_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "controller")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=_NAMESPACE, service=_SERVICE)


@dataclass(kw_only=True)
class PassReport:
    """The results of one pass.

    The next pass begins with the items that this one had no time for. Without prices, bills say that a price is not
    known.

    Attributes:
        runs: Number of runs that were reconciled.
        adopted: Number of other clients' jobs that became runs.
        unchanged: Number of the reconciled runs that the search of jobs showed unchanged.
        changes: Number of changes that were written.
        completed: Number of half-done launches that were finished.
        pools: Number of warm pools that were reconciled.
        notifications_sent: Number of notifications that went out.
        notifications_dead: Number of notifications that were refused for the last time.
        left: Number of runs that the pass had no time for.
        others_left: Number of quotas, sweeps and warm pools that the pass had no time for.
        orphans_removed: Number of fleets, volumes and snapshots that were deleted because they are not needed.
        failures: The name and the reason of each failure.
        happened: The counts that the pass's changes add to the deployment's metrics.
        states: The states of the runs that were reconciled.
        kept: The warm pools that exist.
        prices_unread: The reason why AWS could not give its prices.
        orphans: The findings of the pass over orphans, or None when it was not due.
    """

    runs: int = 0
    adopted: int = 0
    unchanged: int = 0
    changes: int = 0
    completed: int = 0
    pools: int = 0
    notifications_sent: int = 0
    notifications_dead: int = 0
    left: int = 0
    others_left: int = 0
    orphans_removed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    happened: list[RunMetrics] = field(default_factory=list)
    states: list[RunState] = field(default_factory=list)
    kept: list[Pool] = field(default_factory=list)
    prices_unread: str | None = None
    orphans: OrphanReport | None = None

    @property
    def metrics(self) -> RunMetrics:
        """The values that the pass adds to the deployment's metrics, and the values that it saw."""
        return {**total(self.happened), **in_flight_now(self.states, self.kept)}


def count(metric: str, value: int = 1) -> None:
    """Count that something happened, in CloudWatch."""
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)


def write_metrics(values: RunMetrics, *, deployment: Deployment[ControllerSettings]) -> None:
    """Write the metrics of the deployment's dashboard into the log, from which CloudWatch takes them.

    Their one dimension is Powertools' `service`, with the deployment's name as its value. A deployment may have the
    metrics switched off, as each metric that arrives in an hour is billed for it.

    Source:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

    Args:
        values: The values. None writes nothing.
        deployment: The deployment.
    """
    if not deployment.settings.deployment_metrics or not values:
        return
    line = EphemeralMetrics(namespace=_NAMESPACE, service=deployment.name)
    for metric, value in values.items():
        line.add_metric(name=metric.value, unit=UNITS.get(metric, "Count"), value=value)
    line.flush_metrics()


def report_refusal(problem: str) -> None:
    """Log that an event hints at nothing."""
    logger.warning("ignored an event", problem=problem)
    count("EventRefused")


def report_delivery(delivery: Delivery) -> None:
    """Log which notifications went out and which did not.

    An unsent notification raises no error. The record is correct, and a later pass sends every notification that stayed
    in the outbox.
    """
    for notification_id in delivery.sent:
        logger.info("notification sent", notification_id=notification_id)
    for failure in delivery.failures:
        logger.warning("notification not sent", problem=failure)
    count("NotificationSent", len(delivery.sent))
    count("NotificationNotSent", len(delivery.failures))
    count("NotificationDead", len(delivery.dead))


def report_prices(report: PassReport) -> None:
    """Log that AWS's prices could not be read, if that is the case."""
    if problem := report.prices_unread or report.failures.get("prices"):
        logger.warning("prices not read", problem=problem)


def report_pass(report: PassReport) -> None:
    """Log the findings and actions of a pass over everything."""
    logger.info(
        "reconciled everything",
        runs=report.runs,
        changes=report.changes,
        completed=report.completed,
        left=report.left,
        others_left=report.others_left,
    )
    for what, why in report.failures.items():
        logger.error("not reconciled", what=what, problem=why)
    count("RunsInFlight", report.runs + report.left)
    _count_what_is_not_0(
        {
            "PoolsKept": report.pools,
            "RunUnchanged": report.unchanged,
            "RunChanged": report.changes,
            "HalfDoneCompleted": report.completed,
            "NotificationSent": report.notifications_sent,
            "NotificationDead": report.notifications_dead,
            "PassFailures": len(report.failures),
            "PassLeft": report.left + report.others_left,
            "FleetOrphansDeleted": report.orphans_removed,
        }
    )
    report_prices(report)
    if report.orphans is not None:
        _report_orphans(report.orphans)


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
    count("OrphansFound", sum(each.finding.wrong for each in report.handled))
    count("OrphansRemoved", report.count(OrphanOutcome.REMOVED))
    count("OrphansUnreadable", len(report.unreadable))
    _count_what_is_not_0({"OrphansNotRemoved": report.count(OrphanOutcome.FAILED) + len(report.unreadable)})
    if usd_per_hour := report.wrong_usd_per_hour:
        metrics.add_metric(name="OrphansUsdPerHour", unit=MetricUnit.NoUnit, value=usd_per_hour)


def _count_what_is_not_0(counts: Mapping[str, int]) -> None:
    for name, value in counts.items():
        if value:
            count(name, value)


Answer = dict[str, Any]


def reconcile_batch(batch: EventBatch, *, deployment: Callable[[], Deployment[ControllerSettings]]) -> Answer:
    """Reconcile each job of a batch once.

    One job that fails does not stop the others. A message without a hint is not given back to the queue, because it
    would return for ever.

    Args:
        batch: The hints, with the messages they came in.
        deployment: Returns the deployment. It is not called when there is nothing to reconcile.

    Returns:
        The messages to keep in the queue, in Lambda's format.
        Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """
    received = len(batch.problems) + sum(map(len, batch.messages.values()))
    count("EventReceived", received)
    for problem in batch.problems:
        report_refusal(problem)
    messages, failed = _by_job(batch.messages, deployment)
    for hint, message_ids in messages.items():
        with logger.append_context_keys(**{hint.subject.value.replace(" ", "_"): hint.name}):
            try:
                reconcile_hint(hint, deployment=deployment())
            except Exception:
                logger.exception("not reconciled; the queue brings its events again")
                count("EventFailed", len(message_ids))
                failed += message_ids
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _by_job(
    messages: Mapping[Hint, Sequence[str]], deployment: Callable[[], Deployment[ControllerSettings]]
) -> tuple[Mapping[Hint, Sequence[str]], list[str]]:
    """Name the jobs that the fleets of a batch belong to, in one call to EC2. Events of other fleets are ignored.

    Returns:
        The messages by the jobs they hint at, and those that failed because EC2 did not answer.
    """
    fleets = [hint.name for hint in messages if hint.subject is Subject.FLEET]
    try:
        jobs = deployment().fleet_owners.jobs_of_fleets(fleets) if fleets else {}
    except Exception:
        logger.exception("EC2 did not say whose the fleets are; the queue brings their events again")
        failed = [each for hint, ids in messages.items() if hint.subject is Subject.FLEET for each in ids]
        count("EventFailed", len(failed))
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


def reconcile_hint(hint: Hint, *, deployment: Deployment[ControllerSettings]) -> Answer:
    """Reconcile the job of a hint, and send its notifications.

    Args:
        hint: The hint that names the job.
        deployment: The deployment.

    Raises:
        AwsCallError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    match hint.subject:
        case Subject.TRAINING_JOB:
            found = _reconcile_job(hint.name, tag=hint.deployment, run=hint.run, deployment=deployment)
            return _reconciled(hint, found, deployment)
        case Subject.SERVICE_JOB:
            run = deployment.queues.run_of(hint.name)
            return _reconciled(hint, RunReconciler(deployment).reconcile(run) if run else None, deployment)
        case Subject.FLEET:
            job_name = deployment.fleet_owners.jobs_of_fleets([hint.name]).get(hint.name)
            # Nothing is done about a fleet before it is known to be of this deployment.
            return _reconciled(
                hint, RunReconciler(deployment).reconcile_job(job_name) if job_name else None, deployment
            )


def _reconcile_job(
    job_name: str, *, tag: str | None, run: str | None = None, deployment: Deployment[ControllerSettings]
) -> ReconciledRun | None:
    """Reconcile the run that a job works on. If another client created the job, adopt it first.

    SageMaker is asked about a job with this deployment's name in its tag. It is also asked about a job without this tag
    if AWS Batch made the job. AWS does not document if such jobs get the tags of their service job.

    Args:
        job_name: The job's name.
        tag: The value of the job's tag `spotkeep:deployment`, if known.
        run: The value of its tag `spotkeep:run`, because AWS Batch chooses the job's name in a queue.
        deployment: The deployment.

    Returns:
        None when the job belongs to no run of this deployment.

    Raises:
        RunChangedError: The run kept changing under every try.
        AwsCallError: SageMaker could not answer.
    """
    runs = RunReconciler(deployment)
    found = runs.reconcile_job(job_name)
    if found is None and tag is None and (marked := deployment.queues.run_of_training_job(job_name)) is not None:
        return runs.reconcile(marked)
    if found is not None or tag != deployment.name:
        return found
    if run is not None and (found := runs.reconcile(run)) is not None:
        return found
    adopted = Adoption(deployment).adopt(job_name)
    return None if adopted is None else runs.reconcile(adopted)


def _reconciled(hint: Hint, reconciled: ReconciledRun | None, deployment: Deployment[ControllerSettings]) -> Answer:
    if reconciled is None:
        return _foreign(hint)
    run = reconciled.run
    write_metrics(reconciled.happened, deployment=deployment)
    with logger.append_context_keys(run=run.run, attempt=run.attempt):
        if reconciled.changes:
            logger.info("recorded", state=run.state, end_reason=run.end_reason, interruptions=run.interruptions)
            count("RunChanged", reconciled.changes)
        delivery = Outbox(deployment).deliver(reconciled.notifications)
        report_delivery(delivery)
        if reconciled.changes and run.trial is not None and run.state.ended:
            _advance_sweep(run.trial.sweep, ended=run.run, deployment=deployment)
        if reconciled.changes and reconciled.job is not None and reconciled.job.ended:
            _use_free_quota(reconciled.job, deployment)
    return {
        "ok": True,
        "run": run.run,
        "state": run.state.value,
        "changes": reconciled.changes,
        "notifications_sent": list(delivery.sent),
    }


def _advance_sweep(sweep: str, *, ended: str, deployment: Deployment[ControllerSettings]) -> None:
    """Have the launcher advance the sweep of an ended trial. If Lambda refuses the call, the next pass does it."""
    try:
        launcher_of(deployment).advance(sweep, ended_runs=[ended])
    except AwsCallError as error:
        logger.warning("the next pass advances the sweep", sweep=sweep, problem=str(error))


def _use_free_quota(ended: JobView, deployment: Deployment[ControllerSettings]) -> None:
    """Give the room in the account's quota that a job leaves to the run that waits longest for it."""
    unreadable: dict[str, str] = {}
    for waiting in runs_by_quota(deployment, unreadable=unreadable):
        if waiting[0].place.instance_type == ended.instance_type:
            for before, after in advance_quota(deployment, waiting, unreadable=unreadable, room_is_free=True):
                logger.info("waited for quota", waited=after.run, state=after.state, job_id=after.job_id)
                write_metrics(happened_between(before, after), deployment=deployment)
    for what, why in unreadable.items():
        logger.warning("each pass reports it until it is put right", what=what, problem=why)


def _foreign(hint: Hint) -> Answer:
    logger.debug("of another deployment", subject=hint.subject, name=hint.name)
    count("EventForeign")
    what = "job" if hint.subject is Subject.TRAINING_JOB else hint.subject.value
    return {"ok": True, "ignored": f"the {what} belongs to no run of this deployment"}


def reconcile_pool(pool_check: PoolCheck, *, deployment: Deployment[ControllerSettings]) -> Answer:
    """Reconcile a pool and the run that took it over, and send their notifications.

    Args:
        pool_check: The check that names the pool.
        deployment: The deployment.

    Raises:
        AwsCallError: SageMaker could not answer.
        RunChangedError: The run kept changing under every try.
    """
    with logger.append_context_keys(run=pool_check.run, attempt=pool_check.attempt):
        found = PoolReconciler(deployment).reconcile(run=pool_check.run, attempt=pool_check.attempt)
        if found is None:
            logger.info("no such pool")
            return {"ok": True, "ignored": "no pool of this deployment"}
        pool = found.pool
        write_metrics(found.happened, deployment=deployment)
        for problem in found.problems:
            logger.warning("not scheduled", problem=problem)
        if found.changes:
            logger.info("recorded", state=pool.state, end_reason=pool.end_reason, reused_by=pool.reused_by)
            count("PoolChanged", found.changes)
        followed = None
        if pool.state is PoolState.REUSED and pool.reused_by is not None:
            # Its tags are not known here: the job may be another client's, and belong to the deployment all the same.
            taken_over = _reconcile_job(pool.reused_by, tag=deployment.name, deployment=deployment)
            followed = None if taken_over is None else taken_over.run.run
            if taken_over is not None:
                write_metrics(taken_over.happened, deployment=deployment)
            if followed is not None and followed != pool_check.run:
                report_delivery(Outbox(deployment).deliver_run(followed))
        delivery = Outbox(deployment).deliver_run(pool_check.run)
        report_delivery(delivery)
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
