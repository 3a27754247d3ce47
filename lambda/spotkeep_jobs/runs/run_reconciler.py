"""Reconciles one run with the state of its job at its backend. It reads, describes, decides and writes.

It starts again if another function was faster.

Some records ask AWS to do something. Examples are the next job of a run, the end of a job that waited too long, and the
schedules of a warm pool. Another is the end of a job that a user stopped before its launcher died. These steps follow
after the record is written, by the same code that completes a launch. If a function dies in between, the next
reconciliation takes the step.

Reading a job's log is the only step with a cost that depends on the job. Each reading is bounded in bytes and seconds,
and recorded before it begins. The record moves the run to the end of those in flight. If function after function ends
while it reads a log, the log is not read any more. An end also waits, for as many tries, for a log that CloudWatch Logs
does not return. The bill and the notification depend on that log.

The controller calls it for every event, and every five minutes for every run in flight. Both calls do the same. So
their order and their number do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.ec2.jobs import Settled
from spotkeep_jobs.backends.sagemaker.training_job import launch_id_of
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.progress.job_log import Extent, JobLog, LogAccount
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import format_time
from spotkeep_jobs.record.run_metrics import RunMetrics, happened_between, total
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.record.table_client import RecordRefusedError, until_written
from spotkeep_jobs.runs.ending import request_of
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES, JobFacts, RunFacts, asks_for_its_log
from spotkeep_jobs.runs.transition import decide

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobView
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.record.record import Attempt, Notification, Run, RunChange
    from spotkeep_jobs.record.run_store import ReadRun
    from spotkeep_jobs.record.table_client import Write
    from spotkeep_jobs.settings import ControllerSettings

MOST_UNFINISHED_READINGS: Final = 3
"""The most readings of an attempt's log that may stay unfinished.

A reading is unfinished if its function ended, or if CloudWatch Logs gave no answer. If functions ended, the log is
passed over after that. If CloudWatch Logs gave no answer, the log's content counts as unknown. With a pass every five
minutes, an end waits for ten minutes."""
_LONGEST_TRIED: Final = timedelta(seconds=30)
"""The time after which a run that keeps changing is not tried again.

Each try may read the run's log for 20 seconds, and a pass has other runs to reconcile."""
_STILL_WRITES_SECONDS: Final = 600
"""The seconds after a training job was asked to stop in which lines may still arrive in its log."""
_NOTHING_SEARCHED: Final[Mapping[str, JobView]] = MappingProxyType({})
_JOB_NAME: Final = re.compile(r"(?P<run>[a-zA-Z0-9](?:-*[a-zA-Z0-9])*)-(?P<attempt>[1-9][0-9]{0,5})")


@dataclass(frozen=True, kw_only=True)
class ReconciledRun:
    """A run after a reconciliation.

    The job is None without a job. It is also None if the run had ended before, and its backend was not asked.

    Attributes:
        run: The run item, up to date.
        changed_before: The time of the run's last change before this reconciliation.
        job: SageMaker's description of the current attempt's job, or None.
        changes: The number of changes that were written.
        notifications: The run's notifications, sent or not, with the newest ones last.
        happened: The counts that those changes add to the deployment's metrics.
    """

    run: Run
    changed_before: datetime
    job: JobView | None
    changes: int
    notifications: tuple[Notification, ...] = ()
    happened: RunMetrics = field(default_factory=dict)


@dataclass
class _Written:
    """The changes that a reconciliation has written so far, over all its tries."""

    changes: int = 0
    happened: list[RunMetrics] = field(default_factory=list)

    def add(self, before: Run, after: Run) -> None:
        self.changes += 1
        self.happened.append(happened_between(before, after))

    def reconciled(
        self, run: Run, job: JobView | None, notifications: Sequence[Notification], *, as_read: Run
    ) -> ReconciledRun:
        return ReconciledRun(
            run=run,
            changed_before=as_read.updated_at,
            job=job,
            changes=self.changes,
            notifications=tuple(notifications),
            happened=total(self.happened),
        )


