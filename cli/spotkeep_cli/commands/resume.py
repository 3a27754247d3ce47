"""`spotkeep resume RUN`: goes on with an ended run from its last checkpoint, with fixed code if need be."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, Detach, Overrides, RunOrSweepName, invocation_of
from spotkeep_cli.errors import LocatedProblem, RefusedError, UsageError
from spotkeep_cli.run_names import find_run_or_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import Terminal

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.sweep import Sweep

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
    """Start the next attempt of an ended run, on the same checkpoints, as it was or with what has changed.

    A sweep goes on with the trials that stopped with it, and with those that failed, from their last checkpoints. What
    has changed is for each trial that trains from then on.
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
        raise _not_ended(found, invocation=invocation)
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


def _not_ended(found: "Run | Sweep", *, invocation: Invocation) -> RefusedError:
    from spotkeep_jobs.record.states import RunState
    from spotkeep_jobs.record.sweep import Sweep

    if isinstance(found, Sweep):
        name, hint = found.sweep, f"see its trials: {invocation.command(f'describe {found.sweep}')}"
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
