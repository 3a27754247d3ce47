"""Reconciles what events hint at: the jobs of a batch, one job, one warm pool; and sends their notifications."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from controller.reports import count, logger, report_delivery, report_refusal
from spotkeep_jobs.errors import AwsCallError
from spotkeep_jobs.functions.controller_events import EventBatch, Hint, PoolCheck, Subject
from spotkeep_jobs.functions.controller_parts import ControllerParts
from spotkeep_jobs.record.run_metrics import happened_between
from spotkeep_jobs.record.states import PoolState

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.runs.run_reconciler import ReconciledRun

Answer = dict[str, Any]


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
    count("EventReceived", received)
    for problem in batch.problems:
        report_refusal(problem)
    messages, failed = _by_job(batch.messages, parts)
    for hint, message_ids in messages.items():
        with logger.append_context_keys(**{hint.subject.value.replace(" ", "_"): hint.name}):
            try:
                reconcile_hint(hint, parts=parts())
            except Exception:
                logger.exception("not reconciled; the queue brings its events again")
                count("EventFailed", len(message_ids))
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
            count("RunChanged", reconciled.changes)
        delivery = parts.outbox.deliver(reconciled.notifications)
        report_delivery(delivery)
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
    unreadable: dict[str, str] = {}
    for waiting in parts.quota_queue.quotas(unreadable=unreadable):
        if waiting[0].place.instance_type == ended.instance_type:
            for before, after in parts.quota_queue.advance(waiting, unreadable=unreadable, room_is_free=True):
                logger.info("waited for quota", waited=after.run, state=after.state, job_arn=after.job_arn)
                parts.metric_log.write(happened_between(before, after))
    for what, why in unreadable.items():
        logger.warning("each pass reports it until it is put right", what=what, problem=why)


def _foreign(hint: Hint) -> Answer:
    logger.debug("of another deployment", subject=hint.subject, name=hint.name)
    count("EventForeign")
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
            count("PoolChanged", found.changes)
        followed = None
        if pool.state is PoolState.REUSED and pool.reused_by is not None:
            # Its tags are not known here: the job may be another client's, and belong to the deployment all the same.
            taken_over = parts.reconcile_job(pool.reused_by, deployment=parts.deployment.name)
            followed = None if taken_over is None else taken_over.run.run
            if taken_over is not None:
                parts.metric_log.write(taken_over.happened)
            if followed is not None and followed != pool_check.run:
                report_delivery(parts.outbox.deliver_run(followed))
        delivery = parts.outbox.deliver_run(pool_check.run)
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
