"""The end of a deployment. All running work is ended before the functions that can end it are deleted.

CloudFormation sends a request when it deletes the stack, and waits for the answer. No function waits here until a
training job has saved its state. Instead the request is kept in the run table. Every pass of the controller asks all
live work to stop. The pass that finds nothing alive answers.

Nothing new begins while the request is recorded. The transactions that would open a run, an attempt, a sweep or a
schedule check for it (`DeploymentStore`). So the live work only decreases. The last check reads the whole table with
strong consistency, and so misses nothing. The request stays recorded after the answer, because the functions exist a
little longer. If the deployment stays or comes again, the record is cleared. CloudFormation's request clears it when
the resource is created or changed. A person may clear it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from spotkeep_jobs.errors import UnreadableRecordError, in_words, isolated
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.pools.warm_pool import stop_requested
from spotkeep_jobs.record.record import Pool, Run
from spotkeep_jobs.record.states import PoolEndReason, PoolState, SweepState
from spotkeep_jobs.record.sweep import Sweep
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.sweeps.actions import request_stop

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.record.deployment_records import StackRequest
    from spotkeep_jobs.settings import ControllerSettings
    from spotkeep_jobs.stack_deletion.stack_requests import Stacks

_FoundT = TypeVar("_FoundT")
_COUNTS_AS_ALIVE: Final = "It counts as alive, and `spotkeep help runbook destroy` says what to do"
WAITS: Final = timedelta(hours=1)
"""The time that CloudFormation waits for an answer (the longest ServiceTimeout). Then the deletion has failed."""


@dataclass(kw_only=True)
class Alive:
    """The work that still runs.

    The next pass asks again for each failure.

    Attributes:
        runs: Ids of runs that have not ended.
        sweeps: Ids of sweeps that were not asked to stop yet.
        pools: Names of the jobs that left warm pools.
        unreadable: Records that cannot be read, and so count as alive.
        failures: The work that could not be asked to stop, with the reasons.
    """

    runs: list[str] = field(default_factory=list)
    sweeps: list[str] = field(default_factory=list)
    pools: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def anything(self) -> bool:
        """True while anything runs, or may run."""
        return bool(self.runs or self.sweeps or self.pools or self.unreadable)


@dataclass(frozen=True)
class Shutdown:
    """Ends all running work when the deployment is deleted."""

    deployment: Deployment[ControllerSettings]
    stacks: Stacks

    def begin(self, request: StackRequest) -> bool:
        """Take CloudFormation's request. Answer it at once unless the stack is being deleted.

        An update may delete the resource alone, and then nothing has to end. A request to create or change the resource
        clears the record of an earlier deletion.

        Returns:
            True if the stack is being deleted, so that running work must end first.
        """
        try:
            leaves = request.kind == "Delete" and self.stacks.is_being_deleted(request.stack_id)
            if leaves:
                self.deployment.table.deployment.keep_deletion(request)
            elif request.kind != "Delete":
                self.deployment.table.deployment.forget_deletion()
        except Exception as error:
            # Without an answer CloudFormation would wait for an hour, and say no more than that there was no answer.
            again = "Destroy" if request.kind == "Delete" else "Deploy"
            self.stacks.answer(request, failed=f"{in_words(error)}. {again} the stack again")
            raise
        if not leaves:
            self.stacks.answer(request)
        return leaves

    def pending(self) -> StackRequest | None:
        """Return the deletion that waits for an answer, or None."""
        request = self.deployment.table.deployment.deletion()
        if request is None or request.answered_at is not None:
            return None
        if self.deployment.now() - request.asked_at > WAITS:
            # CloudFormation does not wait for it any more: it has failed. The next one asks anew.
            self.deployment.table.deployment.forget_deletion()
            return None
        return request

    def clear(self) -> str:
        """Let work begin again after a deletion that failed, because the deployment's operator asks for it.

        Returns:
            A sentence about the result, or the reason why nothing was done.
        """
        request = self.deployment.table.deployment.deletion()
        if request is None:
            return "no deletion of the deployment is recorded"
        if self.stacks.is_being_deleted(request.stack_id, still=True):
            return "CloudFormation is deleting the stack at this moment: wait until it has ended or failed"
        self.deployment.table.deployment.forget_deletion()
        return f"the deletion asked for at {request.asked_at:%Y-%m-%d %H:%M} UTC is cleared: work may begin again"

    def stop_everything(self) -> Alive:
        """Delete the record of each schedule. Ask each sweep, run and warm pool to end.

        Returns the work that was alive.
        """
        # What fires for a schedule that is not recorded does nothing; CloudFormation deletes it with its group.
        for schedule in self.deployment.table.schedules.ids():
            self.deployment.table.schedules.forget(schedule)
        return self._look(consistent=False, asks=True)

    def answer_if_over(self, request: StackRequest) -> Alive:
        """Answer CloudFormation if nothing runs any more, and return the work that still runs.

        Work that no index showed before is asked to stop.
        """
        alive = self._look(consistent=False, asks=False)
        if not alive.anything:
            alive = self._look(consistent=True, asks=True)
        if not alive.anything:
            self.stacks.answer(request)
            self.deployment.table.deployment.mark_deletion_answered(request, now=self.deployment.now())
        return alive

    def _look(self, *, consistent: bool, asks: bool) -> Alive:
        """Return the work that is alive. If `asks` is true, ask it to stop.

        The jobs of other clients go on without the deployment.
        """
        alive = Alive()
        found: list[Run | Sweep | Pool] = []
        for each in self.deployment.table.alive(consistent=consistent):
            if not isinstance(each, UnreadableRecordError):
                found.append(each)
            elif each.item.get("adopted") is not True:
                alive.unreadable.append(each.what)
                alive.failures[each.what] = f"{in_words(each)} {_COUNTS_AS_ALIVE}"
        sweeps = [sweep for sweep in _of(Sweep, found) if not sweep.state.ended]
        alive.sweeps = [sweep.sweep for sweep in sweeps if sweep.stop_requested_at is None]
        alive.runs = [run.run for run in _of(Run, found) if not run.adopted]
        pools = _of(Pool, found)
        alive.pools = [pool.job_name for pool in pools]
        if not asks:
            return alive
        # First those that would begin the next ones.
        for sweep in alive.sweeps:
            isolated(alive.failures, f"sweep {sweep}", partial(self._stop_sweep, sweep))
        for run in alive.runs:
            isolated(alive.failures, f"run {run}", partial(self._stop, run))
        for pool in pools:
            isolated(alive.failures, f"warm pool of {pool.job_name}", partial(self._end, pool))
        return alive

    def _stop(self, run: str) -> None:
        LaunchCompletion(self.deployment).stop(run)

    def _stop_sweep(self, sweep: str) -> None:
        item = self.deployment.table.sweeps.get(sweep)
        if item is not None:
            because = "the deployment is being deleted"
            request_stop(
                self.deployment.table, item, as_=SweepState.STOPPED, because=because, now=self.deployment.now()
            )

    def _end(self, seen: Pool) -> None:
        # The run first: a function that changes the pool afterwards changes its version.
        # An index may show a pool that is over.
        run = self.deployment.table.runs.get(seen.run)
        pool, attempt = (
            self.deployment.table.pools.get(seen.run, seen.attempt),
            self.deployment.table.runs.attempt(seen.run, seen.attempt),
        )
        if pool is None or pool.state is not PoolState.AVAILABLE:
            return
        if run is not None and attempt is not None and pool.asked_to_end is None:
            reason, now = PoolEndReason.STOPPED_BY_USER, self.deployment.now()
            self.deployment.table.runs.commit_pool(
                stop_requested(run=run, attempt=attempt, pool=pool, reason=reason, now=now)
            )
        PoolReconciler(self.deployment).reconcile(run=pool.run, attempt=pool.attempt)


def _of(kind: type[_FoundT], found: Iterable[object]) -> list[_FoundT]:
    return [each for each in found if isinstance(each, kind)]
