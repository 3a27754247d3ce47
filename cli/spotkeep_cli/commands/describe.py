"""`spotkeep describe RUN`: one run on one page, or one sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, RunOrSweepName, invocation_of
from spotkeep_cli.errors import UsageError
from spotkeep_cli.run_names import find_run_or_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import Terminal

if TYPE_CHECKING:
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.record.sweep import Sweep

Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="FOLDER", help="Of a sweep: draw pictures into this folder.", show_default=False),
]


def describe(
    context: typer.Context,
    name: RunOrSweepName,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Of a sweep: all trials.")] = False,
    plots: Plots = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: state, attempts, metrics, timeline, checkpoints, model, cost; or a sweep and its trials."""
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    table = deployment.table
    run = find_run_or_sweep(table, name, command=invocation.options.command)
    if isinstance(run, Sweep):
        _describe_sweep(run, table=table, invocation=invocation, everything=everything, plots=plots, as_json=as_json)
        return
    from spotkeep_cli.next_steps import steps_for_run
    from spotkeep_cli.rendering.run_description import RunStory, run_description

    if plots is not None:
        raise UsageError("pictures are of sweeps", hint="leave --plots out: the page of a run draws its metrics")
    unreadable: dict[str, str] = {}
    region = None if invocation.options.local else deployment.region
    story = RunStory.read(run, runs=table.runs, region=region, unreadable=unreadable)
    terminal = Terminal(as_json=as_json)
    terminal.remark_unreadable(unreadable)
    if as_json:
        terminal.give_json(story.as_document())
        return
    terminal.show(run_description(story, now=invocation.seams.now(), width=terminal.people.width))
    terminal.show_next(*steps_for_run(run, invocation=invocation, after="describe"))


def _describe_sweep(
    sweep: "Sweep", *, table: "RunTable", invocation: Invocation, everything: bool, plots: Path | None, as_json: bool
) -> None:
    from spotkeep_cli.next_steps import steps_for_sweep
    from spotkeep_cli.sweeps.sweep_view import sweep_page
    from spotkeep_jobs.sweeps.document import SweepRequest

    trials = table.sweeps.with_trials(sweep.sweep)[1]
    terminal = Terminal(as_json=as_json)
    drawn: list[Path] = []
    if plots is not None:
        from spotkeep_cli.sweeps.sweep_plots import save_plots

        drawn = save_plots(sweep, trials, SweepRequest.model_validate(sweep.document["sweep"]), folder=plots)
    if as_json:
        terminal.give_json(
            {
                **sweep.model_dump(mode="json"),
                "trials": [trial.model_dump(mode="json", exclude_none=True) for trial in trials],
                "plots": [str(path) for path in drawn],
            }
        )
        return
    now, width = invocation.seams.now(), terminal.people.width
    terminal.show(sweep_page(sweep, trials, now=now, width=width, everything=everything))
    for path in drawn:
        terminal.remark(f"drawn: {path}")
    terminal.show_next(*steps_for_sweep(sweep, invocation=invocation, after="describe"))