@dataclass(frozen=True)
class RunReconciler:
    """Reconciles runs with the state of their jobs at their backends."""

    deployment: Deployment[ControllerSettings]

    def reconcile_job(self, job_name: str) -> ReconciledRun | None:
        """Reconcile the run that a job works on.

        Args:
            job_name: The job's name from an event.

        Returns:
            None when the job belongs to no run of this deployment.

        Raises:
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        run = run_of_job(job_name)
        if run is None:
            return None
        return self.reconcile(run)

    def as_recorded(self, run: str, *, in_progress: Mapping[str, JobView]) -> Run | None:
        """Return the item of a run to which nothing can have happened since it was described, and that no user stops.

        Args:
            run: Its id.
            in_progress: The jobs in progress by name, as they were searched a moment ago.

        Returns:
            None when the run has to be reconciled.
        """
        run_item = self.deployment.table.runs.get(run)
        found = None if run_item is None else in_progress.get(run_item.job_name)
        if run_item is None or found is None or run_item.job_id != found.job_id or run_item.asked_to_end is not None:
            return None
        if run_item.deadline_at is not None:
            return None  # Its plan asks how far it is, whatever SageMaker says.
        attempt = self.deployment.table.runs.attempt(run, run_item.attempt)
        if attempt is None or attempt.asked_to_end is not None or attempt.last_reconciled is None:
            return None
        last, modified = attempt.last_reconciled, found.last_modified_at
        if last.job_modified_at is None:
            return None
        due = last.again_at is not None and last.again_at <= self.deployment.now()
        same = modified is not None and format_time(modified) == format_time(last.job_modified_at)
        return run_item if same and not due else None

    def reconcile(self, run: str, *, in_progress: Mapping[str, JobView] = _NOTHING_SEARCHED) -> ReconciledRun | None:
        """Reconcile a run by its id. Return None for one that is not known.

        SageMaker's search index lags behind. Its results may be recorded. But the job is described before a
        notification or an action follows from them.

        Args:
            run: Its id.
            in_progress: Jobs by name, from a search a moment ago.
        """
        written = _Written()
        searched = [in_progress]

        def once() -> ReconciledRun | None:
            # What was searched is too old for a second try.
            return self._reconcile(run, in_progress=searched.pop() if searched else _NOTHING_SEARCHED, written=written)

        until = self.deployment.now() + _LONGEST_TRIED
        return until_written(once, has_time=lambda: self.deployment.now() < until)

    def _reconcile(self, run: str, *, in_progress: Mapping[str, JobView], written: _Written) -> ReconciledRun | None:
        read = self.deployment.table.runs.without_timeline(run)
        run_item, metrics, notifications = read.run, read.metrics, read.notifications
        if run_item is None:
            return None
        as_read = run_item
        if run_item.state.ended:
            return written.reconciled(run_item, None, notifications, as_read=as_read)
        *earlier, attempt = read.attempts()[: run_item.attempt]
        facts = RunFacts(
            run=run_item,
            request=request_of(run_item),
            attempt=attempt,
            earlier=earlier,
            metrics=metrics,
            deployment=self.deployment.policy,
            now=self.deployment.now(),
        )
        # A search finds training jobs, whose names in a queue are AWS Batch's.
        job = None if attempt.place.queue is not None else in_progress.get(attempt.job_name)
        wrote_attempt = False
        changes = [] if job is None else self._decide(facts, job)
        unwritten: Sequence[Write] = ()
        if job is None or _has_consequences(changes, attempt) or _asks_for_action(run_item, attempt, job):
            settled = self._described(attempt, read)
            job, unwritten = settled.view, settled.unwritten
            facts = replace(facts, now=self.deployment.now())
            if unwritten and (job is None or _reads_log(facts, job)):
                self._write_alone(run, unwritten)  # Before the log, which may end this function.
                unwritten = ()
            try:
                changes = self._decide(facts, job)
            except Exception:
                self._write_alone(run, unwritten)
                raise
        for change in changes:
            before = run_item
            try:
                run_item = self.deployment.table.runs.commit(change, beside=unwritten)
            except RecordRefusedError:
                if job is not None and not job.ended and _is_to_end(change):
                    LaunchCompletion(self.deployment).end_job(change.attempt)
                self._write_alone(run, unwritten)
                raise
            written.add(before, run_item)
            unwritten = ()
            notifications += change.notifications
            attempt = change.next_attempt or change.attempt
            wrote_attempt = change.next_attempt is not None
            if change.pool is not None:
                PoolReconciler(self.deployment).plan(change.pool)
        self._write_alone(run, unwritten)
        if _asks_for_action(run_item, attempt, job):
            before = run_item
            run_item = LaunchCompletion(self.deployment).complete(
                run, read=(run_item, attempt), wrote_attempt=wrote_attempt
            )
            written.happened.append(happened_between(before, run_item))
        return written.reconciled(run_item, job, notifications, as_read=as_read)

    def _described(self, attempt: Attempt, read: ReadRun) -> Settled:
        """Return the present description of the attempt's job, after the steps that were due are done."""
        backend = self.deployment.backend_of(attempt)
        if attempt.place.backend == "ec2":
            return self.deployment.fleets.settle_within(attempt.job_name, items=read.items)
        job = backend.observe(attempt.job_name)
        return Settled(view=backend.settle(attempt.job_name) if job is not None and job.has_more_to_do else job)

    def _write_alone(self, run: str, writes: Sequence[Write]) -> None:
        """Write what EC2 has answered without a change of the run. EC2 forgets it in an hour."""
        if writes:
            self.deployment.table.runs.write(run, writes)

    def _decide(self, facts: RunFacts, job: JobView | None) -> Sequence[RunChange]:
        if job is None:
            return decide(facts)
        run, reading = facts.run, False
        if not _reads_log(facts, job):
            log = JobLog()
        elif _ends_functions(run, facts.now):
            log = JobLog(extent=Extent.PASSED_OVER)
        else:
            log, reading = self._log_once_recorded(facts, job)
        if job.ended and log.extent is Extent.UNREAD and _may_be_answered_later(run, facts.attempt):
            return ()
        changes = decide(
            JobFacts(
                run=with_changes(run, log_reading=None) if reading else run,
                request=facts.request,
                attempt=facts.attempt,
                earlier=facts.earlier,
                metrics=facts.metrics,
                deployment=facts.deployment,
                now=facts.now,
                job=job,
                log=log,
                plan=None if run.deadline_at is None or job.ended else self.deployment.table.runs.plan(run.run),
                # Whose instances an ended job with a warm pool took over.
                chain_since=PoolReconciler(self.deployment).chain_before(job)
                if job.ended and job.keep_alive_seconds
                else None,
            )
        )
        if reading and not changes:
            self.deployment.table.runs.end_log_reading(run)
        return changes

    def _log_once_recorded(self, facts: RunFacts, job: JobView) -> tuple[JobLog, bool]:
        """Return the content of a log, and whether the reading was recorded first.

        If DynamoDB refuses that record, the log is not read. The limits of the run are checked all the same. The run's
        change is refused as well, but a job that has to end is ended first.
        """
        try:
            self.deployment.table.runs.begin_log_reading(facts.run, now=facts.now)
        except RecordRefusedError:
            return JobLog(extent=Extent.PASSED_OVER), False
        return self._log(facts, job), True

    def _log(self, facts: RunFacts, job: JobView) -> JobLog:
        """Return all of an ended job's log, or the new part of a live job's log."""
        run = facts.run
        launch = launch_id_of(facts.attempt)
        if launch is None:
            return JobLog(extent=Extent.UNREAD)
        progress = run.progress
        since = None if job.ended or progress is None else progress.read_to
        account = LogAccount(
            launch=launch,
            earlier=facts.earlier,
            progress=progress,
            follows_progress=not job.ended or run.deadline_at is not None,
            metrics=facts.metrics,
            goals={} if facts.request is None else facts.request.goals,
            read_before=since,
        )
        logs = self.deployment.fleet_logs if run.place.backend == "ec2" else self.deployment.logs
        return account.log(logs.read(_log_names(job, since=since), account.take, launch=launch, since=since))


