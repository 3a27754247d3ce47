"""`spotkeep ps`: the sweeps and the runs, newest first; the trials of a sweep are folded into it."""

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
    """List the runs and sweeps: those at work, and those that ended in the last day."""
    from spotkeep_cli.next_steps import steps_for_run, steps_for_sweep
    from spotkeep_cli.rendering.lists import run_list, worth_listing
    from spotkeep_cli.sweeps.sweep_view import sweep_list

    invocation = invocation_of(context)
    now = invocation.seams.now()
    table = invocation.deployment().table
    unreadable: dict[str, str] = {}
    found = table.runs.list(owner=owner, limit=limit, unreadable=unreadable)
    listed = found if everything else [run for run in found if worth_listing(run, now=now)]
    all_sweeps = table.sweeps.list(owner=owner, limit=limit, unreadable=unreadable)
    sweeps = [each for each in all_sweeps if everything or worth_listing(each, now=now)]
    terminal = Terminal(as_json=as_json)
    terminal.remark_unreadable(unreadable)
    if as_json:
        terminal.give_json([each.model_dump(mode="json") for each in (*sweeps, *listed)])
        return
    if sweeps:
        terminal.show(sweep_list(sweeps, now=now, width=terminal.people.width))
        if not listed:
            terminal.show_next(*steps_for_sweep(sweeps[0], invocation=invocation, after="ps"))
            return
        terminal.show("")
    if not listed:
        of_owner = f" of {owner}" if owner else ""
        terminal.show(f"No runs{of_owner} at work." if found else f"No runs{of_owner} yet.")
        terminal.show_next(
            *([NextStep(command=invocation.command("ps --all"), what="show those that ended")] if found else []),
            NextStep(command=invocation.command("launch job.yaml"), what="launch one"),
        )
        return
    terminal.show(run_list(listed, now=now, width=terminal.people.width))
    if len(found) == limit:
        terminal.remark(f"The newest {limit} runs; -n {limit * 5} goes further back.")
    at_work = next((run for run in listed if not run.state.ended), listed[0])
    terminal.show_next(*steps_for_run(at_work, invocation=invocation, after="ps"))
