"""`spotkeep pause SWEEP`: its trials save and wait, until a resume."""

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, SweepName, invocation_of
from spotkeep_cli.run_names import find_sweep
from spotkeep_cli.terminal import NextStep, Terminal


def pause(context: typer.Context, sweep_name: SweepName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """Pause a sweep. Its trials save first; a resume lets them go on where they were."""
    from spotkeep_cli.launching.answers import read_answer

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    sweep = find_sweep(deployment.runs, sweep_name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    if sweep.state.ended:
        terminal.remark(f"{sweep.sweep} runs no trial ({sweep.state.value.lower()}); there is nothing to pause.")
        if as_json:
            terminal.give_json({"ok": True, "sweep": sweep.sweep, "state": sweep.state.value})
        return
    terminal.confirm(f"Pause {sweep.sweep} ({sweep.counts.running} trials run)?", assume_yes=yes)
    answer = read_answer(
        deployment.invoke_launcher({"action": "pause", "sweep": sweep.sweep}), what=f"{sweep.sweep} was not paused"
    )
    if as_json:
        terminal.give_json(answer)
        return
    terminal.show(f"{sweep.sweep} is pausing: its trials have two minutes to save. Their checkpoints stay.")
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {sweep.sweep}"), what="see it pause"),
        NextStep(command=invocation.command(f"resume {sweep.sweep}"), what="go on later"),
    )
