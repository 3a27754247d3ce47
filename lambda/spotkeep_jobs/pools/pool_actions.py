"""The users' actions on warm pools. They see them, find the one a job would take, keep one longer, or end one.

Each action asks SageMaker first, because the record of a pool may be minutes old. A pool that is gone is of no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.sagemaker.training_job import build_training_job_request
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.times import MAX_KEEP_ALIVE_SECONDS, format_duration
from spotkeep_jobs.errors import (
    AwsRefusedError,
    JobNotFoundError,
    Problem,
    RequestRefusedError,
    RunChangedError,
    UnreadableRecordError,
    in_words,
)
from spotkeep_jobs.pools.matching import PoolMatch, match
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.pools.warm_pool import LONGEST_CHAIN, stop_requested
from spotkeep_jobs.record.record import Pool
from spotkeep_jobs.record.states import PoolEndReason, PoolState
from spotkeep_jobs.record.table_client import until_written

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.record.table_client import Unreadable
    from spotkeep_jobs.settings import LauncherSettings

_MOST_RECONCILED: Final = 20
"""A caller waits for the answer, and each reconciliation is a call of SageMaker's."""


@dataclass(frozen=True)
class PoolActions:
    """Lists, matches, extends and ends warm pools."""

    deployment: Deployment[LauncherSettings]

    def pools(self, *, unreadable: Unreadable) -> list[Pool]:
        """Return the existing pools, as SageMaker describes them now, first to expire first.

        Args:
            unreadable: Takes pools with an unreadable record, and those with an unreadable run, which are as recorded.

        Raises:
            AwsCallError: SageMaker could not answer.
        """
        known = list(self.deployment.table.pools.kept(unreadable=unreadable))
        reconciled = []
        for pool in known[:_MOST_RECONCILED]:
            try:
                reconciled.append(self._reconciled(pool))
            except UnreadableRecordError as error:
                unreadable[error.what] = in_words(error)
                reconciled.append(pool)
        return [pool for pool in (*reconciled, *known[_MOST_RECONCILED:]) if pool.state is PoolState.AVAILABLE]

    def match(self, request: JobRequest) -> list[PoolMatch]:
        """Hold a job against the pools there are.

        Args:
            request: A validated request, defaults filled in.

        Returns:
            Those it would take first. For each other one, every criterion that differs.

        Raises:
            AwsCallError: SageMaker could not answer.
        """
        job = first_job(request, prices={})
        parameters = build_training_job_request(
            request=request,
            job=job,
            platform=self.deployment.platform_for(request),
            run="match",
            attempt=1,
            launch_id="match",
        )
        return match(parameters, pools=self.pools(unreadable={}), now=self.deployment.now())

    def extend(self, *, run: str, seconds: int, kept_until: datetime | None = None) -> Pool:
        """Keep a run's pool longer than it would be.

        Args:
            run: The run that left it.
            seconds: How much longer.
            kept_until: Than this end, so that the same call again changes nothing. Default: than its end by now, so
                that the same call again extends it again.

        Returns:
            The pool, with its new expiry.

        Raises:
            RequestRefusedError: There is no such pool, or a limit stands against it.
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """
        pool = self._available(run)
        limit = self.deployment.settings.max_keep_alive_seconds
        longest = MAX_KEEP_ALIVE_SECONDS if limit is None else min(limit, MAX_KEEP_ALIVE_SECONDS)
        seen = pool.keep_alive_seconds if kept_until is None else round((kept_until - pool.kept_since).total_seconds())
        wanted = seen + seconds
        if wanted <= pool.keep_alive_seconds:
            return pool
        if wanted > longest:
            raise RequestRefusedError([_too_long(pool, seconds=seconds, wanted=wanted, longest=longest)])
        if pool.kept_since + timedelta(seconds=wanted) - pool.chain_since > LONGEST_CHAIN:
            raise RequestRefusedError([_chain_too_long(pool, seconds=seconds)])
        try:
            self.deployment.training_jobs.keep_alive(pool.job_name, wanted)
        except (AwsRefusedError, JobNotFoundError) as error:
            pool = self._reconciled(pool)
            if pool.state is not PoolState.AVAILABLE:
                raise RequestRefusedError([_gone(pool)]) from error
            raise RequestRefusedError([_refused(pool, seconds=seconds, words=error.reason)]) from error
        return self._reconciled(pool)

    def stop(self, *, run: str) -> Pool:
        """End a run's pool now.

        Returns:
            The pool: over, or with the wish on its record for the next reconciliation.

        Raises:
            RequestRefusedError: There is no such pool.
            RunChangedError: The run kept changing under every try.
            AwsCallError: SageMaker could not answer.
        """

        def request() -> Pool:
            pool = self._available(run)
            if pool.asked_to_end is not None:
                return pool
            run_item, attempt = (
                self.deployment.table.runs.get(run),
                self.deployment.table.runs.attempt(run, pool.attempt),
            )
            if run_item is None or attempt is None:
                raise RunChangedError(run)
            self.deployment.table.runs.commit_pool(
                stop_requested(
                    run=run_item,
                    attempt=attempt,
                    pool=pool,
                    reason=PoolEndReason.STOPPED_BY_USER,
                    now=self.deployment.now(),
                )
            )
            return pool

        return self._reconciled(until_written(request))

    def _reconciled(self, pool: Pool) -> Pool:
        found = PoolReconciler(self.deployment).reconcile(run=pool.run, attempt=pool.attempt)
        return pool if found is None else found.pool

    def _available(self, run: str) -> Pool:
        """Return the run's pool, as SageMaker says now."""
        pools: Sequence[Pool] = self.deployment.table.pools.of_run(run)
        if not pools:
            raise RequestRefusedError([_no_pool(run)])
        pool = self._reconciled(pools[-1])
        if pool.state is not PoolState.AVAILABLE:
            raise RequestRefusedError([_gone(pool)])
        return pool


