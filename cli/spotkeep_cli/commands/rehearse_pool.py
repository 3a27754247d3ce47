"""`spotkeep rehearse-pool job.yaml`: a warm pool, from its first job to the notification that it expired."""

import shlex
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
    from spotkeep_cli.job_file import read_job_file
    from spotkeep_cli.rehearsed_deployment import RehearsedPools, on_demand
    from spotkeep_cli.rehearsing import Rehearsing, report_file
    from spotkeep_cli.rendering.pool_report import pool_report
    from spotkeep_rehearsal.pool_rehearsal import PoolRehearsalPlan
    from spotkeep_rehearsal.pool_rehearsal import rehearse_pool as run_rehearsal

    terminal, quoted = Terminal(as_json=as_json), shlex.quote(str(job_file))
    rehearsing = Rehearsing(
        invocation=invocation_of(context),
        terminal=terminal,
        document=on_demand(read_job_file(job_file, overrides=overrides or ())),
    )
    plan = PoolRehearsalPlan(
        **rehearsing.plan_fields(), faster=faster, timeout_seconds=timeout, keep_running=keep_running
    )
    terminal.show(
        f"Rehearsing a warm pool with {job_file} on this machine: the real app, no account, nothing billed.\n"
        f"Its periods run {faster:g} times as fast.\n"
    )
    rehearsing.conduct(
        run_rehearsal,
        plan,
        deployment=RehearsedPools,
        parts=pool_report,
        report_path=report_file("pool-report.json", given=report_path),
        failed_hint="docs/warm-pools.md says what should happen",
        next_steps=[
            NextStep(command=f"spotkeep pool match {quoted}", what="which pool your job would take, once deployed"),
            NextStep(command=f"spotkeep doctor {quoted}", what="spot or pool: what is cheaper for your job"),
        ],
    )
