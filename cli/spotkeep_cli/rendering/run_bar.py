"""The bar of a run that is at work, with its state, its steps, its times and the last words of its script."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.job_event import metrics_text, total_steps
from spotkeep_cli.rendering.lists import state_text
from spotkeep_cli.rendering.printable import coloured, printable_line
from spotkeep_jobs.progress.job_events import JobEventKind
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from types import TracebackType

    from rich.console import Console, RenderableType

    from spotkeep_jobs.progress.job_events import JobEvent
    from spotkeep_jobs.record.record import Run

_LONGEST_TEXT = 200
_REDRAWN_A_SECOND = 4


@dataclass
class RunStatus:
    """The facts that the bar of a run shows. They come from its record, its job's events and its job's lines.

    Attributes:
        state: The state of the run, such as `training`. None before its record was read.
        since: The time since which it has been at work, has waited for its first instances, or shall end because a user
            asked for it. None of a run that ends for another reason.
        until: The time of its end. None before that.
        step: Completed steps. None where the script reports none.
        total: Steps of the whole training. None where the script does not say.
        metrics: The newest metrics of the script, by name.
        last_line: The last line of the script.
    """

    state: RunState | None = None
    since: datetime | None = None
    until: datetime | None = None
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    last_line: str = ""
    _logged: frozenset[str] = frozenset()
    _seconds_per_step: float | None = None
    _reported_at: float | None = None
    _first_report: tuple[float, int] | None = None

    def take_run(self, run: Run) -> None:
        """Take a version of the run's record."""
        self.state = run.state
        self.since = run.started_at or run.created_at
        if run.state is RunState.STOPPING:
            # The run's record has no time of a stop for another reason, such as a limit.
            self.since = None if run.asked_to_end is None else run.asked_to_end.at
        self.until = run.ended_at if run.state.ended else None
        progress = run.progress
        at = None if progress is None else progress.reported_at.timestamp()
        if progress is None or at is None or (self._reported_at is not None and at <= self._reported_at):
            return
        self.step, self.total, self._reported_at = progress.step, progress.total_steps or self.total, at
        if progress.timed_steps:
            self._seconds_per_step = progress.timed_seconds / progress.timed_steps

    def take_event(self, event: JobEvent) -> None:
        """Take an event of the run's job."""
        if event.step is None:
            return
        reported: Mapping[str, Any] = event.fields.get("metrics", {})
        match event.kind:
            case JobEventKind.RESUME:
                self._first_report = (event.at, event.step)
                if event.step == 0 and not self._logged and self.total is None:
                    return  # Perhaps a script that never reports a step.
            case JobEventKind.PROGRESS:
                self._logged |= frozenset(reported)
                self.metrics = reported or self.metrics
                self.total = total_steps(event) or self.total
            case JobEventKind.METRICS:
                self.metrics = {**self.metrics, **reported}
                # A metric that was found in the script's lines may count other steps.
                if not reported.keys() <= self._logged or event.step <= (self.step or 0):
                    return
            case JobEventKind.FINISH:
                pass
            case _:
                return
        self._reach(event.step, at=event.at)

    def _reach(self, step: int, *, at: float) -> None:
        if self._first_report is None or step < self._first_report[1]:
            self._first_report = (at, step)
        first_at, first_step = self._first_report
        if step > first_step and at > first_at:
            self._seconds_per_step = (at - first_at) / (step - first_step)
        self.step, self._reported_at = step, at

    def take_line(self, text: str) -> None:
        """Take a line that the run's job printed. Of a progress bar in one line the newest state counts."""
        newest = next((part for part in reversed(text.split("\r")) if part.strip()), "")
        if newest:
            self.last_line = printable_line(coloured(newest.strip()).plain, longest=_LONGEST_TEXT)

    @property
    def share(self) -> float | None:
        """The completed part of the training, from 0 to 1. None where it is not known."""
        if self.step is None or not self.total:
            return None
        return min(1.0, self.step / self.total)

    def elapsed_seconds(self, now: datetime) -> float | None:
        """Return the seconds at work, or those of the wait before, or of a stop that a user has asked for."""
        return None if self.since is None else max(0.0, ((self.until or now) - self.since).total_seconds())

    def remaining_seconds(self, now: datetime) -> float | None:
        """Return the seconds until the last step at the present pace. None where that is not known."""
        if (
            self.state is not RunState.TRAINING
            or self.step is None
            or self.total is None
            or self._seconds_per_step is None
            or self._reported_at is None
        ):
            return None
        since_report = max(0.0, now.timestamp() - self._reported_at)
        return max(0.0, (self.total - self.step) * self._seconds_per_step - since_report)

    def times(self, now: datetime) -> str:
        """Return the elapsed and the remaining time, such as `2m 13s, 1m left`."""
        elapsed, remaining = self.elapsed_seconds(now), self.remaining_seconds(now)
        if elapsed is None:
            return ""
        left = "" if not remaining else f", {quantities.duration(remaining)} left"
        return f"{quantities.duration(elapsed)}{left}"

    def words(self) -> str:
        """Return the step and the metrics, or the last line of a script that reports none."""
        if self.step is None:
            return self.last_line
        of = f" of {self.total:,}" if self.total else ""
        return printable_line(f"step {self.step:,}{of}{metrics_text(self.metrics)}", longest=_LONGEST_TEXT)


def status_bar(status: RunStatus, *, now: datetime, spinner: Spinner | None = None) -> RenderableType:
    """Draw the bar of a run over the whole width, with the words of its script below.

    Args:
        status: The facts.
        now: The time.
        spinner: The sign of work, where the bar is drawn again and again.
    """
    share = status.share
    has_bar = spinner is not None or share is not None
    row = Table.grid(padding=(0, 1), expand=has_bar)
    cells: list[RenderableType] = []
    if spinner is not None:
        row.add_column(no_wrap=True)
        cells.append(spinner)
    row.add_column(no_wrap=True)
    cells.append(Text("asking", style="dim") if status.state is None else state_text(status.state))
    if has_bar:
        row.add_column(ratio=1, min_width=8)
        cells.append(
            ProgressBar(
                total=None if share is None else 1.0,
                completed=share or 0.0,
                pulse=share is None,
                animation_time=time.monotonic(),
            )
        )
    if share is not None:
        row.add_column(no_wrap=True, justify="right")
        cells.append(Text(f"{share * 100:3.0f}%"))
    row.add_column(no_wrap=True, justify="right" if has_bar else "left")
    cells.append(Text(status.times(now)))
    row.add_row(*cells)
    words = status.words()
    return row if not words else Group(row, Text(f"  {words}", style="dim", no_wrap=True, overflow="ellipsis"))


class RunBar(AbstractContextManager["RunBar"]):
    """The bar of a run at the lower edge of a terminal, from the first second on. Elsewhere it shows nothing.

    Args:
        console: The console to draw on.
        now: Returns the time.

    Attributes:
        status: The facts that it shows.
        is_drawn: True at a terminal.
    """

    def __init__(self, console: Console, *, now: Callable[[], datetime]) -> None:
        self.status = RunStatus()
        self.is_drawn = console.is_terminal and not console.is_dumb_terminal
        spinner = Spinner("dots")
        self._live = Live(
            get_renderable=lambda: status_bar(self.status, now=now(), spinner=spinner),
            console=console,
            refresh_per_second=_REDRAWN_A_SECOND,
            transient=True,
        )

    def __enter__(self) -> RunBar:
        if self.is_drawn:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_drawn:
            self._live.stop()
