"""`spotkeep resume RUN`: goes on with an ended run from its last checkpoint, with fixed code if need be."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, Detach, Overrides, RunName, invocation_of
from spotkeep_cli.errors import RefusedError, UsageError
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import Terminal

Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="PATH", help="Go on with this code: a directory or an archive.", show_default=False
    ),
]


def resume(
    context: typer.Context,
    run_name: RunName,
    *,
    source: Source = None,
    overrides: Overrides = None,
    yes: AssumeYes = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Start the next attempt of an ended run, on the same checkpoints, as it was or with what has changed."""
    from spotkeep_cli.following import follow_to_the_end
    from spotkeep_cli.launching.answers import read_answer
    from spotkeep_cli.launching.resume_changes import overridden_fields, resume_changes
    from spotkeep_cli.rendering.run_list import where
    from spotkeep_jobs.record.states import RunState

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.runs, run_name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    if not run.state.ended:
        service = "the fleet brings the run" if run.backend == "ec2" else "SageMaker brings a spot job"
        by_itself = f"{service} back by itself; follow it"
        why = "resume it once it has stopped" if run.state is RunState.STOPPING else by_itself
        raise RefusedError(
            f"{run.run} has not ended ({run.state.value.lower()}); there is nothing to resume",
            hint=f"{why}: {invocation.command(f'logs {run.run} -f')}",
        )
    fields = overridden_fields(run, overrides or ())
    if source is not None:
        if "source" in fields:
            raise UsageError("the source is given twice", hint="give --source, or --set source=..., not both")
        fields["source"] = source
    changes = resume_changes(
        run,
        fields=fields,
        checkpoint_bucket=deployment.checkpoint_bucket,
        isolated_teams=deployment.isolated_teams,
    )
    changed = f", with changes in {', '.join(sorted(changes.fields))}" if changes.fields else ""
    terminal.confirm(f"Resume {run.run} as attempt {run.attempt + 1} ({where(run)}){changed}?", assume_yes=yes)
    answer = read_answer(changes.send(deployment, run=run.run), what=f"{run.run} was not resumed")
    follow_to_the_end(
        answer,
        became=f"resumed as attempt {answer.get('attempt', run.attempt + 1)}",
        invocation=invocation,
        deployment=deployment,
        terminal=terminal,
        detach=detach,
    )
