"""Commands that act on a run's instance: `spotkeep shell` and `drill`."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, RunName, invocation_of
from spotkeep_cli.errors import RefusedError
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient

_TRIES: Final = 25
_SECONDS_BETWEEN_TRIES: Final = 5.0

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND]",
        help="Run this there instead; a single text is read by a shell.",
        show_default=False,
    ),
]
Host = Annotated[int, typer.Option("--host", metavar="N", min=1, help="The number of the job's instance.")]


def shell(context: typer.Context, run_name: RunName, command: Command = None, *, host: Host = 1) -> None:
    """Open a shell where a run trains now. Needs the setting shells."""
    from spotkeep_cli.aws.session_plugin import find_plugin, run_session

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command)
    # Before a session is started, which would wait for it in vain.
    plugin = find_plugin()
    request = {"action": "shell", "run": run.run, "host": host}
    if command:
        request["command"] = command[0] if len(command) == 1 else shlex.join(command)
    terminal = Terminal()
    with terminal.remarks.status(f"opening a shell in {run.run}; its agent may take a minute to start"):
        answer = _opened(deployment, request, sleep=invocation.seams.sleep)
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


def _opened(
    deployment: "DeploymentClient", request: dict[str, Any], *, sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Ask for the session until the agent in the job is connected.

    The agent starts with the job, or is switched on just now.

    Raises:
        RefusedError: No shell can be opened, or the agent was not connected within two minutes.
    """
    from spotkeep_cli.launching.answers import ask_launcher

    for _ in range(_TRIES - 1):
        try:
            return ask_launcher(deployment, request, what=f"no shell was opened in {request['run']}")
        except RefusedError as error:
            if not error.temporary:
                raise
        sleep(_SECONDS_BETWEEN_TRIES)
    return ask_launcher(deployment, request, what=f"no shell was opened in {request['run']}")


Within = Annotated[float, typer.Option("--within", metavar="MINUTES", min=3, help="Give up waiting after so long.")]


def drill(
    context: typer.Context, run_name: RunName, *, within: Within = 30.0, yes: AssumeYes = False, as_json: AsJson = False
) -> None:
    """Take a run's instance away, as EC2 would, and see it come back. Needs the setting drills."""
    from spotkeep_cli.drill import on_aws
    from spotkeep_cli.drill.recovery import drill_report, phase_line
    from spotkeep_cli.errors import DrillFailedError

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command).run
    terminal = Terminal(as_json=as_json)
    hands = on_aws.Drill(deployment, run=run)
    target = hands.target()
    away = f"Take {target.instance} ({target.zone}) away from {run}? It has two minutes to save."
    terminal.confirm(away, assume_yes=yes)

    recovery = on_aws.carry_out(
        hands,
        run=run,
        target=target,
        token=invocation.seams.new_token(),
        clock=invocation.seams.now,
        pause=invocation.pause,
        within_seconds=within * 60,
        on_phase=lambda recovery, phase: terminal.remark(phase_line(recovery, phase)),
    )
    if as_json:
        terminal.give_json(recovery.document())
    else:
        terminal.show(drill_report(recovery))
    describe = NextStep(command=invocation.command(f"describe {run}"), what="what happened to it")
    if not recovery.recovered:
        raise DrillFailedError(
            recovery.problem or f"{run} did not train again within {within:g} minutes", hint=describe.command
        )
    terminal.show_next(describe, NextStep(command=invocation.command(f"logs {run} -f"), what="see it train"))
