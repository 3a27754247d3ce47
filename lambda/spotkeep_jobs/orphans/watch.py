"""Asks every source for orphans, applies the rules, and keeps the last report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.record.orphan_findings import Finding, Handled, LookReport, Outcome, Rule

if TYPE_CHECKING:
    from spotkeep_jobs.orphans.sources import OrphanSource
    from spotkeep_jobs.record.run_table import RunTable

EVERY: Final = timedelta(hours=1)
MOST_KEPT: Final = 200
"""How many findings the last look keeps, the dearest first: an item of the table has 400 kB."""


class OrphanWatch:
    """Looks for orphans once an hour, however often it is called."""

    def __init__(
        self,
        *,
        table: RunTable,
        sources: Sequence[OrphanSource],
        removes: bool,
        clock: Callable[[], datetime],
        every: timedelta = EVERY,
    ) -> None:
        """Bind the watch.

        Args:
            table: Where the last look is kept.
            sources: What is looked at.
            removes: Whether the rules are applied; False only reports what they would do.
            clock: The time, aware.
            every: How often.
        """
        self._table = table
        self._sources = sources
        self._removes = removes
        self._clock = clock
        self._every = every

    def look_if_due(self, *, has_time: Callable[[], bool] = lambda: True) -> LookReport | None:
        """Looks for orphans, unless a function has in the last hour.

        Args:
            has_time: Asked before each source, and before each removal.

        Returns:
            What was found and done; None when it was not due.
        """
        seen, now = self._table.last_look(), self._clock()
        if seen is not None and now - seen.begun_at < self._every:
            return None
        begun = LookReport(begun_at=now, removes=self._removes)
        if not self._table.keep_look(begun, seen=seen):
            return None
        report = self._look(begun, has_time=has_time)
        self._table.keep_look(report, seen=begun)
        return report

    def _look(self, begun: LookReport, *, has_time: Callable[[], bool]) -> LookReport:
        handled: list[Handled] = []
        unreadable: dict[str, str] = {}
        for source in self._sources:
            if not has_time():
                unreadable[source.name] = "there was no time left for it"
                continue
            found, problem = look_at(source)
            if problem is not None:
                unreadable[source.name] = problem
            handled += [self._handle(source, finding, has_time=has_time) for finding in found]
        handled.sort(key=lambda each: each.finding.usd_per_hour or 0.0, reverse=True)
        return begun.model_copy(
            update={
                "handled": tuple(handled[:MOST_KEPT]),
                "left_out": max(0, len(handled) - MOST_KEPT),
                "unreadable": unreadable,
            }
        )

    def _handle(self, source: OrphanSource, finding: Finding, *, has_time: Callable[[], bool]) -> Handled:
        if finding.rule is not Rule.REMOVE or not finding.due or not has_time():
            return Handled(finding=finding, outcome=Outcome.REPORTED)
        if not self._removes:
            return Handled(finding=finding, outcome=Outcome.WOULD_REMOVE)
        try:
            source.remove(finding)
        except Exception as error:  # noqa: BLE001 - reported with the finding; the next look tries again
            return Handled(finding=finding, outcome=Outcome.FAILED, problem=_words(error))
        return Handled(finding=finding, outcome=Outcome.REMOVED)


def look_at(source: OrphanSource) -> tuple[Sequence[Finding], str | None]:
    """Ask one source; one that cannot be read does not keep the others from being asked.

    Returns:
        What it found, and why it could not look.
    """
    try:
        return source.findings(), None
    except Exception as error:  # noqa: BLE001 - reported with what the other sources found
        return (), _words(error)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
