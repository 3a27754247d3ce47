"""Reconciles a warm pool: read, describe, decide, write, act; again if another function was faster.

Schedules, the clock, events and a user's command all come here, so it does not matter which of them sees a
change of a pool, or how often. What a decision asks for (to end the pool, to look again later) is done after it is
written; a function that dies in between leaves it to the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.errors import AwsRefusedError, TrainingJobNotFoundError
from spotkeep_jobs.pools.matching import differences
from spotkeep_jobs.pools.pool_schedules import plan_schedules
from spotkeep_jobs.pools.scheduler_api import ScheduleNotMadeError
from spotkeep_jobs.pools.warm_pool import decide_pool, waits_as_recorded
from spotkeep_jobs.record.run_metrics import RunMetrics, happened_between, total
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.run_table_errors import RunChangedError
from spotkeep_jobs.record.states import PoolState

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobSummary, JobView
    from spotkeep_jobs.backends.sagemaker.api import TrainingJobs
    from spotkeep_jobs.document.deployment import Deployment
    from spotkeep_jobs.pools.scheduler_api import Schedules
    from spotkeep_jobs.record.record import Pool

_TRIES: Final = 8
_ENDS_WITHIN: Final = timedelta(minutes=1)
"""A job that was modified later than so long after its end was modified by a person."""


@dataclass(frozen=True, kw_only=True)
class PoolLook:
    """What a look found.

    Attributes:
        pool: The pool, up to date.
        changes: How many changes were written.
        problems: What could not be scheduled; the controller looks instead.
        happened: What the changes add to the deployment's metrics.
    """

    pool: Pool
    changes: int = 0
    problems: tuple[str, ...] = ()
    happened: RunMetrics = field(default_factory=dict)


class PoolWatch:
    """Watches warm pools through the seams."""

    def __init__(
        self,
        *,
        table: RunTable,
        jobs: TrainingJobs,
        schedules: Schedules | None,
        deployment: Deployment,
        clock: Callable[[], datetime],
    ) -> None:
        """Bind the watch.

        Args:
            table: Where pools are recorded.
            jobs: Where their jobs are.
            schedules: Where later looks are planned; None for one who looks without planning.
            deployment: Names, prices and the rules for pools.
            clock: The time, aware.
        """
        self._table = table
        self._jobs = jobs
        self._schedules = schedules
        self._deployment = deployment
        self._clock = clock

    def look(self, *, run: str, attempt: int) -> PoolLook | None:
        """Bring a pool's record up to what SageMaker says, end the pool if it is to end, and plan the next looks.

        Returns:
            None when the attempt left no pool.

        Raises:
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        changes = 0
        happened: list[RunMetrics] = []
        asked_to_end = False
        for _ in range(_TRIES):
            head, pool = self._table.get(run), self._table.pool(run, attempt)
            if head is None or pool is None:
                return None
            if pool.state is not PoolState.AVAILABLE:
                return PoolLook(pool=pool, changes=changes, happened=total(happened))
            change = decide_pool(
                run=head,
                attempts=self._table.attempts(run),
                pool=pool,
                job=self._jobs.observe(pool.job_name),
                deployment=self._deployment,
                now=self._clock(),
            )
            if change is not None:
                try:
                    happened.append(happened_between(head, self._table.commit_pool(change)))
                except RunChangedError:
                    continue
                pool = change.pool
                changes += 1
            if pool.state is PoolState.AVAILABLE and pool.stop_requested_at is not None and not asked_to_end:
                asked_to_end = True
                self._end(pool)
                continue
            return PoolLook(pool=pool, changes=changes, problems=self.plan(pool), happened=total(happened))
        raise RunChangedError(run)

    def as_recorded(self, seen: Pool, *, waiting: Mapping[str, JobSummary]) -> PoolLook | None:
        """A look at a pool to which nothing has happened, without asking SageMaker for it alone.

        Args:
            seen: The pool, as the index of the table has it.
            waiting: The jobs whose pools wait by name, as they were listed a moment ago.

        Returns:
            None when it has to be looked at.
        """
        summary = waiting.get(seen.job_name)
        if summary is None or summary.last_modified_at is None:
            return None
        if summary.last_modified_at - seen.kept_since > _ENDS_WITHIN:
            return None  # A person has changed it since it began: its keep-alive period is another.
        head, pool = self._table.get(seen.run), self._table.pool(seen.run, seen.attempt)
        if head is None or pool is None:
            return None
        attempts = self._table.attempts(seen.run)
        deployment, now = self._deployment, self._clock()
        if not waits_as_recorded(run=head, attempts=attempts, pool=pool, deployment=deployment, now=now):
            return None
        return PoolLook(pool=pool, problems=self.plan(pool))

    def plan(self, pool: Pool) -> tuple[str, ...]:
        """Make the schedules that a pool still needs; what is there already stays.

        Returns:
            What could not be made, and why.
        """
        if self._schedules is None:
            return ()
        problems = []
        planned = plan_schedules(
            pool, rules=self._deployment.pool_rules, deployment=self._deployment.name, now=self._clock()
        )
        for schedule in planned:
            try:
                self._schedules.create(schedule)
            except ScheduleNotMadeError as error:
                problems.append(str(error))
        return tuple(problems)

    def chain_before(self, job: JobView) -> datetime | None:
        """Whose instances a job took over: since when they have been handed on.

        Pools that the job may have taken are looked at, so that theirs is recorded before the job's own.

        Returns:
            None when the job began with new instances, as far as this deployment knows.

        Raises:
            RunChangedError: A pool's run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        if job.pool_traits is None:
            return None
        for pool in list(self._table.kept_pools()):
            could = pool.kept_since <= job.created_at and pool.job_name != job.name
            if could and not differences(wanted=job.pool_traits, offered=pool.traits):
                self.look(run=pool.run, attempt=pool.attempt)
        return self._table.chain_of(job.name)

    def _end(self, pool: Pool) -> None:
        try:
            self._jobs.keep_alive(pool.job_name, 0)
        except (AwsRefusedError, TrainingJobNotFoundError):
            # It is over already, or taken: the next description says which.
            return
