"""Prints a job's log: its own lines as they are, its events in words, progress kept to what is worth reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.following import Reported, SparseProgress
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.job_event import event_text
from spotkeep_cli.rendering.printable import coloured
from spotkeep_jobs.progress.job_events import JobEventKind

if TYPE_CHECKING:
    from rich.console import Console

    from spotkeep_cli.following import Update

_TROUBLE = frozenset(
    {
        *(JobEventKind.ENVIRONMENT_NOT_CACHED, JobEventKind.SAVE_FAILED, JobEventKind.FALLBACK, JobEventKind.PUT_ASIDE),
        *(JobEventKind.UPLOAD_FAILED, JobEventKind.UPLOAD_LATE, JobEventKind.NOT_IN_S3, JobEventKind.NOTICE),
        JobEventKind.EXIT_ON_NOTICE,
        *(JobEventKind.INSTANCE_SCRIPT_FAILED, JobEventKind.INSTANCE_FAILED),
    }
)
_STYLES = dict.fromkeys(_TROUBLE, "yellow") | dict.fromkeys(
    (JobEventKind.RESUME, JobEventKind.FINISH, JobEventKind.PAUSED), "green"
)
"""All other events are dim."""


class LogPrinter:
    """Prints log lines.

    Args:
        console: Where to.
        raw: Whether events are printed as they stand.
        hosts: How many hosts the run has; with several, each line says which wrote it.
    """

    def __init__(self, console: Console, *, raw: bool, hosts: int) -> None:
        self._console = console
        self._raw = raw
        self._hosts = hosts
        self.printed = 0
        self._sparse = SparseProgress()

    def show(self, update: Update) -> None:
        """Print an update, if it is for a log."""
        match update:
            case LogLine() as line:
                self._print(line, coloured(line.text))
            case Reported(line=line) if self._raw:
                self._print(line, coloured(line.text))
            case Reported(event=event) if event.kind is JobEventKind.PROGRESS and not self._sparse.worth_a_line(event):
                self.printed += 1
            case Reported(event=event, line=line):
                self._print(line, Text(f"spotkeep: {event_text(event)}", style=_STYLES.get(event.kind, "dim")))

    def _print(self, line: LogLine, text: Text) -> None:
        self.printed += 1
        if not self._raw:
            clock = quantities.moment(line.time).partition(" ")[2]
            host = f"{line.stream} " if self._hosts > 1 else ""
            text = Text.assemble((f"{clock} {host}", "dim"), text)
        self._console.print(text, soft_wrap=True, highlight=False)
