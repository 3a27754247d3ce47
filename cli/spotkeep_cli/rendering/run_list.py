"""The table of `spotkeep ps`, and how a run's state is written everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_jobs.states import EndReason, RunState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from spotkeep_jobs.record import Run

NARROW = 72
"""Below this width a table keeps only the columns one cannot do without."""

_STYLES = {
    RunState.LAUNCHING: "cyan",
    RunState.WAITING: "yellow",
    RunState.TRAINING: "bold green",
    RunState.INTERRUPTED: "bold yellow",
    RunState.STOPPING: "yellow",
    RunState.COMPLETED: "green",
    RunState.FAILED: "bold red",
    RunState.STOPPED: "magenta",
}

_REASONS = {
    EndReason.SCRIPT_FAILED: "the script failed",
    EndReason.STOPPED_BY_USER: "stopped by a user",
    EndReason.MAX_RUNTIME_EXCEEDED: "max_run was reached",
    EndReason.MAX_WAIT_EXCEEDED: "max_wait was reached",
    EndReason.CAPACITY: "no capacity",
    EndReason.INPUT_ERROR: "its data, image or permissions did not work",
    EndReason.PLATFORM_ERROR: "SageMaker had an error",
    EndReason.JOB_VANISHED: "its training job was deleted",
    EndReason.LAUNCH_REFUSED: "SageMaker refused to launch it",
}


def state_text(state: RunState) -> Text:
    """A state in its colour."""
    return Text(state.value.lower(), style=_STYLES[state])


def reason_text(reason: EndReason | None) -> str:
    """Why a run ended, in words; empty for a completed one."""
    return _REASONS.get(reason, "") if reason is not None else ""


def worth_listing(run: Run, *, now: datetime) -> bool:
    """Whether a run is at work, or ended in the last day."""
    return run.ended_at is None or not run.state.ended or now - run.ended_at <= timedelta(days=1)


def where(run: Run) -> str:
    """What a run runs on: `2 x ml.m5.xlarge spot`."""
    count = f"{run.instance_count} x " if run.instance_count > 1 else ""
    return f"{count}{run.instance_type} {run.capacity}"


def run_list(runs: Iterable[Run], *, now: datetime, width: int) -> Table:
    """One row a run. A run's id is never cut, so that it can be copied."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("RUN", overflow="fold")
    table.add_column("STATE", no_wrap=True)
    wide = width >= NARROW
    if wide:
        table.add_column("ON", overflow="fold")
    table.add_column("AGE", justify="right", no_wrap=True)
    if wide:
        table.add_column("TRIES", justify="right", no_wrap=True)
        table.add_column("LOST", justify="right", no_wrap=True)
        table.add_column("SAVED", justify="right", no_wrap=True)
    for run in runs:
        cells: list[str | Text] = [run.run, state_text(run.state)]
        if wide:
            cells.append(where(run))
        cells.append(quantities.age(run.created_at, now=now))
        if wide:
            saved = run.cost.saved_percent if run.cost else None
            cells += [str(run.attempt), f"{run.interruptions}x", quantities.percent(saved)]
        table.add_row(*cells)
    return table
