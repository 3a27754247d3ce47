"""`spotkeep stop RUN`: ends a run; its checkpoints stay."""

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, RunName, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal


def stop(context: typer.Context, run_name: RunName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """End a run. It saves a checkpoint first, and can be resumed."""
    from spotkeep_cli.launching.answers import read_answer
    from spotkeep_cli.rendering.run_list import where

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.runs, run_name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    if run.state.ended:
        terminal.remark(f"{run.run} has ended already ({run.state.value.lower()}); there is nothing to stop.")
        if as_json:
            terminal.give_json({"ok": True, "run": run.run, "state": run.state.value})
        terminal.show_next(NextStep(command=invocation.command(f"describe {run.run}"), what="what happened to it"))
        return
    terminal.confirm(f"Stop {run.run} ({where(run)}, {run.state.value.lower()})?", assume_yes=yes)
    answer = read_answer(
        deployment.invoke_launcher({"action": "stop", "run": run.run}), what=f"{run.run} was not stopped"
    )
    if as_json:
        terminal.give_json(answer)
        return
    terminal.show(f"{run.run} is stopping: it has two minutes to save. Its checkpoints stay.")
    later = [] if run.adopted else [NextStep(command=invocation.command(f"resume {run.run}"), what="go on later")]
    terminal.show_next(NextStep(command=invocation.command(f"describe {run.run}"), what="see it end"), *later)
