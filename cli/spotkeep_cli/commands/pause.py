"""`spotkeep pause SWEEP`: its trials save and wait, until a resume."""

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, SweepName, invocation_of
from spotkeep_cli.commands.stop import ask_sweep_to
from spotkeep_cli.run_names import find_sweep


def pause(context: typer.Context, sweep_name: SweepName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """Pause a sweep. Its trials save first; a resume lets them go on where they were."""
    invocation = invocation_of(context)
    sweep = find_sweep(invocation.deployment().runs, sweep_name, command=invocation.options.command)
    ask_sweep_to("pause", sweep, invocation=invocation, yes=yes, as_json=as_json)
