"""The sweep: events can be lost, so every few minutes what is in flight is looked at as if each had sent one.

One broken run does not stop the others: its error is kept, and raised with all the others when the sweep is over, so
that the function fails and the alarm sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.record.run_metrics import RunMetrics, happened_between, in_flight_now, total
from spotkeep_jobs.record.states import PoolState, RunState
from spotkeep_jobs.runs.launch_completion import LAUNCH_SETTLES

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.sweep import Swept
    from spotkeep_jobs.backends.job_view import JobSummary, JobView
    from spotkeep_jobs.backends.sagemaker.api import TrainingJobs
    from spotkeep_jobs.notifications.outbox import Outbox
    from spotkeep_jobs.pools.pool_watch import PoolWatch
    from spotkeep_jobs.record.record import Pool, Run
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.runs.metric_log import MetricLog
    from spotkeep_jobs.runs.reconcile import Observation, RunObserver


SEARCH_FROM: Final = 20
"""With so many runs in flight, or pools, what happened to them is asked a hundred at a time before any is described."""
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


class LaunchCompleter(Protocol):
    """The seam to `launch`: finishes what a launcher that died left half done."""

    def __call__(self, run: str, /) -> Run:
        """Create the job of the run's current attempt, find that it exists, stop it, or end the run."""
        ...


class SweepFailedError(SpotkeepJobsError):
    """Some runs could not be reconciled; the others were."""

    def __init__(self, failures: dict[str, str]) -> None:
        listed = "; ".join(f"{what}: {why}" for what, why in failures.items())
        super().__init__(f"{len(failures)} of the sweep's items failed and are tried again in the next one: {listed}")
        self.failures = failures


@dataclass(kw_only=True)
class Sweep:
    """What one sweep did.

    Attributes:
        runs: How many runs were looked at.
        unchanged: Of how many of them the search of jobs said that nothing has happened.
        changes: How many changes were written.
        completed: How many half-done launches were finished.
        pools: How many warm pools were looked at.
        notifications_sent: How many notifications went out.
        notifications_dead: How many were refused for the last time.
        left: How many runs there was no time for; the next sweep begins with them.
        swept_away: How many fleets, volumes and snapshots that are not needed were deleted.
        failures: What failed, and why.
        happened: What its changes add to the deployment's metrics.
        states: Where the runs that were looked at are.
        kept: The warm pools that are there.
    """

    runs: int = 0
    unchanged: int = 0
    changes: int = 0
    completed: int = 0
    pools: int = 0
    notifications_sent: int = 0
    notifications_dead: int = 0
    left: int = 0
    swept_away: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    happened: list[RunMetrics] = field(default_factory=list)
    states: list[RunState] = field(default_factory=list)
    kept: list[Pool] = field(default_factory=list)

    @property
    def metrics(self) -> RunMetrics:
        """What it adds to the deployment's metrics, and what it saw."""
        return {**total(self.happened), **in_flight_now(self.states, self.kept)}


