"""What the record must become, given what SageMaker says. Pure: the same facts give the same record.

An event is only a hint that a job changed; DescribeTrainingJob is the fact (events come twice, late, out of order or
not at all). `decide` compares the fact with the record and answers with the missing changes, each one transaction.
Applied in any order of events, by any number of callers, they lead to one record and one set of notifications (I4).

This module holds which changes there are, and their order. What a live job is held against has a module each:
`steering`, `max_cost`, `max_run`, `waiting`, `log_alerts`; what the end of an attempt means is in `ending`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.job_phases import (
    count_interruptions,
    first_on_instances,
    has_lost_its_capacity,
)
from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, WAITING_PHASES, JobPhase
from spotkeep_jobs.backends.sagemaker.request import is_same_launch
from spotkeep_jobs.cost.run_cost import LiveCost, live_cost
from spotkeep_jobs.document.deployment_policy import DeploymentPolicy
from spotkeep_jobs.pools.warm_pool import kept_entry, pool_left_by, with_idle_time
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.record import (
    Attempt,
    Notification,
    Progress,
    Run,
    RunChange,
    ScriptMetrics,
    TimelineEntry,
    in_utc_milliseconds,
)
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.runs.ending import close_attempt, ended_with_job, ended_without_job, without_repeats
from spotkeep_jobs.runs.log_alerts import (
    checkpoint_freshness,
    log_due_again_at,
    log_not_taken,
    metrics_read_at,
    stale_checkpoint,
)
from spotkeep_jobs.runs.max_cost import cost_due_again_at, hold_to_max_cost
from spotkeep_jobs.runs.max_run import hold_to_max_run, max_run_due_again_at
from spotkeep_jobs.runs.on_the_way import phase_entries, phase_notifications, resume_entries
from spotkeep_jobs.runs.steering import Steering, steer
from spotkeep_jobs.runs.waiting import hold_to_waits, long_wait_without_a_job, wait_due_again_at

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.document.request import JobRequest

VANISHED_AFTER: Final = timedelta(minutes=10)
"""A job that SageMaker accepted this long ago and does not know (any more) is gone."""


# DynamoDB takes 100 writes in a transaction; run item, attempt, checkpoint prefix and notifications need their share.
_ENTRIES_AT_ONCE: Final = 20


def decide(
    *,
    run: Run,
    request: JobRequest | None,
    attempt: Attempt,
    earlier: Sequence[Attempt] = (),
    job: JobView | None,
    log: JobLog,
    metrics: ScriptMetrics | None = None,
    steering: Steering | None = None,
    deployment: DeploymentPolicy,
    now: datetime,
    chain_since: datetime | None = None,
) -> list[RunChange]:
    """Decide what is missing in the record.

    Args:
        run: The run item.
        request: Its request, as `request_of` parses it, once for each reading of the run.
        attempt: Its current attempt.
        earlier: The attempts before it.
        job: What SageMaker says of the attempt's job; None when it knows no such job.
        log: The job's own events, as far as they were read.
        metrics: What the record says that its script measures.
        steering: What a run with a deadline is steered by.
        deployment: Names and prices.
        now: The time of the decision.
        chain_since: When the job took over the instances of a warm pool: since when those have been handed on.

    Returns:
        The changes in order, each one transaction on the version the one before it leaves. Empty when the record
        says it all already, when the run has ended (an ending is final), or when the job is not the run's.
    """
    if run.state.ended or attempt.state.ended or run.attempt != attempt.attempt:
        return []
    if job is None:
        return _without_job(
            run=run,
            request=request,
            attempt=attempt,
            earlier=earlier,
            metrics=metrics,
            deployment=deployment,
            now=now,
        )
    if not _is_of(attempt, job) or len(job.transitions) < attempt.recorded_transitions:
        # A stranger's job of the same name, or an answer older than the record.
        return []
    return list(
        _Decision(
            run=run,
            request=request,
            attempt=attempt,
            earlier=tuple(earlier),
            job=job,
            log=log,
            metrics=metrics,
            steering=steering,
            deployment=deployment,
            now=now,
            chain_since=chain_since,
        ).changes()
    )


@dataclass(frozen=True, kw_only=True)
class _Decision:
    run: Run
    request: JobRequest | None
    attempt: Attempt
    earlier: tuple[Attempt, ...]
    job: JobView
    log: JobLog
    metrics: ScriptMetrics | None
    steering: Steering | None
    deployment: DeploymentPolicy
    now: datetime
    chain_since: datetime | None

    def changes(self) -> Iterator[RunChange]:
        """Yield the changes in order: first the timeline in portions, with the last of them the state."""
        run, attempt, job = self.run, self._launched(), self.job
        recorded, total = attempt.recorded_transitions, len(job.transitions)
        while True:
            new = range(recorded, min(recorded + _ENTRIES_AT_ONCE, total))
            attempt = self._with_transitions(attempt, new.stop)
            entries = list(phase_entries(attempt, job=job, positions=new))
            notifications = list(
                phase_notifications(
                    self.run,
                    attempt=attempt,
                    earlier=self.earlier,
                    job=job,
                    positions=new,
                    deployment=self.deployment.name,
                    now=self.now,
                )
            )
            if new.stop == total:
                break
            run = self._with_attempt(run, attempt)
            yield RunChange(
                run=run, attempt=attempt, timeline=without_repeats(entries), notifications=tuple(notifications)
            )
            run = run.model_copy(update={"version": run.version + 1})
            recorded = new.stop
        run, log_entries, log_notifications = log_not_taken(
            run, attempt=attempt, log=self.log, deployment=self.deployment.name, now=self.now
        )
        entries += log_entries
        notifications += log_notifications
        if job.ended:
            yield from self._at_the_end(run, attempt, recorded, entries, notifications)
        else:
            yield from self._alive(run, attempt, entries, notifications)

    def _at_the_end(
        self,
        run: Run,
        attempt: Attempt,
        recorded: int,
        entries: list[TimelineEntry],
        notifications: list[Notification],
    ) -> Iterator[RunChange]:
        """Yield where the script took up its work, in portions; with the last of them the end."""
        resumes = resume_entries(attempt, log=self.log)
        while len(resumes) > _ENTRIES_AT_ONCE:
            portion, resumes = resumes[:_ENTRIES_AT_ONCE], resumes[_ENTRIES_AT_ONCE:]
            yield RunChange(
                run=run.model_copy(update={"log_warning": self.run.log_warning}),
                attempt=self._with_transitions(self._launched(), recorded),
                timeline=without_repeats(portion),
            )
            run = run.model_copy(update={"version": run.version + 1})
        attempt = ended_with_job(
            attempt,
            run=self.run,
            request=self.request,
            earlier=self.earlier,
            job=self.job,
            log=self.log,
            now=self.now,
        )
        pool = pool_left_by(
            run=self.run,
            attempt=attempt,
            job=self.job,
            usd_per_hour=self.deployment.prices.get(attempt.instance_type),
            chain_since=self.chain_since,
            now=self.now,
        )
        if pool is not None:
            attempt = with_idle_time(attempt, pool)
            entries.append(kept_entry(pool))
        if self.steering is not None:
            run = run.model_copy(update={"progress": self.steering.progress})
        yield close_attempt(
            run=self._with_attempt(run, attempt),
            request=self.request,
            attempt=attempt,
            earlier=self.earlier,
            deployment=self.deployment,
            now=self.now,
            timeline=[*entries, *resumes],
            notifications=notifications,
            pool=pool,
            metrics=self.log.metrics or self.metrics,
        )

    def _alive(
        self, run: Run, attempt: Attempt, entries: list[TimelineEntry], notifications: list[Notification]
    ) -> Iterator[RunChange]:
        """Yield where a live job is, and what follows from what it is held against; nothing where that is known."""
        request, job, now = self.request, self.job, self.now
        state = self._live_state()
        attempt = attempt.model_copy(update={"state": state})
        run = run.model_copy(update={"state": state, "progress": self._progress()})
        run, attempt, steered = steer(run, request=request, attempt=attempt, job=job, steering=self.steering, now=now)
        cost = self._live_cost(attempt)
        run, attempt, spending, cost_notifications = hold_to_max_cost(
            run, request=request, attempt=attempt, job=job, cost=cost, deployment=self.deployment.name, now=now
        )
        attempt, left, wait_notifications = hold_to_waits(
            self.run, request=request, attempt=attempt, job=job, deployment=self.deployment, now=now
        )
        attempt, over = hold_to_max_run(self.run, attempt=attempt, job=job, now=now)
        freshness = checkpoint_freshness(run, request=request, job=job)
        attempt, stale = stale_checkpoint(
            run, attempt=attempt, freshness=freshness, log=self.log, deployment=self.deployment.name, now=now
        )
        read_at = metrics_read_at(attempt, request=request, job=job)
        if read_at is not None and read_at <= now:
            attempt = attempt.model_copy(update={"log_read_at": in_utc_milliseconds(now)})
        due_again_at = (
            metrics_read_at(attempt, request=request, job=job),
            wait_due_again_at(run, request=request, attempt=attempt, job=job, deployment=self.deployment),
            log_due_again_at(attempt, freshness=freshness, now=now),
            cost_due_again_at(run, request=request, attempt=attempt, cost=cost, now=now),
            max_run_due_again_at(attempt, job=job, now=now),
        )
        attempt = attempt.model_copy(
            update={
                "seen_modified_at": job.last_modified_at and in_utc_milliseconds(job.last_modified_at),
                "reconcile_again_at": min(
                    (in_utc_milliseconds(at) for at in due_again_at if at is not None), default=None
                ),
            }
        )
        change = RunChange(
            run=self._with_attempt(run, attempt),
            attempt=attempt,
            timeline=without_repeats([*entries, *steered, *spending, *left, *over]),
            notifications=(*notifications, *cost_notifications, *wait_notifications, *stale),
            metrics=self.log.metrics if self.log.metrics != self.metrics else None,
        )
        if not _says_nothing_new(change, self.run, self.attempt):
            yield change

    def _launched(self) -> Attempt:
        if self.attempt.job_arn is not None:
            return self.attempt
        # The launch was cut short after SageMaker accepted the job: its ARN is recorded here.
        return self.attempt.model_copy(update={"job_arn": self.job.arn, "launched_at": self.job.created_at})

    def _with_transitions(self, attempt: Attempt, upto: int) -> Attempt:
        return attempt.model_copy(
            update={
                "recorded_transitions": upto,
                "interruptions": count_interruptions(self.job.transitions[:upto]),
                "started_at": attempt.started_at or first_on_instances(self.job),
                # Of several types SageMaker takes the first with capacity, and bills that one.
                "instance_type": self.job.instance_type or attempt.instance_type,
                "training_jobs": self.job.training_jobs,
            }
        )

    def _with_attempt(self, run: Run, attempt: Attempt) -> Run:
        return run.model_copy(
            update={
                "job_arn": attempt.job_arn,
                "quota_wait": None,
                "instance_type": attempt.instance_type,
                "volume_id": self.job.volume_id or run.volume_id,
                "volume_is_for_a_person": self.job.volume_is_for_a_person,
                "training_job": attempt.training_jobs[-1].name if attempt.training_jobs else None,
                "waits_because": self.job.waits_because,
                "started_at": run.started_at or attempt.started_at,
                "interruptions": sum(before.interruptions for before in self.earlier) + attempt.interruptions,
                "updated_at": self.now,
            }
        )

    def _live_state(self) -> RunState:
        phase = self.job.phase
        if phase is JobPhase.STOPPING or self.run.stop_requested_at is not None:
            return RunState.STOPPING
        if phase in ON_INSTANCES_PHASES:
            return RunState.TRAINING
        if phase in WAITING_PHASES or self.run.state is RunState.LAUNCHING:
            return RunState.INTERRUPTED if has_lost_its_capacity(self.job) else RunState.WAITING
        return self.run.state

    def _live_cost(self, attempt: Attempt) -> LiveCost | None:
        """Return what the run has cost, its live job included; None where it is not known, or nothing asks for it."""
        if self.request is None or self.request.max_cost is None:
            return None
        plan = None if self.steering is None else self.steering.plan
        return live_cost(
            earlier=self.earlier,
            attempt=attempt,
            job=self.job,
            prices=self.deployment.prices,
            spot_usd_per_hour=None if plan is None else plan.spot_usd_per_hour,
            now=self.now,
        )

    def _progress(self) -> Progress | None:
        """Return how far the run is, with what was read of its log."""
        return (self.log.progress or self.run.progress) if self.steering is None else self.steering.progress


def _without_job(
    *,
    run: Run,
    request: JobRequest | None,
    attempt: Attempt,
    earlier: Sequence[Attempt],
    metrics: ScriptMetrics | None,
    deployment: DeploymentPolicy,
    now: datetime,
) -> list[RunChange]:
    if attempt.job_arn is None:
        # Not launched yet, or the launch was cut short, or it waits for its time: LaunchCompletion creates the job.
        attempt, notifications = long_wait_without_a_job(
            run, request=request, attempt=attempt, deployment=deployment, now=now
        )
        if not notifications:
            return []
        run = run.model_copy(update={"updated_at": now})
        return [RunChange(run=run, attempt=attempt, notifications=tuple(notifications))]
    if now - (attempt.launched_at or attempt.created_at) < VANISHED_AFTER:
        return []
    return [
        ended_without_job(
            run=run,
            request=request,
            attempt=attempt,
            earlier=earlier,
            reason=EndReason.JOB_VANISHED,
            metrics=metrics,
            deployment=deployment,
            now=now,
        )
    ]


def _is_of(attempt: Attempt, job: JobView) -> bool:
    if attempt.job_arn is not None:
        return job.arn == attempt.job_arn
    # Not confirmed yet. The name alone says little: a run id may have been used before, by a run long forgotten.
    return attempt.job_request is not None and is_same_launch(
        environment=job.environment, parameters=attempt.job_request
    )


def _says_nothing_new(change: RunChange, run: Run, attempt: Attempt) -> bool:
    same_run = change.run.model_copy(update={"updated_at": run.updated_at}) == run
    return same_run and change.attempt == attempt and not change.notifications and change.metrics is None
