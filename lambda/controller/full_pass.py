"""A pass over everything in flight. It reconciles each run every few minutes, because events can be lost.

One broken run does not stop the others. Its error is kept, and raised with all other errors at the end of the pass. So
the function fails, and the alarm sees it.

A pass may have no time for everything. Then the next pass begins at the point where this one stopped. That holds for
each kind of thing, which are runs, quotas, sweeps and warm pools. The runs leave a part of the pass's time to each
other kind. No single run may use up that part. For example, a log is read for at most 20 seconds, and a run that keeps
changing is tried for at most 30. So each item has its turn within a bounded number of passes.

Two tasks are rarer, and come after the runs. Prices are read once a day, and orphans are collected once an hour.
Missing prices are no failure, because a deployment may work without AWS's price list.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.reconciliation import PassReport, write_metrics
from spotkeep_jobs.cost.prices import PricesNotReadError
from spotkeep_jobs.errors import SpotkeepJobsError, isolated
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.record.deployment_records import PassPlaces
from spotkeep_jobs.record.run_metrics import happened_between
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.runs.adoption import Adoption
from spotkeep_jobs.runs.launch_completion import LaunchCompletion, advance_quota, runs_by_quota
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.sweeps.launcher_function import launcher_of

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobSummary, JobView
    from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans
    from spotkeep_jobs.cost.prices import PriceList
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.orphans.collector import OrphanCollector
    from spotkeep_jobs.record.record import Pool, Run
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.runs.run_reconciler import ReconciledRun
    from spotkeep_jobs.settings import ControllerSettings

SEARCH_FROM: Final = 20
"""The number of runs in flight, or of pools, from which the pass searches for their jobs first.

A search answers for a hundred jobs at a time. Only then are single jobs described.
"""
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_AMPLE_SECONDS: Final = 3600.0
_LEFT_BY: Final[Mapping[str, float]] = {"runs": 0.4, "quotas": 0.3, "sweeps": 0.2, "pools": 0.1}
"""The share of a pass's time that must remain after each kind of item. A kind that needs less leaves more."""
_IN_A_REPORT: Final[Mapping[str, str]] = {
    "runs": "run {}", "quotas": "{}", "sweeps": "sweep {}", "pools": "warm pool of {}"
}  # fmt: skip


class PassFailedError(SpotkeepJobsError):
    """Some runs could not be reconciled. The others were."""

    def __init__(self, failures: dict[str, str]) -> None:
        listed = "; ".join(f"{what}: {why}" for what, why in failures.items())
        super().__init__(f"{len(failures)} of the pass's items failed and are tried again in the next one: {listed}")
        self.failures = failures


def in_turn(names: Iterable[str], *, after: str | None) -> list[str]:
    """Return names in the order of their turns.

    Args:
        names: In the order of a pass that has time for all.
        after: The last name that the previous pass had time for, or None if it had time for all.

    Returns:
        The names as they are given if `after` is None. Otherwise in alphabetical order, from the first name behind
        `after`, and around.
    """
    if after is None:
        return list(names)
    ordered = sorted(names)
    first = bisect.bisect_right(ordered, after)
    return [*ordered[first:], *ordered[:first]]


class _Turns:
    """Gives each item of a pass its turn while there is time. Records the item at which the next pass begins."""

    def __init__(self, table: RunTable, report: PassReport, *, seconds_left: Callable[[], float]) -> None:
        self._table = table
        self._report = report
        self._seconds_left = seconds_left
        self._whole = seconds_left()
        places = isolated(report.failures, "places of the last pass", table.deployment.pass_places)
        self._kept = dict(places.begun) if places is not None else {}
        self._begun = dict(self._kept)
        self._left: dict[str, list[str]] = {}
        # A function that dies leaves no place behind. Mostly a log did it: its run may do it again.
        self._may_end_function = table.runs.log_readings_begun() if "runs" in self._kept else frozenset()

    def take(self, kind: str, names: Collection[str], act: Callable[[str], object], *, goes_on: bool = False) -> int:
        """Act on each item that has its turn, one by one. Failures are added to the report.

        Args:
            kind: A key of `_LEFT_BY`.
            names: The names of the items, which also name a failure in the report.
            act: Acts on one item.
            goes_on: True to continue where this same pass stopped, with all the remaining time.

        Returns:
            The number of items that were left for the next pass.
        """
        share = 0.0 if goes_on else _LEFT_BY[kind]
        order = self._left.pop(kind, []) if goes_on else in_turn(names, after=self._begun.get(kind))
        for done, name in enumerate(order):
            left = self._seconds_left()
            # One has its turn in any case: the kind before may have used up more than its part.
            if left <= 0 or (left <= share * self._whole and (done or goes_on)):
                if done:
                    self._begun[kind] = order[done - 1]
                self._left[kind] = order[done:]
                return len(order) - done
            if kind == "runs" and name in self._may_end_function:
                self._keep({**self._begun, kind: name})
            isolated(self._report.failures, _IN_A_REPORT[kind].format(name), partial(act, name))
        self._begun.pop(kind, None)
        return 0

    def end(self) -> None:
        """Record the item at which the next pass begins."""
        if self._begun != self._kept:
            isolated(self._report.failures, "places of this pass", lambda: self._keep(self._begun))

    def _keep(self, begun: Mapping[str, str]) -> None:
        self._table.deployment.keep_pass_places(PassPlaces(begun=dict(begun)))
        self._kept = dict(begun)


