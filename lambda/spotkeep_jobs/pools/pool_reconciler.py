"""Reconciles a warm pool. It reads, describes, decides, writes and acts, again if another function was faster.

Schedules, the clock, events and a user's command all come here. So it does not matter which of them sees a change of a
pool, or how often. The actions of a decision (to end the pool, to reconcile it again later) follow after it is written.
A function that dies in between leaves them to the next reconciliation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.errors import AwsRefusedError, JobNotFoundError, UnreadableRecordError
from spotkeep_jobs.pools.matching import differences
from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules, ScheduleNotMadeError, ScheduleTarget
from spotkeep_jobs.pools.warm_pool import PoolFacts, decide_pool, plan_schedules, waits_as_recorded
from spotkeep_jobs.record.run_metrics import RunMetrics, happened_between, total
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.record.table_client import until_written

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobSummary, JobView
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.pools.scheduler_api import OneTimeSchedules
    from spotkeep_jobs.record.record import Pool, Run
    from spotkeep_jobs.settings import DeploymentSettings

_ENDS_WITHIN: Final = timedelta(minutes=1)
"""A job that was modified later than so long after its end was modified by a person."""


@dataclass(frozen=True, kw_only=True)
class ReconciledPool:
    """A pool after a reconciliation.

    Attributes:
        pool: The pool, up to date.
        changes: The number of written changes.
        problems: The schedules that could not be made. The controller's next pass reconciles the pool instead.
        happened: The numbers that the changes add to the deployment's metrics.
    """

    pool: Pool
    changes: int = 0
    problems: tuple[str, ...] = ()
    happened: RunMetrics = field(default_factory=dict)


@dataclass(frozen=True)
class PoolReconciler:
    """Reconciles warm pools with SageMaker's description of them."""

    deployment: Deployment[DeploymentSettings]

    def reconcile(self, *, run: str, attempt: int) -> ReconciledPool | None:
        """Bring a pool's record up to date with SageMaker, end the pool if due, and plan its next reconciliation.

        Returns:
            None when the attempt's job has no pool.

        Raises:
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        happened: list[RunMetrics] = []
        pool = until_written(lambda: self._update(run, attempt, happened))
        if pool is not None and pool.state is PoolState.AVAILABLE and pool.asked_to_end is not None:
            self._end(pool)
            pool = until_written(lambda: self._update(run, attempt, happened))
        if pool is None:
            return None
        return ReconciledPool(pool=pool, changes=len(happened), problems=self.plan(pool), happened=total(happened))

    def _update(self, run: str, attempt: int, happened: list[RunMetrics]) -> Pool | None:
        """Write SageMaker's description of a pool into its record. Add the difference to `happened`."""
        run_item, pool = self.deployment.table.runs.get(run), self.deployment.table.pools.get(run, attempt)
        if run_item is None or pool is None:
            return None
        if pool.state is not PoolState.AVAILABLE:
            return pool
        facts = self._facts(run_item, pool)
        change = decide_pool(facts, self.deployment.training_jobs.observe(pool.job_name))
        if change is None:
            return pool
        happened.append(happened_between(run_item, self.deployment.table.runs.commit_pool(change)))
        return change.pool

    def _facts(self, run: Run, pool: Pool) -> PoolFacts:
        return PoolFacts(
            run=run,
            attempts=self.deployment.table.runs.attempts(run.run),
            pool=pool,
            deployment=self.deployment.policy,
            now=self.deployment.now(),
        )

    def as_recorded(self, seen: Pool, *, waiting: Mapping[str, JobSummary]) -> ReconciledPool | None:
        """Return a pool to which nothing has happened, without asking SageMaker for it alone.

        Args:
            seen: The pool, as the table's index has it.
            waiting: The names of the jobs with waiting pools, as listed a moment ago.

        Returns:
            None when it has to be reconciled.
        """
        summary = waiting.get(seen.job_name)
        if summary is None or summary.last_modified_at is None:
            return None
        if summary.last_modified_at - seen.kept_since > _ENDS_WITHIN:
            return None  # A person has changed it since it began: its keep-alive period is another.
        run_item, pool = (
            self.deployment.table.runs.get(seen.run),
            self.deployment.table.pools.get(seen.run, seen.attempt),
        )
        if run_item is None or pool is None:
            return None
        if not waits_as_recorded(self._facts(run_item, pool)):
            return None
        return ReconciledPool(pool=pool, problems=self.plan(pool))

    def plan(self, pool: Pool) -> tuple[str, ...]:
        """Make the schedules that a pool still needs. Existing schedules stay.

        Returns:
            The schedules that could not be made, with the reason.
        """
        settings = self.deployment.settings
        if not settings.schedules_pools:
            return ()
        schedules = OneTimeSchedules(self.deployment.clients.scheduler, target=ScheduleTarget.of(settings))
        problems = []
        planned = plan_schedules(
            pool,
            rules=self.deployment.policy.pool_rules,
            deployment=self.deployment.name,
            now=self.deployment.now(),
        )
        for schedule in planned:
            try:
                schedules.create(schedule)
            except ScheduleNotMadeError as error:
                problems.append(str(error))
        return tuple(problems)

    def chain_before(self, job: JobView) -> datetime | None:
        """Return since when the instances that a job took over have been handed on.

        Pools that the job may have taken are reconciled, so that theirs is recorded before the job's own.

        Returns:
            None when the job began with new instances, as far as this deployment knows.

        Raises:
            RunChangedError: A pool's run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        if job.pool_traits is None:
            return None
        # Passes report a pool that cannot be read: it keeps no run from its end.
        for pool in list(self.deployment.table.pools.kept(unreadable={})):
            could = pool.kept_since <= job.created_at and pool.job_name != job.name
            if could and not differences(wanted=job.pool_traits, offered=pool.traits):
                with contextlib.suppress(UnreadableRecordError):  # Of its run.
                    self.reconcile(run=pool.run, attempt=pool.attempt)
        return self.deployment.table.pools.chain_of(job.name)

    def _end(self, pool: Pool) -> None:
        try:
            self.deployment.training_jobs.keep_alive(pool.job_name, 0)
        except (AwsRefusedError, JobNotFoundError):
            # It is over already, or taken: the next description says which.
            return
