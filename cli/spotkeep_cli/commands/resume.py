"""`spotkeep resume RUN`: goes on with an ended run from its last checkpoint, with fixed code if need be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, Detach, Overrides, RunOrSweepName, invocation_of
from spotkeep_cli.errors import RefusedError, UsageError
from spotkeep_cli.run_names import find_run_or_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
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
    from spotkeep_cli.launching.answers import read_answer
    from spotkeep_cli.launching.resume_changes import overridden_fields, resume_changes
    from spotkeep_cli.rendering.run_list import where
    from spotkeep_jobs.record.states import RunState
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run_or_sweep(deployment.runs, name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    if isinstance(run, Sweep):
        _resume_sweep(
            run,
            source=source,
            overrides=overrides or (),
            deployment=deployment,
            invocation=invocation,
            terminal=terminal,
            yes=yes,
        )
        return
    if not run.state.ended:
        service = "the fleet brings the run" if run.backend == "ec2" else "SageMaker brings a spot job"
        by_itself = f"{service} back by itself; follow it"
        why = "resume it once it has stopped" if run.state is RunState.STOPPING else by_itself
        raise RefusedError(
            f"{run.run} has not ended ({run.state.value.lower()}); there is nothing to resume",
            hint=f"{why}: {invocation.command(f'logs {run.run} -f')}",
        )
    fields = _with_source(overridden_fields(run.request, overrides or ()), source)
    changes = resume_changes(
        run.run,
        fields=fields,
        checkpoint_bucket=deployment.checkpoint_bucket,
        isolated_team=run.request.get("team") if run.request.get("team") in deployment.isolated_teams else None,
    )
    changed = f", with changes in {', '.join(sorted(changes.fields))}" if changes.fields else ""
    terminal.confirm(f"Resume {run.run} as attempt {run.attempt + 1} ({where(run)}){changed}?", assume_yes=yes)
    answer = read_answer(changes.send(deployment, {"run": run.run}), what=f"{run.run} was not resumed")
    follow_to_the_end(
        answer,
        became=f"resumed as attempt {answer.get('attempt', run.attempt + 1)}",
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


def _resume_sweep(
    sweep: "Sweep",
    *,
    source: str | None,
    overrides: Sequence[str],
    deployment: "DeploymentClient",
    invocation: Invocation,
    terminal: Terminal,
    yes: bool,
) -> None:
    from spotkeep_cli.launching.answers import read_answer
    from spotkeep_cli.launching.resume_changes import overridden_fields, resume_changes
    from spotkeep_cli.next_steps import steps_for_sweep

    if not sweep.state.ended:
        raise RefusedError(
            f"{sweep.sweep} has not ended ({sweep.state.value.lower()}); there is nothing to resume",
            hint=f"see its trials: {invocation.command(f'describe {sweep.sweep}')}",
        )
    changes = resume_changes(
        sweep.sweep,
        fields=_with_source(overridden_fields(sweep.document, overrides), source),
        checkpoint_bucket=deployment.checkpoint_bucket,
        isolated_team=sweep.team if sweep.team in deployment.isolated_teams else None,
    )
    failed = sweep.counts.failed
    again = f" with the {failed} {'trial' if failed == 1 else 'trials'} that failed" if failed else ""
    changed = f", with changes in {', '.join(sorted(changes.fields))}" if changes.fields else ""
    terminal.confirm(f"Resume {sweep.sweep}{again}{changed}?", assume_yes=yes)
    answer = read_answer(changes.send(deployment, {"sweep": sweep.sweep}), what=f"{sweep.sweep} was not resumed")
    if terminal.as_json:
        terminal.give_json(answer)
        return
    waiting = answer["trials"].get("failed", 0)
    follow = f", {waiting} that failed follow as places become free" if waiting else ""
    terminal.show(f"{sweep.sweep} goes on: {answer['trials']['running']} trials run or are about to{follow}.")
    terminal.show_next(*steps_for_sweep(sweep, invocation=invocation, after="resume"))
