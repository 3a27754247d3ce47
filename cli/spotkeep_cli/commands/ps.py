"""`spotkeep ps`: the runs, newest first."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

DEFAULT_LIMIT = 20


def ps(
    context: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also runs that ended over a day ago.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = DEFAULT_LIMIT,
    as_json: AsJson = False,
) -> None:
    """List the runs: those at work, and those that ended in the last day."""
    from spotkeep_cli.rendering.run_list import run_list, worth_listing

    invocation = invocation_of(context)
    now = invocation.seams.now()
    found = invocation.deployment().runs.list(owner=owner, limit=limit)
    listed = found if everything else [run for run in found if worth_listing(run, now=now)]
    terminal = Terminal(as_json=as_json)
    if as_json:
        terminal.give_json([run.model_dump(mode="json") for run in listed])
        return
    if not listed:
        terminal.show("No runs at work." if found else "No runs yet.")
        terminal.show_next(
            *([NextStep(command=invocation.command("ps --all"), what="show those that ended")] if found else []),
            NextStep(command=invocation.command("launch job.yaml"), what="launch one"),
        )
        return
    terminal.show(run_list(listed, now=now, width=terminal.people.width))
    if len(found) == limit:
        terminal.remark(f"The newest {limit} runs; -n {limit * 5} looks further back.")
    newest = listed[0].run
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {newest}"), what="what happened to it"),
        NextStep(command=invocation.command(f"logs {newest} -f"), what="follow its log"),
    )
