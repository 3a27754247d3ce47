"""`spotkeep shell RUN`: a shell where the run trains, through Session Manager; no port is open."""

import shlex
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import RunName, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND]",
        help="Run this there instead; a single text is read by a shell.",
        show_default=False,
    ),
]
Host = Annotated[int, typer.Option("--host", metavar="N", min=1, help="In which of the job's instances.")]


def shell(context: typer.Context, run_name: RunName, command: Command = None, *, host: Host = 1) -> None:
    """Open a shell where a run trains now. Needs the setting shells, and on SageMaker debug: true."""
    from spotkeep_cli.aws.session_plugin import find_plugin, run_session
    from spotkeep_cli.launching.answers import ask_launcher

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.runs, run_name, command=invocation.options.command)
    # Before a session is started, which would wait for it in vain.
    plugin = find_plugin()
    request = {"action": "shell", "run": run.run, "host": host}
    if command:
        request["command"] = command[0] if len(command) == 1 else shlex.join(command)
    answer = ask_launcher(deployment, request, what=f"no shell was opened in {run.run}")
    terminal = Terminal()
    terminal.remark(f"{answer['parameters']['Target']}, of {run.run}")
    exit_code = run_session(
        plugin,
        session=answer["session"],
        parameters=answer["parameters"],
        region=deployment.region,
        profile=invocation.options.profile or "",
        endpoint_url=deployment.systems_manager_url,
    )
    if not command:
        terminal.show_next(NextStep(command=invocation.command(f"logs {run.run} -f"), what="follow it"))
    if exit_code:
        raise typer.Exit(exit_code)
