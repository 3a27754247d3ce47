"""`spotkeep pause SWEEP`: its trials save and wait, until a resume."""

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, SweepName, invocation_of
from spotkeep_cli.commands.stop import end_trials
from spotkeep_cli.run_names import find_sweep


def pause(context: typer.Context, sweep_name: SweepName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """Pause a sweep. Its trials save first; a resume lets them go on where they were."""
    invocation = invocation_of(context)
    deployment = invocation.deployment()
    sweep = find_sweep(deployment.table, sweep_name, command=invocation.options.command)
    end_trials(sweep, action="pause", deployment=deployment, invocation=invocation, yes=yes, as_json=as_json)