def _reads_log(facts: RunFacts, job: JobView) -> bool:
    """Return True if a decision depends on the log.

    That holds for every ended job, and for a live job if its run needs it.

    It never holds for an adopted run, because Spotkeep's agent does not write into its job's log.
    """
    return not facts.run.adopted and (job.ended or asks_for_its_log(facts, job))


def _log_names(job: JobView, *, since: float | None) -> tuple[str, ...]:
    """Return the names of the jobs with logs to read.

    In a queue these are the training jobs that were not over before a time.
    """
    if not job.training_jobs.listed:
        return (job.name,)
    earlier = job.training_jobs.earlier
    return (
        *(earlier.names if _may_have_written(earlier.left_at, since=since) else ()),
        *(each.name for each in job.training_jobs.listed if _may_have_written(each.left_at, since=since)),
    )


def _may_have_written(left_at: datetime | None, *, since: float | None) -> bool:
    return since is None or left_at is None or left_at.timestamp() >= since - _STILL_WRITES_SECONDS


def _ends_functions(run: Run, now: datetime) -> bool:
    """Return True if function after function ended while reading the log. Those that may still read do not count."""
    reading = run.log_reading
    if reading is None or reading.unfinished < MOST_UNFINISHED_READINGS:
        return False
    return now - reading.begun_at >= LAUNCH_SETTLES


def _may_be_answered_later(run: Run, attempt: Attempt) -> bool:
    """Return True if a reading without an answer stays unfinished, so that the next reconciliation tries it again."""
    if launch_id_of(attempt) is None:
        return False  # Its lines have no mark to ask for.
    before = 0 if run.log_reading is None else run.log_reading.unfinished
    return before + 1 < MOST_UNFINISHED_READINGS


def _has_consequences(changes: Sequence[RunChange], attempt: Attempt) -> bool:
    """Return True if the changes do more than record the job's phase."""
    left = attempt.asked_to_end
    return any(change.notifications or change.ends_run or change.attempt.asked_to_end != left for change in changes)


_END_FOR_GOOD: Final = frozenset({EndReason.MAX_COST, EndReason.MAX_RUNTIME_EXCEEDED})
"""The reasons after which no job follows the one that the controller asks to end."""


def _is_to_end(change: RunChange) -> bool:
    """Return True if a live job has to end for good. Nothing follows it, and each hour of it is billed."""
    asked = change.attempt.asked_to_end
    return change.run.asked_to_end is not None or (asked is not None and asked.reason in _END_FOR_GOOD)


def _asks_for_action(run: Run, attempt: Attempt, job: JobView | None) -> bool:
    if run.state.ended or job is None:
        return False
    follows = attempt.job_id is None and job.ended
    shall_end = run.asked_to_end is not None or attempt.asked_to_end is not None
    return follows or (shall_end and not job.ended and job.phase is not JobPhase.STOPPING)


def run_of_job(job_name: str) -> str | None:
    """Return the run that a job's name belongs to (`<run>-<attempt>`), or None.

    Args:
        job_name: A training job's name. Any other name belongs to no run.
    """
    match = _JOB_NAME.fullmatch(job_name)
    return None if match is None else match["run"]