class Reconciler:
    """Sweeps over what is in flight."""

    def __init__(
        self,
        *,
        deployment: str,
        table: RunTable,
        observer: RunObserver,
        pools: PoolWatch,
        jobs: TrainingJobs,
        outbox: Outbox,
        complete_launch: LaunchCompleter,
        clock: Callable[[], datetime],
        metric_log: MetricLog,
        search_from: int = SEARCH_FROM,
        sweep_fleets: Callable[[], Swept] | None = None,
    ) -> None:
        self._sweep_fleets = sweep_fleets
        self._deployment = deployment
        self._table = table
        self._observer = observer
        self._pools = pools
        self._jobs = jobs
        self._outbox = outbox
        self._complete_launch = complete_launch
        self._clock = clock
        self._metric_log = metric_log
        self._search_from = search_from

    def sweep(
        self, *, has_time: Callable[[], bool] = lambda: True, may_send: Callable[[], bool] = lambda: True
    ) -> Sweep:
        """Look at everything in flight once, then send what the outbox holds, and write what was seen into the metrics.

        Args:
            has_time: Asked before each item; False ends the looking, not the sending.
            may_send: Asked before each notification; False leaves the rest to the next sweep.

        Returns:
            What was done. Failures are in it: the caller raises `SweepFailedError` when there are any.
        """
        sweep = Sweep()
        in_flight = list(self._table.in_flight())
        in_progress: dict[str, JobView] = {}
        if len(in_flight) >= self._search_from:
            self._isolated(sweep, "search of jobs", lambda: in_progress.update(self._search_jobs()))
        for run in in_flight:
            if not has_time():
                sweep.left += 1
                continue
            as_recorded = self._as_recorded(run, in_progress) if in_progress else None
            if as_recorded is not None:
                sweep.runs += 1
                sweep.unchanged += 1
                sweep.states.append(as_recorded.state)
                continue
            self._isolated(sweep, f"run {run}", partial(self._reconcile, sweep, run, in_progress))
        kept = list(self._table.kept_pools())
        waiting: dict[str, JobSummary] = {}
        if len(kept) >= self._search_from:
            self._isolated(sweep, "list of warm pools", lambda: waiting.update(self._list_pools(kept)))
        for pool in kept:
            if has_time():
                look_at = partial(self._look_at_pool, sweep, pool, waiting)
                self._isolated(sweep, f"warm pool of {pool.job_name}", look_at)
        if self._sweep_fleets is not None and has_time():
            self._isolated(sweep, "fleets", partial(self._sweep_away, sweep, self._sweep_fleets))
        self._isolated(sweep, "outbox", lambda: self._send(sweep, may_send=may_send))
        self._metric_log.write(sweep.metrics)
        return sweep

    def _search_jobs(self) -> dict[str, JobView]:
        return {job.name: job for job in self._jobs.search_in_progress(self._deployment)}

    def _list_pools(self, kept: Sequence[Pool]) -> dict[str, JobSummary]:
        since = min(pool.kept_since for pool in kept) - _CLOCKS_DIFFER
        return {job.name: job for job in self._jobs.with_waiting_pool(since=since)}

    def _as_recorded(self, run: str, in_progress: Mapping[str, JobView]) -> Run | None:
        try:
            return self._observer.as_recorded(run, in_progress=in_progress)
        except Exception:  # noqa: BLE001 - the look that follows meets it again, and tells it
            return None

    def _reconcile(self, sweep: Sweep, run: str, in_progress: Mapping[str, JobView]) -> None:
        sweep.runs += 1
        observed = self._observer.observe(run, in_progress=in_progress)
        if observed is None:
            return
        sweep.changes += observed.changes
        sweep.happened.append(observed.happened)
        sweep.states.append(observed.run.state)
        if self._is_half_done(observed):
            completed = self._complete_launch(run)
            sweep.completed += 1
            sweep.happened.append(happened_between(observed.run, completed))
            sweep.states[-1] = completed.state

    def _is_half_done(self, observed: Observation) -> bool:
        """Whether a launch did not get through to SageMaker and no function is at work on it any more."""
        run = observed.run
        return not run.state.ended and run.job_arn is None and self._clock() - run.updated_at >= LAUNCH_SETTLES

    def _look_at_pool(self, sweep: Sweep, pool: Pool, waiting: Mapping[str, JobSummary]) -> None:
        """Also makes schedules that were lost, and ends a pool that is idle for too long."""
        sweep.pools += 1
        look = self._pools.as_recorded(pool, waiting=waiting) or self._pools.look(run=pool.run, attempt=pool.attempt)
        if look is None:
            return
        sweep.changes += look.changes
        sweep.happened.append(look.happened)
        if look.pool.state is PoolState.AVAILABLE:
            sweep.kept.append(look.pool)

    @staticmethod
    def _sweep_away(sweep: Sweep, sweep_fleets: Callable[[], Swept]) -> None:
        swept = sweep_fleets()
        sweep.swept_away += len(swept.deleted) + len(swept.fleets)
        sweep.failures.update(swept.failures)

    def _send(self, sweep: Sweep, *, may_send: Callable[[], bool]) -> None:
        delivery = self._outbox.deliver_all(has_time=may_send)
        sweep.notifications_sent = len(delivery.sent)
        sweep.notifications_dead = len(delivery.dead)
        for number, failure in enumerate(delivery.failures, start=1):
            sweep.failures[f"notification {number}"] = failure

    @staticmethod
    def _isolated(sweep: Sweep, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - kept, reported with the rest, and raised by the caller
            sweep.failures[what] = f"{type(error).__name__}: {error}"