@dataclass(frozen=True)
class FullPass:
    """Reconciles everything in flight, sends the notifications in the outbox, then reads prices and collects orphans.

    Attributes:
        deployment: The deployment.
        price_list: AWS's price list, or None to read no prices.
        orphans: The collector of orphans, or None to collect none.
        search_from: The number of runs in flight from which jobs are searched before any is described.
    """

    deployment: Deployment[ControllerSettings]
    price_list: PriceList | None = None
    orphans: OrphanCollector | None = None
    search_from: int = SEARCH_FROM

    def run(
        self,
        *,
        seconds_left: Callable[[], float] = lambda: _AMPLE_SECONDS,
        may_send: Callable[[], bool] = lambda: True,
    ) -> PassReport:
        """Reconcile everything in flight once, send the outbox's notifications, and do the other tasks that are due.

        With too few seconds left the pass stops reconciling, but still sends notifications. Notifications that it may
        not send go out in the next pass.

        Args:
            seconds_left: Returns the seconds left for the next item and all later work. Called before each item.
            may_send: Returns True if the next notification may be sent. Called before each notification.

        Returns:
            The report of the pass. It holds the failures and the records that could not be read. The caller raises
            `PassFailedError` when there are any.
        """
        report = PassReport()
        turns = _Turns(self.deployment.table, report, seconds_left=seconds_left)
        found: dict[str, JobView] = {}
        isolated(report.failures, "search of jobs", lambda: found.update(self._search_jobs()))
        self._adopt(report, found)
        in_flight = list(self.deployment.table.runs.in_flight())
        # A few runs are described, which costs no more calls and is never behind.
        in_progress = found if len(in_flight) >= self.search_from else {}
        take_run = partial(self._take_run, report, in_progress)
        report.left = turns.take("runs", in_flight, take_run)
        quotas = {
            f"quota of {runs[0].place.capacity} {runs[0].place.instance_type}": runs
            for runs in runs_by_quota(self.deployment, unreadable=report.failures)
        }
        report.others_left += turns.take("quotas", quotas, lambda name: self._advance(report, quotas[name]))
        report.others_left += turns.take(
            "sweeps", list(self.deployment.table.sweeps.in_flight()), launcher_of(self.deployment).advance
        )
        kept = {pool.job_name: pool for pool in self.deployment.table.pools.kept(unreadable=report.failures)}
        waiting: dict[str, JobSummary] = {}
        if len(kept) >= self.search_from:
            isolated(report.failures, "list of warm pools", lambda: waiting.update(self._list_pools(kept.values())))
        report.others_left += turns.take("pools", kept, lambda name: self._reconcile_pool(report, kept[name], waiting))
        if report.left:
            # What the others did not need.
            report.left = turns.take("runs", in_flight, take_run, goes_on=True)
        turns.end()
        # A deployment that removes nothing goes without: these orphans are removed, and not only reported.
        fleet_orphans = self.deployment.fleet_orphans if self.deployment.settings.orphans == "remove" else None
        if fleet_orphans is not None and seconds_left() > 0:
            isolated(report.failures, "fleets", partial(self._remove_orphans, report, fleet_orphans))
        isolated(report.failures, "outbox", lambda: self._send(report, may_send=may_send))
        write_metrics(report.metrics, deployment=self.deployment)
        if seconds_left() > 0:
            self.read_prices(report)
        if seconds_left() > 0:
            isolated(report.failures, "orphans", partial(self._collect_orphans, report, lambda: seconds_left() > 0))
        return report

    def _take_run(self, report: PassReport, in_progress: Mapping[str, JobView], run: str) -> None:
        as_recorded = self._as_recorded(run, in_progress) if in_progress else None
        if as_recorded is None:
            self._reconcile_run(report, run, in_progress)
            return
        report.runs += 1
        report.unchanged += 1
        report.states.append(as_recorded.state)

    def read_prices(self, report: PassReport) -> None:
        """Read AWS's prices, unless the known prices are less than a day old.

        Args:
            report: Receives each failure.
        """
        isolated(report.failures, "prices", partial(self._fetch_prices, report))

    def _fetch_prices(self, report: PassReport) -> None:
        if self.price_list is None:
            return
        try:
            self.deployment.prices.fetch(self.price_list, self.deployment.table, now=self.deployment.now())
        except PricesNotReadError as error:
            report.prices_unread = str(error)

    def _collect_orphans(self, report: PassReport, has_time: Callable[[], bool]) -> None:
        if self.orphans is not None:
            report.orphans = self.orphans.collect_if_due(has_time=has_time)

    def _adopt(self, report: PassReport, found: Mapping[str, JobView]) -> None:
        report.adopted = len(Adoption(self.deployment).adopt_found(found, failures=report.failures))

    def _search_jobs(self) -> dict[str, JobView]:
        return {job.name: job for job in self.deployment.training_jobs.search_in_progress(self.deployment.name)}

    def _list_pools(self, kept: Collection[Pool]) -> dict[str, JobSummary]:
        since = min(pool.kept_since for pool in kept) - _CLOCKS_DIFFER
        return {job.name: job for job in self.deployment.training_jobs.with_waiting_pool(since=since)}

    def _as_recorded(self, run: str, in_progress: Mapping[str, JobView]) -> Run | None:
        try:
            return RunReconciler(self.deployment).as_recorded(run, in_progress=in_progress)
        except Exception:  # noqa: BLE001 - the reconciliation that follows meets it again, and reports it
            return None

    def _reconcile_run(self, report: PassReport, run: str, in_progress: Mapping[str, JobView]) -> None:
        report.runs += 1
        reconciled = RunReconciler(self.deployment).reconcile(run, in_progress=in_progress)
        if reconciled is None:
            return
        report.changes += reconciled.changes
        report.happened.append(reconciled.happened)
        report.states.append(reconciled.run.state)
        if self._is_half_done(reconciled):
            completed = LaunchCompletion(self.deployment).complete(run)
            report.completed += 1
            report.happened.append(happened_between(reconciled.run, completed))
            report.states[-1] = completed.state

    def _advance(self, report: PassReport, runs: Sequence[Run]) -> None:
        for before, after in advance_quota(self.deployment, runs, unreadable=report.failures):
            report.completed += after.quota_wait is None
            report.happened.append(happened_between(before, after))

    def _is_half_done(self, reconciled: ReconciledRun) -> bool:
        """Return whether a launch did not get through to SageMaker and no function is at work on it any more.

        A run that waits for quota has its turn after the others, unless a user stops it. A record that this pass itself
        has just written is no sign of another function. An example is the notification of a long wait.
        """
        run = reconciled.run
        if run.quota_wait is not None and run.asked_to_end is None:
            return False
        settled = self.deployment.now() - reconciled.changed_before >= LAUNCH_SETTLES
        return not run.state.ended and run.job_id is None and settled

    def _reconcile_pool(self, report: PassReport, pool: Pool, waiting: Mapping[str, JobSummary]) -> None:
        """Also make schedules that were lost, and end a pool that is idle for too long."""
        report.pools += 1
        reconciled = PoolReconciler(self.deployment).as_recorded(pool, waiting=waiting)
        if reconciled is None:
            reconciled = PoolReconciler(self.deployment).reconcile(run=pool.run, attempt=pool.attempt)
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
        delivery = Outbox(self.deployment).deliver_all(has_time=may_send)
        report.notifications_sent = len(delivery.sent)
        report.notifications_dead = len(delivery.dead)
        for number, failure in enumerate(delivery.failures, start=1):
            report.failures[f"notification {number}"] = failure
