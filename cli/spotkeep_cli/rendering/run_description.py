"""What `spotkeep describe` shows of a run: where it stands, its attempts, its timeline, its bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.bill import bill
from spotkeep_cli.rendering.run_list import NARROW, reason_text, state_text, where
from spotkeep_jobs.states import TimelineKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from spotkeep_jobs.record import Attempt, Run, TimelineEntry

_MARKS = {
    TimelineKind.INTERRUPTED: ("!", "bold yellow"),
    TimelineKind.RESUMED: ("↻", "green"),
    TimelineKind.STEP_RESUMED: ("↻", "green"),
    TimelineKind.TRAINING: ("▶", "green"),
    TimelineKind.STOP_REQUESTED: ("■", "yellow"),
    TimelineKind.STOPPING: ("■", "yellow"),
    TimelineKind.ENDED: ("●", "bold"),
}


def run_description(
    run: Run, *, attempts: Sequence[Attempt], timeline: Sequence[TimelineEntry], now: datetime, width: int
) -> RenderableType:
    """Everything about a run, on one page."""
    parts: list[RenderableType] = [_headline(run), _facts(run, now=now)]
    if len(attempts) > 1 or any(attempt.interruptions for attempt in attempts):
        parts += [_heading("Attempts"), _attempts(attempts, width=width)]
    if timeline:
        parts += [_heading("Timeline (UTC)"), timeline_table(timeline)]
    parts += [_heading("Cost"), Padding(bill(run), (0, 0, 0, 2))]
    return Group(*parts)


def timeline_table(timeline: Sequence[TimelineEntry]) -> Table:
    """One row an entry; the date is written where it changes."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    day = ""
    for entry in timeline:
        date, _, clock = quantities.moment(entry.at).partition(" ")
        if date != day:
            table.add_row("", "", Text(date, style="dim"))
            day = date
        table.add_row(*timeline_cells(entry, clock=clock))
    return table


def timeline_cells(entry: TimelineEntry, *, clock: str) -> tuple[Text, Text, Text]:
    """An entry as a row: when, a mark, what."""
    mark, style = _MARKS.get(entry.kind, ("·", "dim"))
    return Text(f"  {clock}", style="dim"), Text(mark, style=style), Text(entry.text)


def _headline(run: Run) -> Text:
    line = Text.assemble((run.run, "bold"), "  ", state_text(run.state))
    if reason := reason_text(run.end_reason):
        line.append(f"  {reason}", style="dim")
    return line


def _facts(run: Run, *, now: datetime) -> Table:
    facts: list[tuple[str, str]] = [("runs on", where(run).replace(f" {run.capacity}", f", {run.capacity}"))]
    if run.owner:
        facts.append(("owner", run.owner))
    facts.append(("created", f"{quantities.moment(run.created_at)} UTC"))
    if run.started_at is not None:
        end = run.ended_at if run.state.ended and run.ended_at else now
        lasted = quantities.duration((end - run.started_at).total_seconds())
        facts.append(("took" if run.state.ended else "at work", f"{lasted} since it first had instances"))
    if run.interruptions:
        facts.append(("lost capacity", "once" if run.interruptions == 1 else f"{run.interruptions} times"))
    facts.append(("training job", run.job_name))
    facts.append(("checkpoints", run.checkpoint_uri))
    facts.append(("model", run.output_uri or "not there yet" if not run.state.ended else run.output_uri or "none"))
    if run.failure_reason:
        facts.append(("said", run.failure_reason))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in facts:
        table.add_row(f"  {label}", value)
    return table


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _attempts(attempts: Sequence[Attempt], *, width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    wide = width >= NARROW
    table.add_column("#", justify="right")
    table.add_column("STATE", no_wrap=True)
    if wide:
        table.add_column("TRAINING JOB", overflow="fold")
    table.add_column("STARTED", no_wrap=True)
    if wide:
        table.add_column("TRAINED", justify="right", no_wrap=True)
    table.add_column("LOST", justify="right", no_wrap=True)
    for attempt in attempts:
        clock = quantities.moment(attempt.started_at).partition(" ")[2] or quantities.UNKNOWN
        trained = attempt.usage.training_seconds if attempt.usage else None
        cells: list[str | Text] = [str(attempt.attempt), attempt.state.value.lower()]
        if wide:
            cells.append(attempt.job_name)
        cells.append(clock)
        if wide:
            cells.append(quantities.duration(trained))
        cells.append(f"{attempt.interruptions}x")
        table.add_row(*cells)
    return Padding(table, (0, 0, 0, 2))
