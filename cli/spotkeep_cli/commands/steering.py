"""Commands that steer a run: `spotkeep stop`, `pause`, `resume` and `priority`."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spotkeep_cli.commands.parameters import (
    AsJson,
    AssumeYes,
    Detach,
    NewestRunOrSweepName,
    Overrides,
    RunName,
    RunOrSweepName,
    SweepName,
    invocation_of,
)
from spotkeep_cli.errors import LocatedProblem, RefusedError, UsageError
from spotkeep_cli.run_names import find_run, find_run_or_sweep, find_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.sweep import Sweep


def stop(
    context: typer.Context, name: NewestRunOrSweepName = None, *, yes: AssumeYes = False, as_json: AsJson = False
) -> None:
    """End a run, or a sweep with its trials. It saves a checkpoint first, and can be resumed."""
    from spotkeep_cli.launching.answers import ask_launcher
    from spotkeep_cli.rendering.lists import where
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run_or_sweep(deployment.table, name, command=invocation.options.command, at_work=True)
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
    terminal.show(f"{run.run} is stopping. {_until_it_ends(run)} Its checkpoints stay.")
    later = [] if run.adopted else [NextStep(command=invocation.command(f"resume {run.run}"), what="go on later")]
    terminal.show_next(NextStep(command=invocation.command(f"describe {run.run}"), what="see it end"), *later)


def _until_it_ends(run: "Run") -> str:
    """Say what the end of a run that is stopped waits for."""
    from spotkeep_jobs.record.states import RunState

    if run.state is RunState.STOPPING:
        return "It was asked to before."
    if run.state is not RunState.TRAINING:
        return "It does not train now, so there is nothing to save."
    if run.place.backend == "ec2":
        return "The agent sends SIGTERM, and the script has two minutes to save."
    return (
        "SageMaker sends SIGTERM, and the script has two minutes to save. The job ends after them, and once SageMaker "
        f"has uploaded what the script left. {_which_instances(run)} billed until then."
    )


def _which_instances(run: "Run") -> str:
    count = run.place.instance_count
    return "Its instance is" if count == 1 else f"Its {count:,} instances are"


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


def pause(context: typer.Context, sweep_name: SweepName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """Pause a sweep. Its trials save first; a resume lets them go on where they were."""
    invocation = invocation_of(context)
    deployment = invocation.deployment()
    sweep = find_sweep(
        deployment.table,
        sweep_name,
        command=invocation.options.command,
        hint_of_run=f"`{invocation.command(f'stop {sweep_name}')}` saves it and ends what is billed, and "
        f"`{invocation.command(f'resume {sweep_name}')}` goes on",
    )
    end_trials(sweep, action="pause", deployment=deployment, invocation=invocation, yes=yes, as_json=as_json)


Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="PATH", help="Go on with this code: a directory or an archive.", show_default=False
    ),
]


def resume(
    context: typer.Context,
    name: RunOrSweepName,
    *,
    source: Source = None,
    overrides: Overrides = None,
    yes: AssumeYes = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Start the next attempt of an ended run, on the same checkpoints, as it was or with changes.

    A sweep goes on with the trials that stopped with it, and with those that failed, from their last checkpoints.
    Changes hold for each trial that trains from then on.
    """
    from spotkeep_cli.following import follow_to_the_end
    from spotkeep_cli.launching.resume_changes import overridden_fields, resume_changes
    from spotkeep_cli.rendering.lists import where
    from spotkeep_cli.rendering.quantities import counted
    from spotkeep_cli.terminal import problem_list
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    found = find_run_or_sweep(deployment.table, name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    if not found.state.ended:
        raise _not_ended(found, has_changes=bool(overrides or source), invocation=invocation)
    fields = _with_source(overridden_fields(found, overrides or ()), source)
    changes = resume_changes(found, fields=fields, deployment=deployment)
    if changes.warnings:
        warnings = [LocatedProblem(**vars(each)) for each in changes.warnings]
        terminal.show(problem_list(warnings, mark="!", style="yellow"))
    changed = f", with changes in {', '.join(sorted(changes.fields))}" if changes.fields else ""
    if isinstance(found, Sweep):
        failed = found.counts.failed
        again = f" with the {counted(failed, 'trial')} that failed" if failed else ""
        terminal.confirm(f"Resume {found.sweep}{again}{changed}?", assume_yes=yes)
        _show_resumed(found, changes.send(deployment), invocation=invocation, terminal=terminal)
        return
    terminal.confirm(f"Resume {found.run} as attempt {found.attempt + 1} ({where(found)}){changed}?", assume_yes=yes)
    answer = changes.send(deployment)
    follow_to_the_end(
        answer,
        became=f"resumed as attempt {answer.get('attempt', found.attempt + 1)}",
        invocation=invocation,
        deployment=deployment,
        terminal=terminal,
        detach=detach,
    )


def _with_source(fields: dict[str, Any], source: str | None) -> dict[str, Any]:
    if source is None:
        return fields
    if "source" in fields:
        raise UsageError("the source is given twice", hint="give --source, or --set source=..., not both")
    return {**fields, "source": source}


def _not_ended(found: "Run | Sweep", *, has_changes: bool, invocation: Invocation) -> RefusedError:
    from spotkeep_jobs.record.states import RunState
    from spotkeep_jobs.record.sweep import Sweep

    if isinstance(found, Sweep):
        name, hint = found.sweep, f"see its trials: {invocation.command(f'describe {found.sweep}')}"
    elif has_changes and found.state is not RunState.STOPPING:
        name, hint = found.run, f"to go on with changes, end it first: {invocation.command(f'stop {found.run}')}"
    else:
        service = "the fleet brings the run" if found.place.backend == "ec2" else "SageMaker brings a spot job"
        by_itself = f"{service} back by itself; follow it"
        why = "resume it once it has stopped" if found.state is RunState.STOPPING else by_itself
        name, hint = found.run, f"{why}: {invocation.command(f'logs {found.run} -f')}"
    return RefusedError(f"{name} has not ended ({found.state.value.lower()}); there is nothing to resume", hint=hint)


def _show_resumed(sweep: "Sweep", answer: dict[str, Any], *, invocation: Invocation, terminal: Terminal) -> None:
    from spotkeep_cli.next_steps import steps_for_sweep

    if terminal.as_json:
        terminal.give_json(answer)
        return
    waiting = answer["trials"].get("failed", 0)
    follow = f", {waiting} that failed follow as places become free" if waiting else ""
    terminal.show(f"{sweep.sweep} goes on: {answer['trials']['running']} trials run or are about to{follow}.")
    terminal.show_next(*steps_for_sweep(sweep, invocation=invocation, after="resume"))


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
    """Change the turn of a run in its queue."""
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
