"""Follows a run to its end: what changed in the record and what the job wrote, as one stream of updates.

Reads only; whoever follows can leave and come back at any time. A connection lost on the way is waited out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from spotkeep_cli.errors import NoConnectionError, RunNotFoundError
from spotkeep_jobs.progress.job_events import JobEvent, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spotkeep_cli.deployment import Deployment, JobLog, LogLine
    from spotkeep_jobs.record.record import Run, TimelineEntry

LOST_CONNECTION_TRIES = 10
"""So many polls in a row may fail before following gives up; the run does not care."""


@dataclass(frozen=True, kw_only=True)
class Happened:
    """The record's timeline grew."""

    entry: TimelineEntry


@dataclass(frozen=True, kw_only=True)
class Wrote:
    """The job wrote a line of its own."""

    line: LogLine


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The job reported an event (progress, a saved checkpoint, ...)."""

    event: JobEvent
    line: LogLine


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A poll failed; following goes on."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class Stands:
    """Where the run stands now; given when its record changed, and last of all when it has ended."""

    run: Run


Update: TypeAlias = Happened | Wrote | Reported | Unreachable | Stands


def follow(
    deployment: Deployment,
    run: str,
    *,
    sleep: Callable[[float], None],
    poll_seconds: float,
    from_attempt: int = 1,
) -> Iterator[Update]:
    """Yields what happens to a run until it has ended and its log is read.

    Args:
        deployment: Where it runs.
        run: Its id.
        sleep: Waits.
        poll_seconds: How long between two looks.
        from_attempt: What happened in earlier attempts is left out.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many polls.
        RunNotFoundError: The run's record is gone.
    """
    poll = _Poll(deployment, run, from_attempt=from_attempt)
    failures = 0
    while True:
        try:
            updates, ended = poll.look()
            failures = 0
        except NoConnectionError as error:
            failures += 1
            if failures >= LOST_CONNECTION_TRIES:
                raise
            updates, ended = [Unreachable(problem=error.message)], False
        yield from updates
        if ended:
            return
        sleep(poll_seconds)


def read_lines(log: JobLog) -> list[Update]:
    """The new lines of a log, each as what it is."""
    return [
        Wrote(line=line) if event is None else Reported(event=event, line=line)
        for line, event in ((line, parse_line(line.text)) for line in log.read())
    ]


class _Poll:
    """What is known already, so that each look gives only what is new."""

    def __init__(self, deployment: Deployment, run: str, *, from_attempt: int) -> None:
        self._deployment = deployment
        self._run = run
        self._from_attempt = from_attempt
        self._seen_version: int | None = None
        self._seen_entries: set[tuple[object, int, str]] = set()
        self._log: JobLog | None = None
        self._log_of = ""

    def look(self) -> tuple[list[Update], bool]:
        """What is new, and whether that was all."""
        head = self._deployment.runs.get(self._run)
        if head is None:
            raise RunNotFoundError(f"the record of {self._run} is gone", hint="ended runs are forgotten after a while")
        # The log is read after the head: once the head says that the run ended, nothing more is written.
        updates: list[Update] = []
        changed = head.version != self._seen_version
        if changed:
            updates += self._new_entries()
        updates += self._new_lines(head)
        if changed or head.state.ended:
            updates.append(Stands(run=head))
        self._seen_version = head.version
        return updates, head.state.ended

    def _new_entries(self) -> list[Update]:
        new = []
        for entry in self._deployment.runs.timeline(self._run):
            key = (entry.at, entry.attempt, entry.kind.value)
            if entry.attempt >= self._from_attempt and key not in self._seen_entries:
                self._seen_entries.add(key)
                new.append(Happened(entry=entry))
        return list(new)

    def _new_lines(self, head: Run) -> list[Update]:
        remaining: list[Update] = []
        if self._log is None or self._log_of != head.job_name:
            if self._log is not None:
                remaining = read_lines(self._log)  # what the last attempt still wrote
            self._log, self._log_of = self._deployment.job_log(head.job_name, backend=head.backend), head.job_name
        return remaining + read_lines(self._log)
