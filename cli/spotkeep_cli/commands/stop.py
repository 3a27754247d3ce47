"""`spotkeep stop RUN`: ends a run; its checkpoints stay."""

from typing import TYPE_CHECKING, Final, Literal

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, RunOrSweepName, invocation_of
from spotkeep_cli.run_names import find_run_or_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_jobs.record.sweep import Sweep

_DONE: Final = {"stop": "stopped", "pause": "paused"}
_AT_WORK: Final = {"stop": "stopping", "pause": "pausing"}
_ENDS: Final = {"stop": "end", "pause": "pause"}


def stop(context: typer.Context, name: RunOrSweepName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """End a run, or a sweep with its trials. It saves a checkpoint first, and can be resumed."""
    from spotkeep_cli.launching.answers import read_answer
    from spotkeep_cli.rendering.run_list import where
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run_or_sweep(deployment.runs, name, command=invocation.options.command)
    if isinstance(run, Sweep):
        ask_sweep_to("stop", run, invocation=invocation, yes=yes, as_json=as_json)
        return
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


def ask_sweep_to(
    action: Literal["stop", "pause"], sweep: "Sweep", *, invocation: Invocation, yes: bool, as_json: bool
) -> None:
    """Have a sweep stop or pause, when its user confirms it: its trials save first."""
    from spotkeep_cli.launching.answers import read_answer
    from spotkeep_cli.next_steps import steps_for_sweep

    terminal = Terminal(as_json=as_json)
    done, at_work = _DONE[action], _AT_WORK[action]
    if sweep.state.ended:
        terminal.remark(f"{sweep.sweep} runs no trial ({sweep.state.value.lower()}); there is nothing to {action}.")
        if as_json:
            terminal.give_json({"ok": True, "sweep": sweep.sweep, "state": sweep.state.value})
        terminal.show_next(*steps_for_sweep(sweep, invocation=invocation, after=action))
        return
    terminal.confirm(f"{action.title()} {sweep.sweep} ({sweep.counts.running} trials run)?", assume_yes=yes)
    answer = read_answer(
        invocation.deployment().invoke_launcher({"action": action, "sweep": sweep.sweep}),
        what=f"{sweep.sweep} was not {done}",
    )
    if as_json:
        terminal.give_json(answer)
        return
    terminal.show(f"{sweep.sweep} is {at_work}: its trials have two minutes to save. Their checkpoints stay.")
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {sweep.sweep}"), what=f"see it {_ENDS[action]}"),
        NextStep(command=invocation.command(f"resume {sweep.sweep}"), what="go on later"),
    )
