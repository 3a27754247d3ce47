"""The end of a deployment: what its runs still have running is ended before the functions that could go.

CloudFormation asks when it deletes the stack, and waits. No function waits here for a training to save: the request is
kept in the run table, every pass asks whatever lives to stop, and the pass that finds nothing alive answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.errors import in_words, isolated
from spotkeep_jobs.pools.warm_pool import stop_requested
from spotkeep_jobs.record.states import PoolEndReason, SweepState
from spotkeep_jobs.sweeps.actions import request_stop

if TYPE_CHECKING:
    from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
    from spotkeep_jobs.record.deployment_records import StackRequest
    from spotkeep_jobs.record.record import Pool
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.runs.launch_completion import LaunchCompletion
    from spotkeep_jobs.stack_deletion.stack_requests import Stacks

WAITS: Final = timedelta(hours=1)
"""How long CloudFormation waits for an answer (the longest ServiceTimeout); then the deletion has failed."""


@dataclass(kw_only=True)
class Alive:
    """What still runs.

    Attributes:
        runs: Ids of runs that have not ended.
        pools: Names of the jobs that left warm pools.
        failures: What could not be asked to stop, and why; the next pass asks again.
    """

    runs: list[str] = field(default_factory=list)
    pools: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def anything(self) -> bool:
        """Whether anything runs."""
        return bool(self.runs or self.pools)


class Shutdown:
    """Ends what runs when the deployment is deleted."""

    def __init__(
        self,
        *,
        table: RunTable,
        pools: PoolReconciler,
        completion: LaunchCompletion,
        stacks: Stacks,
        clock: Callable[[], datetime],
    ) -> None:
        self._table = table
        self._pools = pools
        self._completion = completion
        self._stacks = stacks
        self._clock = clock

    def begin(self, request: StackRequest) -> bool:
        """Take CloudFormation's request.

        Returns:
            Whether there is something to end first. Else the request is answered: nothing is to be done when the
            resource is made or changed, nor when it alone is deleted, by an update that has it no more.
        """
        try:
            leaves = request.kind == "Delete" and self._stacks.is_being_deleted(request.stack_id)
            if leaves:
                self._table.keep_deletion(request)
        except Exception as error:
            # Without an answer CloudFormation would wait for an hour, and say no more than that there was no answer.
            self._stacks.answer(request, failed=f"{in_words(error)}. Destroy the stack again")
            raise
        if not leaves:
            self._stacks.answer(request)
        return leaves

    def pending(self) -> StackRequest | None:
        """Return the deletion that waits for an answer, or None."""
        request = self._table.deletion()
        if request is None:
            return None
        if self._clock() - request.asked_at > WAITS:
            # CloudFormation does not wait for it any more; the next deletion of the stack asks anew.
            self._table.forget_deletion()
            return None
        return request

    def stop_everything(self) -> Alive:
        """Forget each schedule; ask each sweep and run to stop, and each warm pool to end. Gives what was alive."""
        alive = Alive(runs=self._own_runs())
        # What fires for a schedule that is not recorded does nothing; CloudFormation deletes it with its group.
        for schedule in self._table.schedules():
            self._table.forget_schedule(schedule.schedule)
        # First those that would begin the next ones.
        for sweep in list(self._table.sweeps_in_flight()):
            isolated(alive.failures, f"sweep {sweep}", partial(self._stop_sweep, sweep))
        for run in alive.runs:
            isolated(alive.failures, f"run {run}", partial(self._stop, run))
        for pool in list(self._table.kept_pools()):
            alive.pools.append(pool.job_name)
            isolated(alive.failures, f"warm pool of {pool.job_name}", partial(self._end, pool))
        return alive

    def answer_if_over(self, request: StackRequest) -> Alive:
        """Answer when nothing runs any more. Gives what does."""
        alive = Alive(runs=self._own_runs(), pools=[pool.job_name for pool in self._table.kept_pools()])
        if not alive.anything:
            self._stacks.answer(request)
            self._table.forget_deletion()
        return alive

    def _own_runs(self) -> list[str]:
        """Return the runs in flight that the deployment launched. The jobs of other clients go on without it."""
        return [run.run for run in self._table.run_items_in_flight() if not run.adopted]

    def _stop(self, run: str) -> None:
        self._completion.stop(run)

    def _stop_sweep(self, sweep: str) -> None:
        item = self._table.sweep(sweep)
        if item is not None:
            because = "the deployment is being deleted"
            request_stop(self._table, item, as_=SweepState.STOPPED, because=because, now=self._clock())

    def _end(self, pool: Pool) -> None:
        run, attempt = self._table.get(pool.run), self._table.attempt(pool.run, pool.attempt)
        if run is not None and attempt is not None and pool.stop_requested_at is None:
            reason, now = PoolEndReason.STOPPED_BY_USER, self._clock()
            self._table.commit_pool(stop_requested(run=run, attempt=attempt, pool=pool, reason=reason, now=now))
        self._pools.reconcile(run=pool.run, attempt=pool.attempt)
