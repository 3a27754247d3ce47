"""Reconciles the subjects of events, such as the jobs of a batch, one job or one warm pool. Sends the notifications."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from controller.events import EventBatch, Hint, PoolCheck, Subject
from controller.reports import count, logger, report_delivery, report_refusal, write_metrics
from spotkeep_jobs.errors import AwsCallError
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.record.run_metrics import happened_between
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.runs.adoption import Adoption
from spotkeep_jobs.runs.launch_completion import advance_quota, runs_by_quota
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.sweeps.launcher_function import launcher_of

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.runs.run_reconciler import ReconciledRun
    from spotkeep_jobs.settings import ControllerSettings

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
