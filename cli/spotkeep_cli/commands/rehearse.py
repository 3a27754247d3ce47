"""`spotkeep rehearse job.yaml`: the whole way on this machine, with interruptions, and a verdict."""

from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

InterruptAt = Annotated[
    list[str] | None,
    typer.Option(
        "--interrupt-at",
        metavar="40%|STEP|30s",
        help="When to take the capacity away. Repeatable. Default: 35% with a notice, 70% without.",
        show_default=False,
    ),
]
Notice = Annotated[bool, typer.Option("--notice/--no-notice", help="Send SIGTERM before the capacity goes.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="The longest the training may take.")]
KeepRunning = Annotated[bool, typer.Option("--keep-running", help="Leave the local AWS up afterwards.")]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Where to write the report. Default: .spotkeep/rehearsal/report.json"
    ),
]


def rehearse(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    interrupt_at: InterruptAt = None,
    notice: Notice = True,
    timeout: Timeout = 900,
    keep_running: KeepRunning = False,
    report_path: ReportPath = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, train, take the capacity away, and judge what came back."""
    from dataclasses import replace

    from spotkeep_cli.connection import local_state_directory, project_directory
    from spotkeep_cli.errors import LocalFailureError, RehearsalFailedError, RehearsalNotJudgedError
    from spotkeep_cli.interruption_points import read_interruptions
    from spotkeep_cli.job_file import read_job_file
    from spotkeep_cli.judgement import PLACEHOLDER_BUCKET, judge_here
    from spotkeep_cli.launcher_answer import refused
    from spotkeep_cli.preparation import prepare
    from spotkeep_cli.rehearsed_deployment import RehearsedDeployment
    from spotkeep_cli.rendering.rehearsal_view import RehearsalView, report_of
    from spotkeep_cli.shell_path import activation
    from spotkeep_cli.termination import unwinding_on_sigterm
    from spotkeep_local.errors import LocalAwsError
    from spotkeep_rehearsal.errors import RehearsalError
    from spotkeep_rehearsal.rehearsal import RehearsalPlan
    from spotkeep_rehearsal.rehearsal import rehearse as run_rehearsal

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    document = read_job_file(job_file, overrides=overrides or ())
    prepared = prepare(document, checkpoint_bucket=PLACEHOLDER_BUCKET, new_token=invocation.seams.new_token)
    if problems := judge_here(prepared).problems:
        raise refused(list(problems), what="nothing was rehearsed", document=document)
    project = project_directory()
    options = replace(invocation.options, local=True)
    plan = RehearsalPlan(
        project_dir=project,
        state_dir=local_state_directory(),
        name=str(document.fields["name"]),
        deployment=options.deployment,
        interruptions=read_interruptions(interrupt_at or (), notice=notice),
        timeout_seconds=timeout,
        keep_running=keep_running,
    )
    terminal.show(f"Rehearsing {job_file} on this machine: the real app, no account, nothing billed.\n")
    try:
        with RehearsalView(terminal.people) as view, unwinding_on_sigterm():
            report = run_rehearsal(
                plan,
                connect=lambda _: RehearsedDeployment(
                    invocation.seams.connect(options), document=document, new_token=invocation.seams.new_token
                ),
                observer=view,
            )
    except LocalAwsError as error:
        raise LocalFailureError.of(error) from error
    except RehearsalError as error:
        raise RehearsalNotJudgedError(str(error), hint=error.hint) from error
    written = report_path or project / ".spotkeep" / "rehearsal" / "report.json"
    report.write(written)
    if as_json:
        terminal.give_json(report.to_document())
    else:
        for part in (*report_of(report), "", f"Report: {_from_here(written)}"):
            terminal.show(part)
    if not report.verdict.passed:
        raise RehearsalFailedError(
            "the rehearsal did not pass", hint="docs/training-scripts.md shows how to make a script resumable"
        )
    terminal.show_next(
        *activation(),
        NextStep(command=f"spotkeep doctor {job_file}", what="check the job for AWS"),
        NextStep(command=f"spotkeep launch {job_file}", what="launch it, once the app is deployed"),
    )


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
