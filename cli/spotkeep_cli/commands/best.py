"""`spotkeep best SWEEP`: the best trial, its parameters, and its checkpoint as a file."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, SweepName, invocation_of
from spotkeep_cli.errors import RunNotFoundError, UsageError
from spotkeep_cli.run_names import find_sweep
from spotkeep_cli.terminal import NextStep, Terminal

Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FOLDER",
        help="Write the best trial's parameters and checkpoint into this folder.",
        show_default=False,
    ),
]


def best(context: typer.Context, sweep_name: SweepName, *, export: Export = None, as_json: AsJson = False) -> None:
    """Show the best trial of a sweep, and fetch it."""
    from spotkeep_cli.rendering.columns import facts
    from spotkeep_cli.rendering.metric_list import at_step
    from spotkeep_cli.rendering.progress_bars import showing_bytes
    from spotkeep_cli.sweeps.best_trial import export_trial

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    sweep = find_sweep(deployment.table, sweep_name, command=invocation.options.command)
    found = sweep.best
    if found is None:
        raise UsageError(
            f"{sweep.sweep} has no best trial yet: none has reported its objective, or it has none",
            hint=f"see its trials: {invocation.command(f'describe {sweep.sweep}')}",
        )
    terminal = Terminal(as_json=as_json)
    document = {"ok": True, "sweep": sweep.sweep, **found.model_dump(mode="json")}
    exported = None
    if export is not None:
        if deployment.table.runs.trial_run(sweep.sweep, found.number) is None:
            raise RunNotFoundError(
                f"the run of trial {found.number} is gone: what is called {found.run} now is no trial of {sweep.sweep}",
                hint="ended runs are forgotten after a while",
            )
        exported = export_trial(
            found, folder=export, invocation=invocation, show_progress=partial(showing_bytes, terminal.remarks)
        )
        document |= {"folder": str(export), "checkpoint": exported.checkpoint, "checkpoint_step": exported.step}
    if as_json:
        terminal.give_json(document)
        return
    metric = sweep.document["sweep"]["objective"]["metric"]
    terminal.show(f"Trial {found.number} of {sweep.sweep}: {metric} {at_step(found.value, found.step)}")
    terminal.show(facts([(name, str(value)) for name, value in found.parameters.items()]))
    if exported is not None and export is not None:
        terminal.show(
            f"{export / 'parameters.json'} holds its parameters, {export / exported.checkpoint} its checkpoint"
        )
        if exported.step != found.step:
            terminal.remark(
                f"The checkpoint is of step {exported.step:,}: of step {found.step} none is kept. "
                "keep_best of the Checkpointer keeps it."
            )
        return
    terminal.show_next(
        NextStep(command=invocation.command(f"best {sweep.sweep} --export best"), what="fetch it"),
        NextStep(command=invocation.command(f"describe {found.run}"), what="how it went"),
    )
