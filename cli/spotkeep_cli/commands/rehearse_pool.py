"""`spotkeep rehearse-pool job.yaml`: a warm pool from its first job to the notice of its expiry, with a verdict."""

from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

Faster = Annotated[float, typer.Option(min=1, metavar="FACTOR", help="How much faster the pool's periods run.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="The longest a job may take.")]
KeepRunning = Annotated[bool, typer.Option("--keep-running", help="Leave the local AWS up afterwards.")]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Where to write the report. Default: .spotkeep/rehearsal/pool-report.json"
    ),
]


def rehearse_pool(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    faster: Faster = 40.0,
    timeout: Timeout = 300.0,
    keep_running: KeepRunning = False,
    report_path: ReportPath = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, leave a warm pool, reuse, extend and outlive it, and judge."""
    from dataclasses import replace

    from spotkeep_cli.connection import local_state_directory, project_directory
    from spotkeep_cli.errors import LocalFailureError, RehearsalFailedError, RehearsalNotJudgedError
    from spotkeep_cli.job_file import read_job_file
    from spotkeep_cli.judgement import PLACEHOLDER_BUCKET, judge_here
    from spotkeep_cli.launcher_answer import refused
    from spotkeep_cli.preparation import prepare
    from spotkeep_cli.rehearsed_deployment import RehearsedPools, on_demand
    from spotkeep_cli.rendering.pool_report import pool_report
    from spotkeep_cli.rendering.rehearsal_view import RehearsalView
    from spotkeep_cli.shell_path import activation
    from spotkeep_cli.termination import unwinding_on_sigterm
    from spotkeep_local.errors import LocalAwsError
    from spotkeep_rehearsal.errors import RehearsalError
    from spotkeep_rehearsal.pool_rehearsal import PoolRehearsalPlan
    from spotkeep_rehearsal.pool_rehearsal import rehearse_pool as run_rehearsal

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    document = on_demand(read_job_file(job_file, overrides=overrides or ()))
    prepared = prepare(document, checkpoint_bucket=PLACEHOLDER_BUCKET, new_token=invocation.seams.new_token)
    if problems := judge_here(prepared).problems:
        raise refused(list(problems), what="nothing was rehearsed", document=document)
    project = project_directory()
    options = replace(invocation.options, local=True)
    plan = PoolRehearsalPlan(
        project_dir=project,
        state_dir=local_state_directory(),
        name=str(document.fields["name"]),
        deployment=options.deployment,
        faster=faster,
        timeout_seconds=timeout,
        keep_running=keep_running,
    )
    terminal.show(
        f"Rehearsing a warm pool with {job_file} on this machine: the real app, no account, nothing billed.\n"
        f"Its periods run {faster:g} times as fast.\n"
    )
    try:
        with RehearsalView(terminal.people) as view, unwinding_on_sigterm():
            report = run_rehearsal(
                plan,
                connect=lambda _: RehearsedPools(
                    invocation.seams.connect(options), document=document, new_token=invocation.seams.new_token
                ),
                observer=view,
            )
    except LocalAwsError as error:
        raise LocalFailureError.of(error) from error
    except RehearsalError as error:
        raise RehearsalNotJudgedError(str(error), hint=error.hint) from error
    written = report_path or project / ".spotkeep" / "rehearsal" / "pool-report.json"
    report.write(written)
    if as_json:
        terminal.give_json(report.to_document())
    else:
        shown = written.relative_to(Path.cwd()) if written.is_relative_to(Path.cwd()) else written
        for part in (*pool_report(report), "", f"Report: {shown}"):
            terminal.show(part)
    if not report.passed:
        raise RehearsalFailedError("the rehearsal did not pass", hint="docs/warm-pools.md says what should happen")
    terminal.show_next(
        *activation(),
        NextStep(command=f"spotkeep pool match {job_file}", what="which pool your job would take, once deployed"),
        NextStep(command=f"spotkeep doctor {job_file}", what="spot or pool: what is cheaper for your job"),
    )
