"""Shows a followed run: its timeline and its log going by, and a progress bar below where there is a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from spotkeep_cli.following import Happened, Reported, Stands, Unreachable, Wrote
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.job_event import event_text, progress_text, total_steps
from spotkeep_cli.rendering.run_description import timeline_cells
from spotkeep_cli.rendering.sparse_progress import SparseProgress
from spotkeep_jobs.progress.job_events import JobEventKind
from spotkeep_jobs.record.states import TimelineKind

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from spotkeep_cli.following import Update
    from spotkeep_jobs.progress.job_events import JobEvent

_QUIET = frozenset(
    {
        *(JobEventKind.SAVED, JobEventKind.UPLOADED, JobEventKind.DOWNLOADED, JobEventKind.SCHEDULE),
        *(JobEventKind.START, JobEventKind.EXIT),
        *(JobEventKind.INSTANCE_LEAVING, JobEventKind.INSTANCE_FINISHED, JobEventKind.OUTPUT_SENT),
    }
)


class FollowView(AbstractContextManager["FollowView"]):
    """Shows updates as they come.

    Args:
        console: Where to.
        with_log: Whether the job's own lines are shown.
    """

    def __init__(self, console: Console, *, with_log: bool = True) -> None:
        self._console = console
        self._with_log = with_log
        self._unreachable = False
        self._sparse = SparseProgress()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(compact=True),
                console=console,
                transient=True,
                expand=True,
            )

    def __enter__(self) -> FollowView:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, update: Update) -> None:
        """Shows one update."""
        match update:
            case Happened(entry=entry) if entry.kind is TimelineKind.STEP_RESUMED:
                self._reachable_again()  # the job's own event said so already, and sooner
            case Happened(entry=entry):
                self._reachable_again()
                _, _, clock = quantities.moment(entry.at).partition(" ")
                when, mark, text = timeline_cells(entry, clock=clock)
                self._line(Text(" ").join([when, mark, text]))
            case Reported(event=event):
                self._reachable_again()
                self._show_event(event)
            case Wrote(line=line):
                if self._with_log:
                    self._line(Text(f"           {line.text}", style="dim"))
            case Unreachable(problem=problem):
                if not self._unreachable:
                    self._line(Text(f"  {problem}; the run goes on, trying again", style="yellow"))
                self._unreachable = True
            case Stands():
                self._reachable_again()

    def _show_event(self, event: JobEvent) -> None:
        if event.kind is JobEventKind.PROGRESS:
            self._show_progress(event)
        elif event.kind not in _QUIET:
            self._line(Text(f"           {event_text(event)}"))

    def _show_progress(self, event: JobEvent) -> None:
        step, total = event.step or 0, total_steps(event)
        if self._progress is not None:
            description = escape(progress_text(event))
            if self._task is None:
                self._task = self._progress.add_task(description, total=total)
            self._progress.update(self._task, description=description, completed=step, total=total)
            return
        if self._sparse.worth_a_line(event):
            self._line(Text(f"           {progress_text(event)}"))

    def _reachable_again(self) -> None:
        if self._unreachable:
            self._unreachable = False
            self._line(Text("  connected again", style="green"))

    def _line(self, text: Text) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)
