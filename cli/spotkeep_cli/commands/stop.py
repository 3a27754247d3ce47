"""`spotkeep stop RUN`: ends a run; its checkpoints stay."""

from typing import TYPE_CHECKING, Literal

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, RunOrSweepName, invocation_of
from spotkeep_cli.run_names import find_run_or_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_jobs.record.sweep import Sweep


def stop(context: typer.Context, name: RunOrSweepName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """End a run, or a sweep with its trials. It saves a checkpoint first, and can be resumed."""
    from spotkeep_cli.launching.answers import ask_launcher
    from spotkeep_cli.rendering.lists import where
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run_or_sweep(deployment.table, name, command=invocation.options.command)
    if isinstance(run, Sweep):
        end_trials(run, action="stop", deployment=deployment, invocation=invocation, yes=yes, as_json=as_json)
        return
    terminal = Terminal(as_json=as_json)
    if run.state.ended:
        terminal.remark(f"{run.run} has ended already ({run.state.value.lower()}); there is nothing to stop.")
        if as_json:
            terminal.give_json({"ok": True, "run": run.run, "state": run.state.value})
        terminal.show_next(NextStep(command=invocation.command(f"describe {run.run}"), what="what happened to it"))
        return
    terminal.confirm(f"Stop {run.run} ({where(run)}, {run.state.value.lower()})?", assume_yes=yes)
    answer = ask_launcher(deployment, {"action": "stop", "run": run.run}, what=f"{run.run} was not stopped")
    if as_json:
        terminal.give_json(answer)
        return
    terminal.show(f"{run.run} is stopping: it has two minutes to save. Its checkpoints stay.")
    later = [] if run.adopted else [NextStep(command=invocation.command(f"resume {run.run}"), what="go on later")]
    terminal.show_next(NextStep(command=invocation.command(f"describe {run.run}"), what="see it end"), *later)


def end_trials(
    sweep: "Sweep",
    *,
    action: Literal["stop", "pause"],
    deployment: "DeploymentClient",
    invocation: Invocation,
    yes: bool,
    as_json: bool,
) -> None:
    """Stop or pause a sweep: either way its trials save and end, and a resume lets them go on.

    Args:
        sweep: The sweep.
        action: What the launcher is asked for.
        deployment: Where it runs.
        invocation: How `spotkeep` was called.
        yes: Whether the user is not asked.
        as_json: Whether standard output gets the answer.
    """
    from spotkeep_cli.launching.answers import ask_launcher
    from spotkeep_cli.next_steps import steps_for_sweep

    terminal = Terminal(as_json=as_json)
    done, under_way, end = ("stopped", "stopping", "end") if action == "stop" else ("paused", "pausing", "pause")
    if sweep.state.ended:
        terminal.remark(f"{sweep.sweep} runs no trial ({sweep.state.value.lower()}); there is nothing to {action}.")
        if as_json:
            terminal.give_json({"ok": True, "sweep": sweep.sweep, "state": sweep.state.value})
        terminal.show_next(*steps_for_sweep(sweep, invocation=invocation, after=action))
        return
    terminal.confirm(f"{action.capitalize()} {sweep.sweep} ({sweep.counts.running} trials run)?", assume_yes=yes)
    request = {"action": action, "sweep": sweep.sweep}
    answer = ask_launcher(deployment, request, what=f"{sweep.sweep} was not {done}")
    if as_json:
        terminal.give_json(answer)
        return
    terminal.show(f"{sweep.sweep} is {under_way}: its trials have two minutes to save. Their checkpoints stay.")
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {sweep.sweep}"), what=f"see it {end}"),
        NextStep(command=invocation.command(f"resume {sweep.sweep}"), what="go on later"),
    )
