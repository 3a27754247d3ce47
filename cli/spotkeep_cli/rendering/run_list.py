"""The table of `spotkeep ps`, and how a run's state is written everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_jobs.record.states import EndReason, RunState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.table import Table

    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.sweep import Sweep

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
    EndReason.PAUSED: "paused",
    EndReason.STOPPED_BY_USER: "stopped by a user",
    EndReason.MAX_RUNTIME_EXCEEDED: "max_run was reached",
    EndReason.MAX_WAIT_EXCEEDED: "waited too long",
    EndReason.MAX_COST: "max_cost was spent",
    EndReason.DEADLINE: "left spot for its deadline",
    EndReason.CAPACITY: "no capacity",
    EndReason.QUOTA: "no quota",
    EndReason.NEVER_FITS: "more instances than its queue may have",
    EndReason.INPUT_ERROR: "its data, image or permissions did not work",
    EndReason.PLATFORM_ERROR: "SageMaker had an error",
    EndReason.JOB_VANISHED: "its training job was deleted",
    EndReason.LAUNCH_REFUSED: "SageMaker refused to launch it",
}


def state_text(state: RunState) -> Text:
    """Return a state in its colour."""
    return Text(state.value.lower(), style=_STYLES[state])


def reason_text(reason: EndReason | None) -> str:
    """Return why a run ended, in words; empty for a completed one."""
    return _REASONS.get(reason, "") if reason is not None else ""


def worth_listing(run: Run | Sweep, *, now: datetime) -> bool:
    """Return whether a run or a sweep is at work, or ended in the last day."""
    return run.ended_at is None or not run.state.ended or now - run.ended_at <= timedelta(days=1)


def where(run: Run) -> str:
    """Return what a run runs on: `2 x ml.m5.xlarge spot`."""
    count = f"{run.place.instance_count} x " if run.place.instance_count > 1 else ""
    return f"{count}{run.place.instance_type} {run.place.capacity}"


def place(run: Run) -> str:
    """Return where a run waits for its turn: `gpu/vision 7`, which are queue, share and priority."""
    if run.place.queue is None:
        return quantities.UNKNOWN
    return f"{run.place.queue.queue}/{run.place.queue.share} {run.place.queue.priority}"


def run_list(runs: Sequence[Run], *, now: datetime, width: int) -> Table:
    """Return one row a run."""
    columns = [
        Column(heading="RUN", cells=[run.run for run in runs]),
        Column(heading="STATE", cells=[state_text(run.state) for run in runs]),
        Column(heading="ON", cells=[where(run) for run in runs], importance=4),
        *(
            [Column(heading="QUEUE", cells=[place(run) for run in runs], importance=5)]
            if any(run.place.queue is not None for run in runs)
            else []
        ),
        Column(heading="AGE", cells=[quantities.age(run.created_at, now=now) for run in runs], justify="right"),
        Column(heading="TRIES", cells=[str(run.attempt) for run in runs], importance=1, justify="right"),
        Column(heading="LOST", cells=[f"{run.interruptions}x" for run in runs], importance=3, justify="right"),
        Column(
            heading="SAVED",
            cells=[quantities.percent(run.cost.saved_percent if run.cost else None) for run in runs],
            importance=2,
            justify="right",
        ),
        Column(heading="OWNER", cells=[run.owner or quantities.UNKNOWN for run in runs], importance=0),
    ]
    return table_that_fits(columns, width=width)
