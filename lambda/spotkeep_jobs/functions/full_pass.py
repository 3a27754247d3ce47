"""A pass over everything in flight: events can be lost, so every few minutes each run is reconciled without one.

One broken run does not stop the others: its error is kept, and raised with all the others when the pass is over, so
that the function fails and the alarm sees it.

Two things have a pace of their own, and come after the runs: prices are read once a day, orphans collected once an
hour. Prices that AWS does not give are no failure: a deployment may work without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.cost.price_list import PricesNotReadError
from spotkeep_jobs.errors import SpotkeepJobsError, isolated
from spotkeep_jobs.record.run_metrics import RunMetrics, happened_between, in_flight_now, total
from spotkeep_jobs.record.states import PoolState, RunState
from spotkeep_jobs.runs.launch_completion import LAUNCH_SETTLES

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans
    from spotkeep_jobs.backends.job_view import JobSummary, JobView
    from spotkeep_jobs.cost.price_list import PriceList
    from spotkeep_jobs.functions.controller_parts import ControllerParts
    from spotkeep_jobs.orphans.collector import OrphanCollector
    from spotkeep_jobs.record.orphan_report import OrphanReport
    from spotkeep_jobs.record.record import Pool, Run
    from spotkeep_jobs.runs.run_reconciler import ReconciledRun

SEARCH_FROM: Final = 20
"""With so many runs in flight, or pools, what happened to them is asked a hundred at a time before any is described."""
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


class PassFailedError(SpotkeepJobsError):
    """Some runs could not be reconciled; the others were."""

    def __init__(self, failures: dict[str, str]) -> None:
        listed = "; ".join(f"{what}: {why}" for what, why in failures.items())
        super().__init__(f"{len(failures)} of the pass's items failed and are tried again in the next one: {listed}")
        self.failures = failures


@dataclass(kw_only=True)
class PassReport:
    """What one pass did.

    Attributes:
        runs: How many runs were reconciled.
        adopted: How many jobs of other clients became runs.
        unchanged: How many of them the search of jobs showed unchanged.
        changes: How many changes were written.
        completed: How many half-done launches were finished.
        pools: How many warm pools were reconciled.
        notifications_sent: How many notifications went out.
        notifications_dead: How many were refused for the last time.
        left: How many runs there was no time for; the next pass begins with them.
        orphans_removed: How many fleets, volumes and snapshots that are not needed were deleted.
        failures: What failed, and why.
        happened: What its changes add to the deployment's metrics.
        states: The states of the runs that were reconciled.
        kept: The warm pools that are there.
        prices_unread: Why AWS could not give its prices; bills then say that a price is not known.
        orphans: What the pass over orphans found; None when it was not due.
    """

    runs: int = 0
    adopted: int = 0
    unchanged: int = 0
    changes: int = 0
    completed: int = 0
    pools: int = 0
    notifications_sent: int = 0
    notifications_dead: int = 0
    left: int = 0
    orphans_removed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    happened: list[RunMetrics] = field(default_factory=list)
    states: list[RunState] = field(default_factory=list)
    kept: list[Pool] = field(default_factory=list)
    prices_unread: str | None = None
    orphans: OrphanReport | None = None

    @property
    def metrics(self) -> RunMetrics:
        """What it adds to the deployment's metrics, and what it saw."""
        return {**total(self.happened), **in_flight_now(self.states, self.kept)}