def _no_pool(run: str) -> Problem:
    return Problem(
        field="run",
        found=shown(run),
        problem="has left no warm pool",
        fix="See the pools there are: spotkeep pool ls. A job leaves one with capacity: on-demand and keep_alive.",
    )


def _gone(pool: Pool) -> Problem:
    became = {
        PoolState.REUSED: f"went to training job {pool.reused_by}",
        PoolState.NOT_KEPT: "was never kept: the account has no quota for it",
    }.get(pool.state, "is over")
    return Problem(
        field="run",
        found=shown(pool.run),
        problem=f"has no warm pool any more: it {became}",
        fix="See the pools there are: spotkeep pool ls",
    )


def _too_long(pool: Pool, *, seconds: int, wanted: int, longest: int) -> Problem:
    limit = (
        f"AWS documents {format_duration(longest)} as the longest"
        if longest == MAX_KEEP_ALIVE_SECONDS
        else f"this deployment allows {format_duration(longest)} (max_keep_alive_seconds)"
    )
    room = longest - pool.keep_alive_seconds
    fix = (
        f"Extend it by {format_duration(room)} at most, or run a job on it: its pool is kept anew."
        if room > 0
        else "Run a job on it: its pool is kept anew when that job ends."
    )
    return Problem(
        field="for",
        found=format_duration(seconds),
        problem=f"would make the keep-alive period {format_duration(wanted)}; {limit}",
        fix=fix,
    )


def _chain_too_long(pool: Pool, *, seconds: int) -> Problem:
    return Problem(
        field="for",
        found=format_duration(seconds),
        problem=f"would keep instances that run jobs since {pool.chain_since:%Y-%m-%d %H:%M} UTC for more than "
        f"{LONGEST_CHAIN.days} days, which AWS documents as the longest",
        fix="Let it end: the next job begins with new instances.",
    )


def _refused(pool: Pool, *, seconds: int, words: str) -> Problem:
    return Problem(
        field="for",
        found=format_duration(seconds),
        problem=f"was refused by SageMaker for the pool of {pool.job_name}: {words}",
        fix="Choose a shorter time, or run a job on the pool.",
    )
