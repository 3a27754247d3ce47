"""`spotkeep priority RUN 9`: how soon a run in a queue has its turn."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, RunName, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal


def priority(
    context: typer.Context,
    run_name: RunName,
    value: Annotated[
        int,
        typer.Argument(metavar="PRIORITY", min=0, max=9999, help="0 to 9999: in a share the higher one goes first."),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Change how soon a run has its turn in its queue."""
    from spotkeep_cli.launching.answers import ask_launcher

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    request = {"action": "priority", "run": run.run, "priority": value}
    answer = ask_launcher(deployment, request, what=f"{run.run} keeps its priority")
    if as_json:
        terminal.give_json(answer)
        return
    place = answer["queue"]
    terminal.show(f"{run.run} has priority {place['priority']} in queue {place['queue']}, share {place['share']}.")
    terminal.show_next(NextStep(command=invocation.command("ps"), what="see the queue"))
