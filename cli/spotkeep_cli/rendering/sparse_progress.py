"""Keeps progress readable in a log: a job may report every step, a person wants a line each tenth of the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_cli.rendering.job_event import total_steps

if TYPE_CHECKING:
    from spotkeep_jobs.progress.job_events import JobEvent

_SHARES = 10


class SparseProgress:
    """Decides which progress events are worth a line.

    The first one, one each tenth of the way, the first after going back, and the last. Where the job does not say how
    many steps it has, every one: it reports them at most every few seconds.
    """

    def __init__(self) -> None:
        self._last_share: int | None = None

    def worth_a_line(self, event: JobEvent) -> bool:
        """Whether to show a progress event; each is asked about once, in order."""
        total = total_steps(event)
        if total is None:
            return True
        share = (event.step or 0) * _SHARES // total
        new = share != self._last_share
        self._last_share = share
        return new
