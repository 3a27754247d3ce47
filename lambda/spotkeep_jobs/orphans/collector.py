"""Asks every source for orphans, applies the rules, and keeps the last report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.errors import in_words
from spotkeep_jobs.orphans.sources import Found, OrphanSearch, sources_of
from spotkeep_jobs.record.deployment_records import Handled, OrphanOutcome, OrphanReport, OrphanRule
from spotkeep_jobs.record.fields import with_changes

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.orphans.sources import OrphanSource, PossibleOrphan
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.settings import ControllerSettings

EVERY: Final = timedelta(hours=1)
MOST_KEPT: Final = 100
"""The most findings that a report keeps, the most expensive first. An item of the DynamoDB table holds 400 kB."""
MOST_UNREADABLE: Final = 30
"""The most unreadable things that a report names, whole kinds first."""


def orphan_collector(deployment: Deployment[ControllerSettings]) -> OrphanCollector:
    """Return the collector of a deployment's orphans, which asks every source."""
    settings, prices = deployment.settings, deployment.prices
    search = OrphanSearch(
        table=deployment.table,
        deployment=deployment.name,
        prices=prices,
        s3_usd_per_gigabyte_month=lambda: prices.storage.s3_standard,
        clock=deployment.now,
    )
    sources = sources_of(
        around=search,
        jobs=deployment.training_jobs,
        s3=deployment.clients.s3,
        checkpoint_bucket=settings.checkpoint_bucket,
        isolated_teams=settings.isolated_teams,
        fleets=deployment.fleet_orphans,
        queues=deployment.queues,
        queue_names=tuple(settings.queues),
    )
    removes = settings.orphans == "remove"
    return OrphanCollector(table=deployment.table, sources=sources, removes=removes, clock=deployment.now)


@dataclass(frozen=True, kw_only=True)
class OrphanCollector:
    """Makes a pass over orphans once an hour, however often it is called.

    Attributes:
        table: The run table, which keeps the last report.
        sources: The sources by name.
        removes: True to apply the rules, False only to report their effects.
        clock: Returns the time, aware.
        every: The time from one pass to the next.
    """

    table: RunTable
    sources: Mapping[str, OrphanSource]
    removes: bool
    clock: Callable[[], datetime]
    every: timedelta = EVERY

    def collect_if_due(self, *, has_time: Callable[[], bool] = lambda: True) -> OrphanReport | None:
        """Make a pass, unless one was begun in the last hour.

        Args:
            has_time: Returns True while there is time left. Called before each source, and before each removal.

        Returns:
            The findings and removals, or None when the pass was not due.
        """
        last, now = self.table.deployment.last_orphan_report(), self.clock()
        if last is not None and now - last.begun_at < self.every:
            return None
        looked_to = {} if last is None else last.looked_to
        begun = OrphanReport(begun_at=now, removes=self.removes, looked_to=looked_to)
        if not self.table.deployment.keep_orphan_report(begun, replaces=last):
            return None
        report = self._collect(begun, has_time=has_time)
        self.table.deployment.keep_orphan_report(report, replaces=begun)
        return report

    def _collect(self, begun: OrphanReport, *, has_time: Callable[[], bool]) -> OrphanReport:
        handled: list[Handled] = []
        unreadable: dict[str, str] = {}
        things: dict[str, str] = {}
        looked_to = dict(begun.looked_to)
        for name, source in self.sources.items():
            if not has_time():
                unreadable[name] = "there was no time left for it"
                continue
            found, problem = ask(source, after=looked_to.pop(name, None))
            if problem is not None:
                unreadable[name] = problem
            things.update(found.unreadable)
            if found.looked_to is not None:
                looked_to[name] = found.looked_to
            handled += [self._handle(each, has_time=has_time) for each in found.orphans]
        handled.sort(key=lambda each: each.finding.usd_per_hour or 0.0, reverse=True)
        return with_changes(
            begun,
            handled=tuple(handled[:MOST_KEPT]),
            left_out=max(0, len(handled) - MOST_KEPT),
            unreadable=dict(islice((unreadable | things).items(), MOST_UNREADABLE)),
            looked_to=looked_to,
        )

    def _handle(self, orphan: PossibleOrphan, *, has_time: Callable[[], bool]) -> Handled:
        finding = orphan.finding
        if finding.rule is not OrphanRule.REMOVE or orphan.remove is None or not finding.due or not has_time():
            return Handled(finding=finding, outcome=OrphanOutcome.REPORTED)
        if not self.removes:
            return Handled(finding=finding, outcome=OrphanOutcome.WOULD_REMOVE)
        try:
            orphan.remove()
        except Exception as error:  # noqa: BLE001 - reported with the finding; the next pass tries again
            return Handled(finding=finding, outcome=OrphanOutcome.FAILED, problem=in_words(error))
        return Handled(finding=finding, outcome=OrphanOutcome.REMOVED)


def ask(source: OrphanSource, *, after: str | None) -> tuple[Found, str | None]:
    """Ask one source. A source that cannot be read does not stop the others.

    Args:
        source: The source.
        after: The last thing that the previous pass examined, or None to begin.

    Returns:
        The findings of the source, and the reason if it could not be read.
    """
    try:
        return source(after), None
    except Exception as error:  # noqa: BLE001 - reported with what the other sources found
        return Found(looked_to=after), in_words(error)