class FullPass:
    """Reconciles everything in flight, sends what the outbox holds, then reads prices and collects orphans."""

    def __init__(
        self,
        parts: ControllerParts,
        *,
        price_list: PriceList | None = None,
        orphans: OrphanCollector | None = None,
        search_from: int = SEARCH_FROM,
    ) -> None:
        """Bind the parts.

        Args:
            parts: The controller's.
            price_list: AWS's; None to read none.
            orphans: Collects orphans; None to collect none.
            search_from: With so many runs in flight, jobs are searched before any is described.
        """
        self._parts = parts
        self._table = parts.table
        self._price_list = price_list
        self._orphans = orphans
        self._search_from = search_from

    def run(
        self, *, has_time: Callable[[], bool] = lambda: True, may_send: Callable[[], bool] = lambda: True
    ) -> PassReport:
        """Reconcile everything in flight once, send what the outbox holds, and do what else is due.

        Args:
            has_time: Asked before each item; False ends the reconciling, not the sending.
            may_send: Asked before each notification; False leaves the rest to the next pass.

        Returns:
            What was done. Failures are in it: the caller raises `PassFailedError` when there are any.
        """
        report = PassReport()
        found: dict[str, JobView] = {}
        isolated(report.failures, "search of jobs", lambda: found.update(self._search_jobs()))
        self._adopt(report, found)
        in_flight = list(self._table.in_flight())
        # A few runs are described, which costs no more calls and is never behind.
        in_progress = found if len(in_flight) >= self._search_from else {}
        for run in in_flight:
            if not has_time():
                report.left += 1
                continue
            as_recorded = self._as_recorded(run, in_progress) if in_progress else None
            if as_recorded is not None:
                report.runs += 1
                report.unchanged += 1
                report.states.append(as_recorded.state)
                continue
            isolated(report.failures, f"run {run}", partial(self._reconcile_run, report, run, in_progress))
        for runs in self._parts.quota_queue.quotas():
            if has_time():
                quota = f"quota of {runs[0].capacity} {runs[0].instance_type}"
                isolated(report.failures, quota, partial(self._advance, report, runs))
        for sweep in self._table.sweeps_in_flight():
            if has_time():
                isolated(report.failures, f"sweep {sweep}", partial(self._parts.launcher_function.advance, sweep))
        kept = list(self._table.kept_pools())
        waiting: dict[str, JobSummary] = {}
        if len(kept) >= self._search_from:
            isolated(report.failures, "list of warm pools", lambda: waiting.update(self._list_pools(kept)))
        for pool in kept:
            if has_time():
                reconcile = partial(self._reconcile_pool, report, pool, waiting)
                isolated(report.failures, f"warm pool of {pool.job_name}", reconcile)
        if self._parts.fleet_orphans is not None and has_time():
            isolated(report.failures, "fleets", partial(self._remove_orphans, report, self._parts.fleet_orphans))
        isolated(report.failures, "outbox", lambda: self._send(report, may_send=may_send))
        self._parts.metric_log.write(report.metrics)
        if has_time():
            self.read_prices(report)
        if has_time():
            isolated(report.failures, "orphans", partial(self._collect_orphans, report, has_time))
        return report

    def read_prices(self, report: PassReport) -> None:
        """Read AWS's prices, unless those that are known are of the last day.

        Args:
            report: Where it is said what failed.
        """
        isolated(report.failures, "prices", partial(self._fetch_prices, report))

    def _fetch_prices(self, report: PassReport) -> None:
        if self._price_list is None:
            return
        try:
            self._parts.prices.fetch(self._price_list, self._table, now=self._parts.clock())
        except PricesNotReadError as error:
            report.prices_unread = str(error)

    def _collect_orphans(self, report: PassReport, has_time: Callable[[], bool]) -> None:
        if self._orphans is not None:
            report.orphans = self._orphans.collect_if_due(has_time=has_time)

    def _adopt(self, report: PassReport, found: Mapping[str, JobView]) -> None:
        report.adopted = len(self._parts.adoption.adopt_found(found, failures=report.failures))

    def _search_jobs(self) -> dict[str, JobView]:
        return {job.name: job for job in self._parts.jobs.search_in_progress(self._parts.deployment.name)}

    def _list_pools(self, kept: Sequence[Pool]) -> dict[str, JobSummary]:
        since = min(pool.kept_since for pool in kept) - _CLOCKS_DIFFER
        return {job.name: job for job in self._parts.jobs.with_waiting_pool(since=since)}

    def _as_recorded(self, run: str, in_progress: Mapping[str, JobView]) -> Run | None:
        try:
            return self._parts.runs.as_recorded(run, in_progress=in_progress)
        except Exception:  # noqa: BLE001 - the reconciliation that follows meets it again, and reports it
            return None

    def _reconcile_run(self, report: PassReport, run: str, in_progress: Mapping[str, JobView]) -> None:
        report.runs += 1
        reconciled = self._parts.runs.reconcile(run, in_progress=in_progress)
        if reconciled is None:
            return
        report.changes += reconciled.changes
        report.happened.append(reconciled.happened)
        report.states.append(reconciled.run.state)
        if self._is_half_done(reconciled):
            completed = self._parts.completion.complete(run)
            report.completed += 1
            report.happened.append(happened_between(reconciled.run, completed))
            report.states[-1] = completed.state

    def _advance(self, report: PassReport, runs: Sequence[Run]) -> None:
        for before, after in self._parts.quota_queue.advance(runs):
            report.completed += after.quota_wait is None
            report.happened.append(happened_between(before, after))

    def _is_half_done(self, reconciled: ReconciledRun) -> bool:
        """Return whether a launch did not get through to SageMaker and no function is at work on it any more.

        A run that waits for quota has its turn after the others, when its user does not stop it. What this pass itself
        has just written, a notification of a long wait for example, is no sign of another function.
        """
        run = reconciled.run
        if run.quota_wait is not None and run.stop_requested_at is None:
            return False
        settled = self._parts.clock() - reconciled.changed_before >= LAUNCH_SETTLES
        return not run.state.ended and run.job_arn is None and settled

    def _reconcile_pool(self, report: PassReport, pool: Pool, waiting: Mapping[str, JobSummary]) -> None:
        """Also make schedules that were lost, and end a pool that is idle for too long."""
        report.pools += 1
        reconciled = self._parts.pools.as_recorded(pool, waiting=waiting)
        if reconciled is None:
            reconciled = self._parts.pools.reconcile(run=pool.run, attempt=pool.attempt)
        if reconciled is None:
            return
        report.changes += reconciled.changes
        report.happened.append(reconciled.happened)
        if reconciled.pool.state is PoolState.AVAILABLE:
            report.kept.append(reconciled.pool)

    @staticmethod
    def _remove_orphans(report: PassReport, fleet_orphans: FleetOrphans) -> None:
        removed = fleet_orphans.remove_all()
        report.orphans_removed += len(removed.storage) + len(removed.fleets)
        report.failures.update(removed.failures)

    def _send(self, report: PassReport, *, may_send: Callable[[], bool]) -> None:
        delivery = self._parts.outbox.deliver_all(has_time=may_send)
        report.notifications_sent = len(delivery.sent)
        report.notifications_dead = len(delivery.dead)
        for number, failure in enumerate(delivery.failures, start=1):
            report.failures[f"notification {number}"] = failure
